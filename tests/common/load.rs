//! A load that lasts, and addresses for what watches it.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::Order;

/// An address that was free a moment ago.
pub fn free() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

/// Orders go to a topic until this is dropped.
pub struct Load {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl Load {
    /// Begins with the order `first`.
    pub fn start(topic: &str, first: u64, partitions: i32) -> Self {
        Self::of(200, topic, first, partitions)
    }

    /// So many at a time.
    pub fn of(count: u64, topic: &str, first: u64, partitions: i32) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (topic, until) = (topic.to_owned(), Arc::clone(&over));
        let produce = move || {
            let mut next = first;
            while !until.load(Ordering::SeqCst) {
                let events = next..next + count;
                super::produce(&topic, events.map(|i| Order::event(i).message(partitions)));
                next += count;
                std::thread::sleep(Duration::from_millis(50));
            }
            next
        };
        Load { over, thread: Some(std::thread::spawn(produce)) }
    }

    /// How many orders there are now.
    pub fn stop(mut self) -> u64 {
        self.over.store(true, Ordering::SeqCst);
        self.thread.take().expect("it was started").join().unwrap()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
    }
}
