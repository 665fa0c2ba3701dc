//! PostgreSQL tables, by binary COPY.
//!
//! A table's rows and the positions that cover them share one transaction, whose last statement moves
//! the positions by compare and set. The files, in the order of the data:
//!
//! * `target`, `unit`, `ident`, `address`, `tls`: what the dataflow says;
//! * `connect`, `retry`: sessions, and what becomes of their faults;
//! * `store`, `schema`, `catalog`, `lock`, `keys`: before the run;
//! * `table`, `shape`, `watch`: a table as it is, and as it changes while the run lasts;
//! * `fields`, `encode`, `encoder`, `rows`: rows to bytes;
//! * `arrived`, `batch`, `sql`, `load`: bytes to the table;
//! * `isolate`, `careful`, `blame`: what the server refuses of them;
//! * `work`, `rejects`, `ledger`, `writer`: all of it in one transaction;
//! * `kept`: refused records, read and deleted later.

mod address;
mod arrived;
mod batch;
mod blame;
mod blockers;
mod careful;
mod catalog;
mod client;
mod connect;
mod connection;
mod encode;
mod encoder;
mod fields;
mod fresh;
mod hand;
mod ident;
mod isolate;
mod judgement;
mod kept;
mod keys;
mod ledger;
mod load;
mod lock;
mod pooler;
mod rejects;
mod retry;
mod rows;
mod schema;
mod shape;
mod sql;
mod store;
mod table;
mod target;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod tls;
mod unit;
mod watch;
mod work;
mod writer;

pub(crate) use client::connect;
pub(crate) use ident::quote;
pub use schema::schema_sql;
pub use target::{KeyColumns, Postgres};
pub use unit::Unit;
