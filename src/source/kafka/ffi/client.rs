//! A consumer, its queue and its callbacks.

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
use crate::source::Wake;

/// A librdkafka consumer that is assigned its partitions by hand. All calls may come from any thread.
///
/// Its main queue is forwarded to its consumer queue, so one call fetches records and serves the
/// callbacks; commits are answered on a queue of their own, since an answer is no message.
pub(in super::super) struct Client {
    native: *mut sys::rd_kafka_t,
    queue: *mut sys::rd_kafka_queue_t,
    commits: *mut sys::rd_kafka_queue_t,
    // Lent to librdkafka's callbacks, so they are dropped after the client is destroyed.
    wake: Option<Box<Wake>>,
    events: Arc<Events>,
}

// SAFETY: librdkafka's handles and queues may be used from any thread; `Wake` and `Events` are `Sync`.
unsafe impl Send for Client {}
// SAFETY: as above.
unsafe impl Sync for Client {}

impl Client {
    /// A client for `config`, which must name a group. `wake` is called whenever its queue stops being
    /// empty, from librdkafka's threads. Fails with librdkafka's own words.
    pub(in super::super) fn new(
        config: NativeClientConfig,
        wake: Option<Wake>,
    ) -> Result<Client, String> {
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
        let (queue, commits) = unsafe {
            sys::rd_kafka_poll_set_consumer(native);
            (sys::rd_kafka_queue_get_consumer(native), sys::rd_kafka_queue_new(native))
        };
        assert!(!queue.is_null(), "a client with a group has a consumer queue");
        let wake = wake.map(Box::new);
        if let Some(wake) = &wake {
            let opaque = ptr::from_ref::<Wake>(wake).cast_mut().cast();
            // SAFETY: the box keeps its address and outlives the callback, which `drop` disables.
            unsafe { sys::rd_kafka_queue_cb_event_enable(queue, Some(on_nonempty), opaque) };
        }
        Ok(Client { native, queue, commits, wake, events })
    }

    /// What librdkafka said outside of answers.
    pub(in super::super) fn events(&self) -> &Events {
        &self.events
    }

    /// No wake-up comes after this.
    pub(in super::super) fn silence(&self) {
        if self.wake.is_some() {
            // SAFETY: the queue is live. The callback runs under the lock that this call takes.
            unsafe { sys::rd_kafka_queue_cb_event_enable(self.queue, None, ptr::null_mut()) };
        }
    }

    /// Takes up to `limit` messages that are there, without waiting, and serves the callbacks. Fewer
    /// than `limit` means that the queue was empty.
    pub(in super::super) fn consume(&self, limit: usize) -> Messages<'_> {
        let mut pointers = Vec::with_capacity(limit);
        // SAFETY: the queue is live; at most `limit` pointers are written, and as many as the answer
        // says, which then belong to `Messages`, whose lifetime keeps the client alive.
        unsafe {
            let found =
                sys::rd_kafka_consume_batch_queue(self.queue, 0, pointers.as_mut_ptr(), limit);
            pointers.set_len(usize::try_from(found).unwrap_or(0));
            Messages::own(pointers)
        }
    }

    /// Adds `partitions` to what is fetched, each from its offset.
    pub(in super::super) fn assign(
        &self,
        partitions: &TopicPartitionList,
    ) -> Result<(), RDKafkaErrorCode> {
        // SAFETY: both are live; the list is copied.
        outcome(unsafe { sys::rd_kafka_incremental_assign(self.native, partitions.ptr()) })
    }

    /// Stops fetching `partitions`; what is queued of them is dropped.
    pub(in super::super) fn unassign(
        &self,
        partitions: &TopicPartitionList,
    ) -> Result<(), RDKafkaErrorCode> {
        // SAFETY: both are live; the list is copied.
        outcome(unsafe { sys::rd_kafka_incremental_unassign(self.native, partitions.ptr()) })
    }

    /// Hands `positions` to the group; the answer is for [`Client::committed`].
    pub(in super::super) fn commit(
        &self,
        positions: &TopicPartitionList,
    ) -> Result<(), RDKafkaErrorCode> {
        // SAFETY: all are live; the list is copied; without a callback the answer is an event.
        let answer = unsafe {
            sys::rd_kafka_commit_queue(
                self.native,
                positions.ptr(),
                self.commits,
                None,
                ptr::null_mut(),
            )
        };
        success(answer.into())
    }

    /// The answer to one commit, waiting up to `limit` for it; `None` where none came.
    pub(in super::super) fn committed(
        &self,
        limit: Duration,
    ) -> Option<Result<(), RDKafkaErrorCode>> {
        // SAFETY: the queue is live; the event is ours until destroyed.
        unsafe {
            let event = sys::rd_kafka_queue_poll(self.commits, millis(limit));
            if event.is_null() {
                return None;
            }
            let mut answer = RDKafkaErrorCode::from(sys::rd_kafka_event_error(event));
            let list = sys::rd_kafka_event_topic_partition_list(event);
            if answer == RDKafkaErrorCode::NoError && !list.is_null() {
                for index in 0..usize::try_from((*list).cnt).unwrap_or(0) {
                    let element = (*list).elems.add(index);
                    let of_partition = code(ptr::addr_of!((*element).err).cast::<i32>().read());
                    if of_partition != RDKafkaErrorCode::NoError {
                        answer = of_partition;
                    }
                }
            }
            sys::rd_kafka_event_destroy(event);
            Some(success(answer))
        }
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
                    let mut ids: Vec<i32> =
                        (0..count).map(|index| (*(*topic).partitions.add(index)).id).collect();
                    ids.sort_unstable();
                    ids
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
        self.silence();
        // SAFETY: nothing borrows the client any more; the queues are ours and go first.
        unsafe {
            sys::rd_kafka_queue_destroy(self.commits);
            sys::rd_kafka_queue_destroy(self.queue);
            sys::rd_kafka_destroy_flags(self.native, sys::RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
        }
    }
}

fn success(code: RDKafkaErrorCode) -> Result<(), RDKafkaErrorCode> {
    if code == RDKafkaErrorCode::NoError { Ok(()) } else { Err(code) }
}

/// What an error object says; it is null where all went well.
fn outcome(error: *mut sys::rd_kafka_error_t) -> Result<(), RDKafkaErrorCode> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: the object is ours until destroyed.
    let code = unsafe {
        let code = sys::rd_kafka_error_code(error);
        sys::rd_kafka_error_destroy(error);
        code
    };
    Err(code.into())
}

fn millis(limit: Duration) -> c_int {
    c_int::try_from(limit.as_millis()).unwrap_or(c_int::MAX)
}

unsafe extern "C" fn on_nonempty(_: *mut sys::rd_kafka_t, opaque: *mut c_void) {
    // SAFETY: `opaque` is the client's boxed `Wake`, which outlives this callback.
    unsafe { &*opaque.cast::<Wake>() }.wake();
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
