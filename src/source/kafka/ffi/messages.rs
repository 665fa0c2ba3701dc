//! What one call fetched, and views of it.

use std::cell::OnceCell;
use std::ffi::{CStr, c_void};
use std::marker::PhantomData;
use std::ptr;
use std::slice;

use rdkafka::bindings as sys;
use rdkafka::types::RDKafkaErrorCode;

use super::{Client, code};
use crate::record::Headers;

/// Messages as one call fetched them; given back to librdkafka when dropped.
pub(in super::super) struct Messages<'c> {
    pointers: Vec<*mut sys::rd_kafka_message_t>,
    client: PhantomData<&'c Client>,
}

impl Messages<'_> {
    /// Takes up to `limit` messages that are in `queue`, without waiting.
    ///
    /// # Safety
    ///
    /// The queue is live, and its client lives for the lifetime of the result.
    pub(super) unsafe fn take(queue: *mut sys::rd_kafka_queue_t, limit: usize) -> Self {
        let mut pointers = Vec::with_capacity(limit);
        // SAFETY: at most `limit` pointers are written, and as many as the answer says, which are ours.
        unsafe {
            let found = sys::rd_kafka_consume_batch_queue(queue, 0, pointers.as_mut_ptr(), limit);
            pointers.set_len(usize::try_from(found).unwrap_or(0));
        }
        Messages { pointers, client: PhantomData }
    }

    /// How many there are.
    pub(in super::super) fn len(&self) -> usize {
        self.pointers.len()
    }

    /// The messages, in the order of the queue.
    pub(in super::super) fn iter(&self) -> impl Iterator<Item = Message<'_>> {
        self.pointers.iter().map(|raw| Message { raw: *raw, owner: PhantomData })
    }
}

impl Drop for Messages<'_> {
    fn drop(&mut self) {
        for raw in self.pointers.drain(..) {
            // SAFETY: owned by `self`, destroyed once, while its client still lives.
            unsafe { sys::rd_kafka_message_destroy(raw) };
        }
    }
}

/// One message, or one event of the queue that travels as a message (an error, a partition's end).
#[derive(Clone, Copy)]
pub(in super::super) struct Message<'m> {
    raw: *mut sys::rd_kafka_message_t,
    owner: PhantomData<&'m ()>,
}

impl<'m> Message<'m> {
    /// `NoError` for a record; anything else is an event.
    pub(in super::super) fn code(&self) -> RDKafkaErrorCode {
        // SAFETY: the message lives for `'m`. The field is read as the number that it is in C.
        code(unsafe { ptr::addr_of!((*self.raw).err).cast::<i32>().read() })
    }

    /// The partition.
    pub(in super::super) fn partition(&self) -> i32 {
        // SAFETY: the message lives for `'m`.
        unsafe { (*self.raw).partition }
    }

    /// The record's offset; for a partition's end, the next offset that it will have.
    pub(in super::super) fn offset(&self) -> i64 {
        // SAFETY: the message lives for `'m`.
        unsafe { (*self.raw).offset }
    }

    /// The key; `None` is not the same as empty.
    pub(in super::super) fn key(&self) -> Option<&'m [u8]> {
        // SAFETY: the message lives for `'m`; librdkafka gives a pointer to `key_len` bytes, or null.
        unsafe { bytes((*self.raw).key, (*self.raw).key_len) }
    }

    /// The value; `None` is not the same as empty. For an event, its text.
    pub(in super::super) fn value(&self) -> Option<&'m [u8]> {
        // SAFETY: the message lives for `'m`; librdkafka gives a pointer to `len` bytes, or null.
        unsafe { bytes((*self.raw).payload, (*self.raw).len) }
    }

    /// What an event says.
    pub(in super::super) fn text(&self) -> String {
        self.value().map(String::from_utf8_lossy).unwrap_or_default().into_owned()
    }

    /// Milliseconds since 1970-01-01 UTC, where the record has a timestamp.
    pub(in super::super) fn timestamp(&self) -> Option<i64> {
        // SAFETY: the message lives for `'m`; the type is not asked for.
        let millis = unsafe { sys::rd_kafka_message_timestamp(self.raw, ptr::null_mut()) };
        (millis >= 0).then_some(millis)
    }

    /// Under which leader of the partition it was written, where the broker says so.
    pub(in super::super) fn leader_epoch(&self) -> Option<i32> {
        // SAFETY: the message lives for `'m`.
        let epoch = unsafe { sys::rd_kafka_message_leader_epoch(self.raw) };
        (epoch >= 0).then_some(epoch)
    }

    /// Its headers, parsed when first asked for.
    pub(in super::super) fn headers(&self) -> LazyHeaders<'m> {
        LazyHeaders { message: *self, parsed: OnceCell::new() }
    }

    fn parse_headers(&self) -> Vec<Header<'m>> {
        let mut headers = ptr::null_mut();
        // SAFETY: the message lives for `'m`; librdkafka parses into memory that the message owns.
        let answer = unsafe { sys::rd_kafka_message_headers(self.raw, &mut headers) };
        let mut parsed = Vec::new();
        if RDKafkaErrorCode::from(answer) != RDKafkaErrorCode::NoError {
            return parsed;
        }
        loop {
            let (mut name, mut value, mut size) = (ptr::null(), ptr::null(), 0);
            // SAFETY: `headers` belongs to the living message; an index past the last is an error.
            let answer = unsafe {
                sys::rd_kafka_header_get_all(
                    headers,
                    parsed.len(),
                    &mut name,
                    &mut value,
                    &mut size,
                )
            };
            if RDKafkaErrorCode::from(answer) != RDKafkaErrorCode::NoError {
                return parsed;
            }
            // SAFETY: names end with a zero byte; values are `size` bytes, or null. Both live as long
            // as the message.
            let (name, value) = unsafe { (CStr::from_ptr(name), bytes(value.cast_mut(), size)) };
            parsed.push((name.to_string_lossy().into_owned(), value));
        }
    }
}

/// # Safety
///
/// `data` is null or points to `len` bytes that live unchanged for `'m`.
unsafe fn bytes<'m>(data: *mut c_void, len: usize) -> Option<&'m [u8]> {
    // SAFETY: by the caller.
    (!data.is_null()).then(|| unsafe { slice::from_raw_parts(data.cast::<u8>(), len) })
}

/// The name and value of a header.
type Header<'m> = (String, Option<&'m [u8]>);

/// The headers of a message; most codecs never ask for them.
pub(in super::super) struct LazyHeaders<'m> {
    message: Message<'m>,
    parsed: OnceCell<Vec<Header<'m>>>,
}

impl Headers for LazyHeaders<'_> {
    fn get(&self, index: usize) -> Option<(&str, Option<&[u8]>)> {
        let parsed = self.parsed.get_or_init(|| self.message.parse_headers());
        parsed.get(index).map(|(name, value)| (name.as_str(), *value))
    }
}
