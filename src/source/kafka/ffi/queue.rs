//! What a client fetches for one reader.

use std::collections::BTreeMap;
use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use rdkafka::bindings as sys;
use rdkafka::topic_partition_list::TopicPartitionList;
use rdkafka::types::RDKafkaErrorCode;

use super::client::{millis, success};
use super::{Client, Messages, code};
use crate::record::Partition;
use crate::source::Wake;

/// The partitions of one reader of a [`Client`]: they are forwarded to a queue of its own before they are
/// fetched, so that no other reader of the client meets them. Commits are answered on a queue of their
/// own too, since an answer is no message. All calls may come from any thread.
pub(in super::super) struct Queue {
    queue: *mut sys::rd_kafka_queue_t,
    commits: *mut sys::rd_kafka_queue_t,
    // Lent to librdkafka's callback, so it is dropped after the queue is.
    wake: Box<Wake>,
    client: Arc<Client>,
}

// SAFETY: librdkafka's queues may be used from any thread; `Wake` and `Client` are `Sync`.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

impl Queue {
    /// A queue without partitions. `wake` is called whenever it stops being empty, from librdkafka's
    /// threads.
    pub(in super::super) fn new(client: Arc<Client>, wake: Wake) -> Queue {
        // SAFETY: the client is live.
        let (queue, commits) = unsafe {
            (sys::rd_kafka_queue_new(client.native), sys::rd_kafka_queue_new(client.native))
        };
        client.events().listen(wake.clone());
        let wake = Box::new(wake);
        let opaque = ptr::from_ref::<Wake>(&wake).cast_mut().cast();
        // SAFETY: the box keeps its address and outlives the callback, which `drop` disables.
        unsafe { sys::rd_kafka_queue_cb_event_enable(queue, Some(on_nonempty), opaque) };
        Queue { queue, commits, wake, client }
    }

    /// Whose queue it is.
    pub(in super::super) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// No wake-up comes after this.
    pub(in super::super) fn silence(&self) {
        // SAFETY: the queue is live. The callback runs under the lock that this call takes.
        unsafe { sys::rd_kafka_queue_cb_event_enable(self.queue, None, ptr::null_mut()) };
        self.client.events().unlisten(&self.wake);
    }

    /// Takes up to `limit` messages that are there, without waiting. Fewer than `limit` means that the
    /// queue was empty.
    pub(in super::super) fn consume(&self, limit: usize) -> Messages<'_> {
        // SAFETY: the queue is live, and the messages' lifetime keeps the client alive.
        unsafe { Messages::take(self.queue, limit) }
    }

    /// Adds `partitions` to what is fetched, each from its offset.
    pub(in super::super) fn assign(
        &self,
        partitions: &TopicPartitionList,
    ) -> Result<(), RDKafkaErrorCode> {
        for partition in partitions.elements() {
            self.forward(partition.topic(), partition.partition())?;
        }
        // SAFETY: both are live; the list is copied.
        outcome(unsafe { sys::rd_kafka_incremental_assign(self.client.native, partitions.ptr()) })
    }

    /// Has what is fetched of a partition come here.
    fn forward(&self, topic: &str, partition: i32) -> Result<(), RDKafkaErrorCode> {
        let topic = CString::new(topic).map_err(|_| RDKafkaErrorCode::InvalidTopic)?;
        // SAFETY: all are live; the partition's queue is ours until destroyed, and stays forwarded.
        unsafe {
            let native = self.client.native;
            let of_partition = sys::rd_kafka_queue_get_partition(native, topic.as_ptr(), partition);
            if of_partition.is_null() {
                return Err(RDKafkaErrorCode::UnknownPartition);
            }
            sys::rd_kafka_queue_forward(of_partition, self.queue);
            sys::rd_kafka_queue_destroy(of_partition);
        }
        Ok(())
    }

    /// Stops fetching `partitions`; what is queued of them is dropped.
    pub(in super::super) fn unassign(
        &self,
        partitions: &TopicPartitionList,
    ) -> Result<(), RDKafkaErrorCode> {
        // SAFETY: both are live; the list is copied.
        outcome(unsafe { sys::rd_kafka_incremental_unassign(self.client.native, partitions.ptr()) })
    }

    /// Hands `positions` to the group; the answer is for [`Queue::committed`].
    pub(in super::super) fn commit(
        &self,
        positions: &TopicPartitionList,
    ) -> Result<(), RDKafkaErrorCode> {
        // SAFETY: all are live; the list is copied; without a callback the answer is an event.
        let answer = unsafe {
            sys::rd_kafka_commit_queue(
                self.client.native,
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
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.silence();
        // SAFETY: nothing borrows the queues any more, and they go before their client.
        unsafe {
            sys::rd_kafka_queue_destroy(self.commits);
            sys::rd_kafka_queue_destroy(self.queue);
        }
    }
}

/// Notes under which leader what lies before each position was read: where the partition's log was cut off
/// since, librdkafka finds that the position is of another history (KIP-320).
pub(in super::super) fn led(list: &mut TopicPartitionList, epochs: &BTreeMap<Partition, i32>) {
    let native = list.ptr();
    // SAFETY: the list is live and ours alone; its elements are as many as it says.
    unsafe {
        for index in 0..usize::try_from((*native).cnt).unwrap_or(0) {
            let element = (*native).elems.add(index);
            if let Some(epoch) = epochs.get(&Partition((*element).partition)) {
                sys::rd_kafka_topic_partition_set_leader_epoch(element, *epoch);
            }
        }
    }
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

unsafe extern "C" fn on_nonempty(_: *mut sys::rd_kafka_t, opaque: *mut c_void) {
    // SAFETY: `opaque` is the queue's boxed `Wake`, which outlives this callback.
    unsafe { &*opaque.cast::<Wake>() }.wake();
}
