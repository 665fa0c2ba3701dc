//! What rows become, without a server; `server` compares values with what a server makes of them.

mod exact;
mod rows;
mod server;
mod times;

use std::sync::Arc;

use serde::Serialize;

use super::RowEncoder;
use crate::record::{At, Change, Offset, Partition, Refusal, SourceId};
use crate::sink::Encoder;
use crate::sink::postgres::rows::Rows;
use crate::sink::postgres::table::{Column, Table};

fn column(name: &str, oid: u32) -> Column {
    Column {
        name: name.to_owned(),
        oid,
        type_name: "some type".to_owned(),
        typmod: -1,
        ..Column::default()
    }
}

fn table(columns: Vec<Column>, key: &[u16]) -> Table {
    Table {
        schema: "public".to_owned(),
        name: "orders".to_owned(),
        columns,
        key: key.to_vec(),
        judges_null: true,
        arbiter: true,
        ..Table::default()
    }
}

fn at(offset: i64) -> At {
    At { source: SourceId(0), partition: Partition(0), offset: Offset(offset), ordinal: 0 }
}

fn encoder(table: Table) -> RowEncoder {
    RowEncoder::new(Arc::new(table))
}

fn put<T: Serialize>(encoder: &mut RowEncoder, row: T) -> Result<(), Refusal> {
    encoder.encode(at(0), &Change::Put(row))
}

fn taken(encoder: &mut RowEncoder) -> Rows {
    match Encoder::<()>::take(encoder) {
        Some(chunk) => *chunk.payload.downcast().expect("the payload is rows"),
        None => Rows::default(),
    }
}
