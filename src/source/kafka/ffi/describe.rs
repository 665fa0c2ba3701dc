//! Which topic it is, and of which cluster.

use std::ffi::{CStr, c_void};
use std::ptr;
use std::time::Duration;

use rdkafka::bindings as sys;
use rdkafka::types::RDKafkaErrorCode;

use super::client::{millis, success};
use super::{Client, code};

/// The id of no topic: what a broker that knows none is taken to say.
const NONE: &str = "AAAAAAAAAAAAAAAAAAAAAA";

impl Client {
    /// Asks for the id that `topic` got when it was created; `None` where the brokers know none.
    pub(in super::super) fn topic_id(
        &self,
        topic: &CStr,
        limit: Duration,
    ) -> Result<Option<String>, RDKafkaErrorCode> {
        // Unless told, it asks the controller, which a client may not reach.
        let (_, broker) = self.metadata(topic, limit)?;
        let mut name = topic.as_ptr();
        // SAFETY: the client is live; what is made here is destroyed here, after its last use. The request
        // copies the names and options, and its answer arrives as one event on a queue of its own.
        unsafe {
            let native = self.native;
            let queue = sys::rd_kafka_queue_new(native);
            let topics = sys::rd_kafka_TopicCollection_of_topic_names(&mut name, 1);
            let options = sys::rd_kafka_AdminOptions_new(
                native,
                sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS,
            );
            sys::rd_kafka_AdminOptions_set_request_timeout(
                options,
                millis(limit).max(1),
                ptr::null_mut(),
                0,
            );
            if let Some(broker) = broker {
                sys::rd_kafka_AdminOptions_set_broker(options, broker, ptr::null_mut(), 0);
            }
            sys::rd_kafka_DescribeTopics(native, topics, options, queue);
            // The client gives up by itself at the limit, and then there is an event that says so.
            let event = sys::rd_kafka_queue_poll(queue, millis(limit + Duration::from_secs(1)));
            let answer = answer(event);
            if !event.is_null() {
                sys::rd_kafka_event_destroy(event);
            }
            sys::rd_kafka_AdminOptions_destroy(options);
            sys::rd_kafka_TopicCollection_destroy(topics);
            sys::rd_kafka_queue_destroy(queue);
            answer
        }
    }

    /// The cluster's id, as the brokers say it; `None` where they say none within `limit`.
    pub(in super::super) fn cluster_id(&self, limit: Duration) -> Option<String> {
        // SAFETY: the client is live; the text is ours until it is freed, and ends with a zero byte.
        unsafe {
            let text = sys::rd_kafka_clusterid(self.native, millis(limit));
            if text.is_null() {
                return None;
            }
            let id = CStr::from_ptr(text).to_string_lossy().into_owned();
            sys::rd_kafka_mem_free(self.native, text.cast::<c_void>());
            Some(id)
        }
    }
}

/// The id in the answer for one topic.
///
/// # Safety
///
/// `event` is null or live.
unsafe fn answer(event: *mut sys::rd_kafka_event_t) -> Result<Option<String>, RDKafkaErrorCode> {
    if event.is_null() {
        return Err(RDKafkaErrorCode::OperationTimedOut);
    }
    // SAFETY: by the caller; all that the answer lends lives as long as its event. Error fields are read as
    // the numbers that they are in C.
    unsafe {
        success(sys::rd_kafka_event_error(event).into())?;
        let result = sys::rd_kafka_event_DescribeTopics_result(event);
        let mut count = 0;
        if result.is_null() {
            return Err(RDKafkaErrorCode::Fail);
        }
        let topics = sys::rd_kafka_DescribeTopics_result_topics(result, &mut count);
        if count != 1 {
            return Err(RDKafkaErrorCode::UnknownTopicOrPartition);
        }
        let topic = *topics;
        let error = sys::rd_kafka_TopicDescription_error(topic);
        if !error.is_null() {
            success(code(sys::rd_kafka_error_code(error) as i32))?;
        }
        let id = sys::rd_kafka_TopicDescription_topic_id(topic);
        if id.is_null() {
            return Ok(None);
        }
        let id = CStr::from_ptr(sys::rd_kafka_Uuid_base64str(id)).to_string_lossy();
        Ok((id != NONE).then(|| id.into_owned()))
    }
}
