//! Stand-in: another branch brings the encoder.

use std::marker::PhantomData;
use std::sync::Arc;

use super::table::{Column, Table};
use crate::record::{At, Change, Refusal};
use crate::sink::{Chunk, Encoder};

pub(crate) struct RowEncoder<T>(PhantomData<fn(T)>);

impl<T> RowEncoder<T> {
    pub(crate) fn new(_table: Arc<Table>) -> Self {
        RowEncoder(PhantomData)
    }
}

impl<T: serde::Serialize> Encoder<T> for RowEncoder<T> {
    fn encode(&mut self, _at: At, _change: Change<T>) -> Result<(), Refusal> {
        Err(Refusal::new("encode", "stand-in"))
    }

    fn buffered(&self) -> usize {
        0
    }

    fn take(&mut self) -> Option<Chunk> {
        None
    }
}

pub(crate) fn supported(column: &Column) -> Result<(), String> {
    match column.oid {
        16 | 20 | 21 | 23 | 25 | 1043 | 1700 => Ok(()),
        _ => Err("rows cannot be written to it".into()),
    }
}

pub(crate) fn key_supported(column: &Column) -> Result<(), String> {
    match column.oid {
        1700 => Err("its equality is not that of its bytes".into()),
        _ => Ok(()),
    }
}
