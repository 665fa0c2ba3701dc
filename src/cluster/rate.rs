//! Warnings that others can cause: at most one a second.

use std::time::{Duration, Instant};

/// Lets one in a second pass and counts the others.
#[derive(Default)]
pub(crate) struct Rate {
    last: Option<Instant>,
    held: u64,
}

impl Rate {
    /// How many were held back since the last that passed, if this one may pass.
    pub(crate) fn pass(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now.duration_since(last) < Duration::from_secs(1)) {
            self.held += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_a_second_passes() {
        let mut rate = Rate::default();
        let start = Instant::now();
        assert_eq!(rate.pass(start), Some(0));
        assert_eq!(rate.pass(start), None);
        assert_eq!(rate.pass(start + Duration::from_millis(999)), None);
        assert_eq!(rate.pass(start + Duration::from_millis(1000)), Some(2));
    }
}
