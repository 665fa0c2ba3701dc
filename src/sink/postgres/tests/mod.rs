//! Claims about the whole, on a real server.
