//! Epochs: short ticks of monotonic time that close one after the other, cluster-wide.
//!
//! An epoch is timely's timestamp. It closes when every source of every worker has moved past it;
//! what it held is then complete at each sink. Epoch numbers mean nothing across runs: they are
//! never stored, and nothing is ever skipped by them.

use std::time::{Duration, Instant};

/// An epoch: quarters of a tick since the run's base, from 1. Timely's own minimum, 0, is "not yet started".
pub type Epoch = u64;

/// How often epochs change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stride {
    /// With each tick: few epochs, each with many rows.
    Tick,
    /// Four times as often, while some source may read no more until what it has read is stored: then each
    /// moment that an epoch stays open is lost.
    Quarter,
}

impl Stride {
    /// How many epochs it takes at once.
    fn epochs(self) -> u64 {
        match self {
            Stride::Tick => 4,
            Stride::Quarter => 1,
        }
    }
}

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

    /// The epoch of this moment, and how long until it is over.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{Clock, Stride};
    /// let clock = Clock::started(Duration::from_millis(45), Clock::TICK);
    /// let (epoch, left) = clock.now(Stride::Tick);
    /// assert!(epoch >= 9 && left <= Clock::TICK);
    /// ```
    pub fn now(&self, stride: Stride) -> (Epoch, Duration) {
        let ticks = self.tick.as_nanos() * u128::from(stride.epochs());
        let length = (ticks / u128::from(Stride::Tick.epochs())).max(1);
        let elapsed = self.base.elapsed().as_nanos();
        let epoch = 1 + (elapsed / length) as Epoch * stride.epochs();
        (epoch, Duration::from_nanos((length - elapsed % length) as u64))
    }

    /// How long ago `epoch` began; nothing where it has not.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::Clock;
    /// let clock = Clock::started(Duration::from_millis(100), Clock::TICK);
    /// assert!(clock.age(9) >= Duration::from_millis(60));
    /// assert_eq!(clock.age(1_000_000), Duration::ZERO);
    /// ```
    pub fn age(&self, epoch: Epoch) -> Duration {
        let quarters = u32::try_from(epoch.saturating_sub(1)).unwrap_or(u32::MAX);
        self.base.elapsed().saturating_sub(self.tick.saturating_mul(quarters) / 4)
    }

    /// The length of an epoch, as long as none is cut short.
    pub fn tick(&self) -> Duration {
        self.tick
    }
}
