//! Codecs: the bytes of a record to a value.
//!
//! A [`Codec`] turns a [`Record`] into the value that a dataflow works on, or refuses it. It copies
//! what it keeps, since the record borrows the client's buffer. A record without a value is a
//! tombstone, which travels past filters and maps to the sink.

mod columns;
mod document;
pub mod exact;
mod fields;
mod json;
mod object;

pub use columns::{Columns, Take, Tombstones};
pub use document::{Document, Dynamic};
pub use fields::{Cell, Fields};
pub use json::Json;

use crate::record::{Record, Refusal};

/// What a record holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded<T> {
    /// A value.
    Value(T),
    /// Nothing: the row of the record's key is to be deleted.
    Tombstone,
}

/// Bytes to values. Each worker has its own copy.
pub trait Codec: Clone + Send + 'static {
    /// What it makes of a record.
    type Value: 'static;

    /// Decodes `record`, or says why it is refused.
    fn decode(&mut self, record: &Record<'_>) -> Result<Decoded<Self::Value>, Refusal>;

    /// Puts what `make` takes from the record (key, headers, timestamp, coordinates) together with
    /// its value.
    ///
    /// ```
    /// use tidegate::{Codec, Json};
    /// #[derive(serde::Serialize, serde::Deserialize)]
    /// struct Order { order_id: i64 }
    /// #[derive(serde::Serialize, serde::Deserialize)]
    /// struct Stamped { order_id: i64, kafka_time: Option<i64> }
    /// let codec = Json::<Order>::new().with_record(|record, order| Stamped {
    ///     order_id: order.order_id,
    ///     kafka_time: record.timestamp,
    /// });
    /// # let _ = codec;
    /// ```
    fn with_record<U, F>(self, make: F) -> WithRecord<Self, F>
    where
        U: 'static,
        F: Fn(&Record<'_>, Self::Value) -> U + Clone + Send + 'static,
    {
        WithRecord { codec: self, make }
    }
}

/// A codec whose values take something of the record too; see [`Codec::with_record`].
#[derive(Clone, Debug)]
pub struct WithRecord<C, F> {
    codec: C,
    make: F,
}

impl<C, U, F> Codec for WithRecord<C, F>
where
    C: Codec,
    U: 'static,
    F: Fn(&Record<'_>, C::Value) -> U + Clone + Send + 'static,
{
    type Value = U;

    fn decode(&mut self, record: &Record<'_>) -> Result<Decoded<U>, Refusal> {
        Ok(match self.codec.decode(record)? {
            Decoded::Value(value) => Decoded::Value((self.make)(record, value)),
            Decoded::Tombstone => Decoded::Tombstone,
        })
    }
}
