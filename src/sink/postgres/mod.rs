//! PostgreSQL tables, by binary COPY.

mod rows;
mod table;

/// stub
#[derive(Debug)]
pub struct Postgres;
