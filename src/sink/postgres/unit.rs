//! What a number in a time column counts, and where a text without an offset belongs.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{LazyLock, Mutex, PoisonError};

use jiff::tz::{TimeZone, TimeZoneDatabase};

use crate::error::{Error, Result};

/// What a number counts from 1970-01-01 00:00 UTC, where it stands for a time.
///
/// ```
/// use tidegate::sink::postgres::Unit;
/// assert_eq!("ms".parse::<Unit>()?, Unit::Milliseconds);
/// assert_eq!(Unit::Microseconds.to_string(), "us");
/// # Ok::<(), tidegate::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// `s`
    Seconds,
    /// `ms`
    Milliseconds,
    /// `us`
    Microseconds,
    /// `ns`; the server keeps microseconds, to which these are rounded.
    Nanoseconds,
}

impl Unit {
    /// How many decimal digits of a number stand behind the second.
    pub(super) fn digits(self) -> u32 {
        match self {
            Unit::Seconds => 0,
            Unit::Milliseconds => 3,
            Unit::Microseconds => 6,
            Unit::Nanoseconds => 9,
        }
    }
}

impl FromStr for Unit {
    type Err = Error;

    fn from_str(text: &str) -> Result<Unit> {
        match text {
            "s" => Ok(Unit::Seconds),
            "ms" => Ok(Unit::Milliseconds),
            "us" => Ok(Unit::Microseconds),
            "ns" => Ok(Unit::Nanoseconds),
            _ => Err(Error::config(format!(
                "`{text}` is no unit of time; there is `s`, `ms`, `us`, `ns`"
            ))),
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unit::Seconds => "s",
            Unit::Milliseconds => "ms",
            Unit::Microseconds => "us",
            Unit::Nanoseconds => "ns",
        })
    }
}

/// The zone of this name in the bundled database of IANA's zones: the host's may be older, absent, or
/// another on each host of a cluster. Each is kept for the life of the program.
pub(super) fn zone(name: &str) -> Result<&'static TimeZone> {
    static KNOWN: LazyLock<Mutex<HashMap<String, &'static TimeZone>>> =
        LazyLock::new(Mutex::default);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(zone) = known.get(name) {
        return Ok(zone);
    }
    let zone = TimeZoneDatabase::bundled().get(name).map_err(|_| {
        Error::config(format!("`{name}` is no time zone; a name is one such as `Europe/Oslo`"))
    })?;
    let zone: &'static TimeZone = Box::leak(Box::new(zone));
    known.insert(name.to_owned(), zone);
    Ok(zone)
}
