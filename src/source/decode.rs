//! A record into a batch: its row or its refusal, and what it held.

use super::Batch;
use crate::codec::{Codec, Decoded};
use crate::record::{At, Change, Record, Refusal, Reject, Row, SourceId};
use crate::unwind;

/// Decodes `record` of `source` into `batch`; a codec that panics refuses it. With `keep`, what it held
/// is kept.
pub(super) fn decode<C: Codec>(
    codec: &mut C,
    source: SourceId,
    record: &Record<'_>,
    keep: bool,
    batch: &mut Batch<C::Value>,
) {
    let at = At { source, partition: record.partition, offset: record.offset, ordinal: 0 };
    let decoded = unwind::catch(|| codec.decode(record))
        .unwrap_or_else(|reason| Err(Refusal::new("decode", reason)));
    match decoded {
        Ok(Decoded::Value(value)) => batch.rows.push(Row { at, change: Change::Put(value) }),
        Ok(Decoded::Tombstone) => {
            let key = record.key.map(Box::from);
            batch.rows.push(Row { at, change: Change::Delete(key) });
        }
        Err(refusal) => batch.rejects.push(Reject { at, refusal }),
    }
    if keep {
        batch.origins.push(source, record);
    }
}
