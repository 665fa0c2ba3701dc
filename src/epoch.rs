//! Epochs: short ticks of monotonic time that close one after the other, cluster-wide.
//!
//! An epoch is timely's timestamp. It closes when every source of every worker has moved past it;
//! what it held is then complete at each sink. Epoch numbers mean nothing across runs: they are
//! never stored, and nothing is ever skipped by them.

use std::time::{Duration, Instant};

/// An epoch: ticks since the run's base, from 1. Timely's own minimum, 0, is "not yet started".
pub type Epoch = u64;

/// Reads the current epoch off the monotonic clock, from a base that all processes agreed on.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    base: Instant,
    tick: Duration,
}

impl Clock {
    /// The length of an epoch unless configured otherwise: 20 ms.
    pub const TICK: Duration = Duration::from_millis(20);

    /// A clock whose epoch 1 began `elapsed` ago.
    pub fn started(elapsed: Duration, tick: Duration) -> Self {
        let now = Instant::now();
        Clock { base: now.checked_sub(elapsed).unwrap_or(now), tick }
    }

    /// The epoch of this moment.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::Clock;
    /// let clock = Clock::started(Duration::from_millis(45), Clock::TICK);
    /// assert!(clock.now() >= 3);
    /// ```
    pub fn now(&self) -> Epoch {
        1 + (self.base.elapsed().as_nanos() / self.tick.as_nanos().max(1)) as Epoch
    }

    /// How long ago `epoch` began; nothing where it has not.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::Clock;
    /// let clock = Clock::started(Duration::from_millis(100), Clock::TICK);
    /// assert!(clock.age(3) >= Duration::from_millis(60));
    /// assert_eq!(clock.age(1_000_000), Duration::ZERO);
    /// ```
    pub fn age(&self, epoch: Epoch) -> Duration {
        let ticks = u32::try_from(epoch.saturating_sub(1)).unwrap_or(u32::MAX);
        self.base.elapsed().saturating_sub(self.tick.saturating_mul(ticks))
    }

    /// The length of an epoch.
    pub fn tick(&self) -> Duration {
        self.tick
    }
}
