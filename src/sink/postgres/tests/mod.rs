//! Claims about the whole, on a real server.

mod catalog;
mod fencing;
mod flush;
mod lock;
mod model;
mod outcome;
mod proxy;
mod refusals;
mod rig;
mod schema;
mod tls;
