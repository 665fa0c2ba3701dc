//! JSON values into a Rust type, by serde.

use std::fmt;
use std::marker::PhantomData;

use serde::de::DeserializeOwned;

use super::{Codec, Decoded};
use crate::record::{Record, Refusal};

/// Decodes a record's value, one JSON text in UTF-8, into `T`. Fields that `T` does not name are
/// ignored; a field that it requires and that is missing refuses the record.
///
/// ```
/// use tidegate::Json;
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Order { order_id: i64, status: String }
/// let codec = Json::<Order>::new();
/// # let _ = codec;
/// ```
pub struct Json<T> {
    value: PhantomData<fn() -> T>,
}

impl<T> Json<T> {
    /// The codec.
    pub fn new() -> Self {
        Json { value: PhantomData }
    }
}

impl<T> Default for Json<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Clone for Json<T> {
    fn clone(&self) -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for Json<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Json<{}>", std::any::type_name::<T>())
    }
}

impl<T: DeserializeOwned + 'static> Codec for Json<T> {
    type Value = T;

    fn decode(&mut self, record: &Record<'_>) -> Result<Decoded<T>, Refusal> {
        let Some(value) = record.value else { return Ok(Decoded::Tombstone) };
        match sonic_rs::from_slice(value) {
            Ok(value) => Ok(Decoded::Value(value)),
            Err(error) => Err(explain(value, &error)),
        }
    }
}

/// The decoder's own message spans lines with an excerpt of the input; one sentence is wanted.
#[cold]
fn explain(value: &[u8], error: &sonic_rs::Error) -> Refusal {
    if let Err(utf8) = std::str::from_utf8(value) {
        return Refusal::new("decode", format!("not UTF-8 at byte {}", utf8.valid_up_to()))
            .sqlstate("22021");
    }
    let text = error.to_string();
    let first = text.lines().next().unwrap_or("not JSON");
    Refusal::new("decode", first.trim_end_matches('.').to_owned())
}
