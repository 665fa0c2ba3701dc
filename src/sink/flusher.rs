//! stub
pub(crate) struct Closed;
pub(crate) struct Flusher;
pub(crate) struct Order;
pub(crate) struct Part;
