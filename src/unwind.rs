//! Panics of users' closures: caught where they happen, and silent there.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static EXPECTED: Cell<bool> = const { Cell::new(false) };
}

/// Whether a panic on this thread is going to be caught and turned into a reject; the panic hook
/// keeps silent then.
pub(crate) fn is_expected() -> bool {
    EXPECTED.get()
}

/// Runs `call`, which calls users' closures, and returns the message of a panic.
pub(crate) fn catch<R>(call: impl FnOnce() -> R) -> Result<R, String> {
    let outer = EXPECTED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(call));
    EXPECTED.set(outer);
    result.map_err(|panic| message(&*panic))
}

/// What a panic said.
pub(crate) fn message(panic: &dyn Any) -> String {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "panicked".to_owned(),
    }
}
