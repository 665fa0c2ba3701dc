//! Whether and when the processes of a host start again.

use std::time::Duration;

use crate::error::Kind;

/// Longest wait between two starts.
const LONGEST: Duration = Duration::from_secs(30);
/// A run that lasted so long was a good one, and the count begins anew.
const GOOD: Duration = Duration::from_secs(60);

/// What the exit codes of all processes amount to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// All ended in good order.
    Done,
    /// One ended in a way that may pass.
    Ended(u8),
    /// One ended in a way that needs a person.
    Lasting(u8),
}

/// The verdict on exit codes, in the order in which the processes ended. What needs a person counts
/// before all else; that another process was lost is the last to count, since it has a cause elsewhere.
pub(super) fn verdict(codes: &[u8]) -> Verdict {
    let peer = Kind::Peer.exit_code();
    if let Some(code) = codes.iter().find(|code| is_lasting(**code)) {
        return Verdict::Lasting(*code);
    }
    let failed = || codes.iter().filter(|code| **code != 0);
    let root = failed().find(|code| **code != peer).or_else(|| failed().next());
    root.map_or(Verdict::Done, |code| Verdict::Ended(*code))
}

fn is_lasting(code: u8) -> bool {
    // By a second signal: somebody wanted it to end.
    let kind = Kind::ALL.into_iter().find(|kind| kind.exit_code() == code);
    kind.is_some_and(|kind| !kind.is_worth_a_restart()) || code == 130
}

/// How many restarts there were in a row.
pub(super) struct Restarts {
    max: u32,
    count: u32,
    delay: Duration,
    good: Duration,
}

impl Restarts {
    /// At most `max` in a row; the first after `delay`. A run shorter than `start` may not even have
    /// begun, so it is no good one.
    pub fn new(max: u32, delay: Duration, start: Duration) -> Self {
        Restarts { max, count: 0, delay, good: GOOD.max(start) }
    }

    /// Which one the last was.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// How long to wait before the next start after a run that `lasted` so long; `None` to give up.
    pub fn next(&mut self, lasted: Duration) -> Option<Duration> {
        if lasted >= self.good {
            self.count = 0;
        }
        if self.count >= self.max {
            return None;
        }
        let doubled = self.delay.saturating_mul(1 << self.count.min(16)).min(LONGEST);
        self.count += 1;
        Some(doubled.mul_f64(0.75 + chance() / 2.0))
    }
}

/// From 0 to 1, so that hosts which lost each other do not all come back in the same moment.
fn chance() -> f64 {
    let mut byte = [0u8];
    // Without random bytes there is no jitter.
    let _ = getrandom::fill(&mut byte);
    f64::from(byte[0]) / 255.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_a_person_is_never_restarted() {
        assert_eq!(verdict(&[0, 0]), Verdict::Done);
        assert_eq!(verdict(&[7, 5, 7]), Verdict::Ended(5));
        assert_eq!(verdict(&[7, 137]), Verdict::Ended(137));
        assert_eq!(verdict(&[0, 7]), Verdict::Ended(7));
        for code in [2, 3, 6, 8, 9, 10, 130] {
            assert_eq!(verdict(&[7, 5, code]), Verdict::Lasting(code));
        }
        for code in [1, 4, 5, 7, 124, 134, 137] {
            assert_eq!(verdict(&[code]), Verdict::Ended(code));
        }
    }

    #[test]
    fn restarts_wait_longer_each_time_and_end() {
        let second = Duration::from_secs(1);
        let mut restarts = Restarts::new(8, second, Duration::ZERO);
        let pauses: Vec<_> = std::iter::from_fn(|| restarts.next(second)).collect();
        assert_eq!(pauses.len(), 8);
        for (pause, expected) in pauses.iter().zip([1, 2, 4, 8, 16, 30, 30, 30]) {
            let part = pause.as_secs_f64() / f64::from(expected);
            assert!((0.74..1.26).contains(&part), "{pauses:?}");
        }
        assert_eq!(restarts.next(second), None);
        assert!(restarts.next(GOOD).is_some(), "after a good while the count begins anew");
        assert_eq!(restarts.count(), 1);
    }

    #[test]
    fn a_start_that_waits_for_others_is_no_good_run() {
        let mut restarts = Restarts::new(1, Duration::ZERO, Duration::from_secs(120));
        assert!(restarts.next(GOOD).is_some());
        assert_eq!(restarts.next(GOOD), None);
    }
}
