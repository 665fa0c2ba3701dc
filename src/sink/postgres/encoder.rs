//! A table's encoder, which follows the table's shape.

use std::sync::Arc;

use serde::Serialize;

use super::encode::RowEncoder;
use super::shape::LiveTable;
use crate::record::{At, Change, Refusal};
use crate::sink::{Chunk, Encoder};

/// Encodes rows for the newest shape that anyone of this process has seen; a chunk has one shape.
pub(super) struct TableEncoder {
    live: Arc<LiveTable>,
    version: usize,
    rows: RowEncoder,
}

impl TableEncoder {
    pub fn new(live: Arc<LiveTable>) -> Self {
        let (version, prepared) = live.newest();
        let rows = RowEncoder::new(Arc::clone(&prepared.table)).versioned(version);
        TableEncoder { live, version, rows }
    }
}

impl<T: Serialize> Encoder<T> for TableEncoder {
    fn encode(&mut self, at: At, change: &Change<T>) -> Result<(), Refusal> {
        self.rows.encode(at, change)
    }

    fn buffered(&self) -> usize {
        Encoder::<T>::buffered(&self.rows)
    }

    fn take(&mut self) -> Option<Chunk> {
        let chunk = Encoder::<T>::take(&mut self.rows);
        Encoder::<T>::renew(self);
        chunk
    }

    fn renew(&mut self) -> bool {
        let changed = self.live.version() != self.version;
        if changed {
            *self = TableEncoder::new(Arc::clone(&self.live));
        }
        changed
    }
}
