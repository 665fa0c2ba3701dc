//! PostgreSQL tables, by binary COPY.

mod rows;
mod table;

use super::*;

/// stub
#[derive(Debug)]
pub struct Postgres;
impl Postgres {
    /// stub
    pub fn table(_: &str) -> Self {
        Postgres
    }
    /// stub
    pub fn key(self, _: &str) -> Self {
        self
    }
}
impl<T> Sink<T> for Postgres {
    fn target(&self) -> Result<Target> {
        todo!()
    }
    fn encoder(&self, _: &Shape) -> Box<dyn Encoder<T>> {
        todo!()
    }
}
