//! stub
/// stub
#[derive(Debug)]
pub struct Memory;
/// stub
#[derive(Debug)]
pub struct MemoryStore;
