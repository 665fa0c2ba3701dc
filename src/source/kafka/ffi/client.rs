//! A consumer and its callbacks.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use rdkafka::bindings as sys;
use rdkafka::config::NativeClientConfig;
use rdkafka::topic_partition_list::TopicPartitionList;
use rdkafka::types::{RDKafkaErrorCode, RDKafkaType};

use super::super::events::Events;
use super::{Messages, code};

/// A librdkafka consumer, which several readers may share: its threads, its connections, its fetches. All
/// calls may come from any thread. Records come by [`Queue`](super::Queue)s.
///
/// Its main queue is forwarded to its consumer queue, so one call fetches its events and serves the
/// callbacks.
pub(in super::super) struct Client {
    pub(super) native: *mut sys::rd_kafka_t,
    queue: *mut sys::rd_kafka_queue_t,
    // Lent to librdkafka's callbacks, so it is dropped after the client is destroyed.
    events: Arc<Events>,
}

// SAFETY: librdkafka's handles and queues may be used from any thread; `Events` is `Sync`.
unsafe impl Send for Client {}
// SAFETY: as above.
unsafe impl Sync for Client {}

impl Client {
    /// A client for `config`, which must name a group. Fails with librdkafka's own words.
    pub(in super::super) fn new(config: NativeClientConfig) -> Result<Client, String> {
        let events = Arc::new(Events::default());
        let mut text = [0 as c_char; 512];
        // SAFETY: the configuration is live; `events` outlives the client, whose callbacks get it.
        let native = unsafe {
            let config = config.ptr();
            sys::rd_kafka_conf_set_opaque(config, Arc::as_ptr(&events).cast_mut().cast());
            sys::rd_kafka_conf_set_log_cb(config, Some(on_log));
            sys::rd_kafka_conf_set_error_cb(config, Some(on_error));
            sys::rd_kafka_new(RDKafkaType::RD_KAFKA_CONSUMER, config, text.as_mut_ptr(), text.len())
        };
        if native.is_null() {
            // SAFETY: librdkafka ended the text with a zero byte.
            return Err(unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned());
        }
        // The client owns its configuration now.
        mem::forget(config);
        // SAFETY: `native` is live.
        let queue = unsafe {
            sys::rd_kafka_poll_set_consumer(native);
            sys::rd_kafka_queue_get_consumer(native)
        };
        assert!(!queue.is_null(), "a client with a group has a consumer queue");
        let opaque = Arc::as_ptr(&events).cast_mut().cast();
        // SAFETY: `events` keeps its address and outlives the callback, which `drop` disables.
        unsafe { sys::rd_kafka_queue_cb_event_enable(queue, Some(on_event), opaque) };
        Ok(Client { native, queue, events })
    }

    /// What librdkafka said outside of answers.
    pub(in super::super) fn events(&self) -> &Events {
        &self.events
    }

    /// Takes the events that are there and belong to no partition, without waiting, and serves the
    /// callbacks.
    pub(in super::super) fn serve(&self) -> Messages<'_> {
        const SOME: usize = 64;
        // SAFETY: the queue is live, and the messages' lifetime keeps the client alive.
        unsafe { Messages::take(self.queue, SOME) }
    }

    /// The next offset that will be written to a partition, as last heard of, without asking.
    pub(in super::super) fn high_watermark(&self, topic: &CStr, partition: i32) -> Option<i64> {
        let (mut low, mut high) = (-1, -1);
        // SAFETY: all pointers are live.
        let answer = unsafe {
            sys::rd_kafka_get_watermark_offsets(
                self.native,
                topic.as_ptr(),
                partition,
                &mut low,
                &mut high,
            )
        };
        (success(answer.into()).is_ok() && high >= 0).then_some(high)
    }

    /// Looks up offsets: each element's offset is a timestamp in milliseconds, -1 for the end or -2 for
    /// the beginning, and is replaced by the offset found (-1 where no record is that late).
    pub(in super::super) fn offsets(
        &self,
        times: &mut TopicPartitionList,
        limit: Duration,
    ) -> Result<(), RDKafkaErrorCode> {
        // SAFETY: both are live, and the list is borrowed for us alone.
        let answer =
            unsafe { sys::rd_kafka_offsets_for_times(self.native, times.ptr(), millis(limit)) };
        success(answer.into())
    }

    /// Asks for the partitions of `topic`, in order.
    pub(in super::super) fn partitions(
        &self,
        topic: &CStr,
        limit: Duration,
    ) -> Result<Vec<i32>, RDKafkaErrorCode> {
        Ok(self.metadata(topic, limit)?.0)
    }

    /// Asks for the partitions of `topic`, in order, and for a broker that knows it: the leader of one of
    /// them, or else any.
    pub(super) fn metadata(
        &self,
        topic: &CStr,
        limit: Duration,
    ) -> Result<(Vec<i32>, Option<i32>), RDKafkaErrorCode> {
        // SAFETY: the handles are live until destroyed here; the answer is read within its counts,
        // error fields as the numbers that they are in C.
        unsafe {
            let handle = sys::rd_kafka_topic_new(self.native, topic.as_ptr(), ptr::null_mut());
            if handle.is_null() {
                return Err(RDKafkaErrorCode::InvalidTopic);
            }
            let mut metadata = ptr::null();
            let answer =
                sys::rd_kafka_metadata(self.native, 0, handle, &mut metadata, millis(limit));
            sys::rd_kafka_topic_destroy(handle);
            success(answer.into())?;
            let result = if (*metadata).topic_cnt < 1 {
                Err(RDKafkaErrorCode::UnknownTopicOrPartition)
            } else {
                let topic = (*metadata).topics;
                success(code(ptr::addr_of!((*topic).err).cast::<i32>().read())).map(|()| {
                    let count = usize::try_from((*topic).partition_cnt).unwrap_or(0);
                    let partition = |index| (*topic).partitions.add(index);
                    let mut ids: Vec<i32> =
                        (0..count).map(|index| (*partition(index)).id).collect();
                    ids.sort_unstable();
                    let mut leaders = (0..count).map(|index| (*partition(index)).leader);
                    let leader = leaders.find(|id| *id >= 0);
                    let any = || ((*metadata).broker_cnt > 0).then(|| (*(*metadata).brokers).id);
                    (ids, leader.or_else(any))
                })
            };
            sys::rd_kafka_metadata_destroy(metadata);
            result
        }
    }
}

impl Drop for Client {
    /// May take a moment, since librdkafka joins its threads; there is no group to leave.
    fn drop(&mut self) {
        // SAFETY: nothing borrows the client any more: queues keep it alive. Its own queue goes first.
        unsafe {
            sys::rd_kafka_queue_cb_event_enable(self.queue, None, ptr::null_mut());
            sys::rd_kafka_queue_destroy(self.queue);
            sys::rd_kafka_destroy_flags(self.native, sys::RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
        }
    }
}

pub(super) fn success(code: RDKafkaErrorCode) -> Result<(), RDKafkaErrorCode> {
    if code == RDKafkaErrorCode::NoError { Ok(()) } else { Err(code) }
}

pub(super) fn millis(limit: Duration) -> c_int {
    c_int::try_from(limit.as_millis()).unwrap_or(c_int::MAX)
}

unsafe extern "C" fn on_event(_: *mut sys::rd_kafka_t, opaque: *mut c_void) {
    // SAFETY: `opaque` is the client's `Events`, which outlives this callback.
    unsafe { &*opaque.cast::<Events>() }.wake();
}

unsafe extern "C" fn on_error(
    _: *mut sys::rd_kafka_t,
    error: c_int,
    reason: *const c_char,
    opaque: *mut c_void,
) {
    // SAFETY: `opaque` is the client's `Events`, alive as long as the client; the reason ends with a
    // zero byte.
    let (events, reason) = unsafe { (&*opaque.cast::<Events>(), CStr::from_ptr(reason)) };
    events.error(code(error), &reason.to_string_lossy());
}

unsafe extern "C" fn on_log(
    native: *const sys::rd_kafka_t,
    level: c_int,
    facility: *const c_char,
    line: *const c_char,
) {
    // SAFETY: the client is live while it logs, and its opaque value is its `Events`; both texts end
    // with a zero byte.
    unsafe {
        let events = sys::rd_kafka_opaque(native).cast::<Events>();
        if let Some(events) = events.as_ref() {
            let (facility, line) = (CStr::from_ptr(facility), CStr::from_ptr(line));
            events.log(level, &facility.to_string_lossy(), &line.to_string_lossy());
        }
    }
}
