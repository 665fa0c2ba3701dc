//! PostgreSQL tables, by binary COPY.

mod encode;
mod fields;
mod rows;
mod table;

/// stub
#[derive(Debug)]
pub struct Postgres;
