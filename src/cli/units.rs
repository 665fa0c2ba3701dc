//! Durations, sizes and pairs as people write them.

use std::time::{Duration, SystemTime};

/// A duration such as `100ms`, `30s` or `1m 30s`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let span: jiff::SignedDuration =
        text.parse().map_err(|_| "expected a duration such as `100ms` or `30s`".to_owned())?;
    Duration::try_from(span).map_err(|_| "a duration cannot be negative".to_owned())
}

/// An age such as `30d`, `2h` or `1w 12h`; a day has 24 hours.
pub(super) fn age(text: &str) -> Result<Duration, String> {
    let wrong = || "expected an age such as `2h` or `30d`".to_owned();
    let span: jiff::Span = text.parse().map_err(|_| wrong())?;
    let duration =
        span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()).map_err(|_| wrong())?;
    Duration::try_from(duration).map_err(|_| "an age cannot be negative".to_owned())
}

/// A moment: RFC 3339, or how long ago.
pub(super) fn moment(text: &str) -> Result<SystemTime, String> {
    if let Ok(moment) = text.parse::<jiff::Timestamp>() {
        let nanos = u64::try_from(moment.as_nanosecond()).ok();
        let since = nanos.map(|nanos| SystemTime::UNIX_EPOCH + Duration::from_nanos(nanos));
        return since.ok_or_else(|| "a time before 1970 is too long ago".to_owned());
    }
    let age = age(text).map_err(|_| {
        "expected a time such as `2026-01-31T12:00:00Z`, or how long ago, such as `2h`".to_owned()
    })?;
    ago(age).ok_or_else(|| "that is too long ago".to_owned())
}

/// The moment so long ago.
pub(super) fn ago(age: Duration) -> Option<SystemTime> {
    SystemTime::now().checked_sub(age)
}

/// A size in bytes such as `4096`, `64kB` or `32MiB`.
pub(super) fn size(text: &str) -> Result<usize, String> {
    let wrong = || "expected a size such as `64kB` or `32MiB`".to_owned();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        _ => return Err(wrong()),
    };
    let number: usize = number.parse().map_err(|_| wrong())?;
    number.checked_mul(unit).ok_or_else(|| "the size is too large".to_owned())
}

/// `name=value`; what is printed of a wrong one is never its value, which may be a secret.
pub(super) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim().into(), value.into())),
        _ => Err("expected `name=value`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_are_what_people_write() {
        assert_eq!(duration("100ms"), Ok(Duration::from_millis(100)));
        assert_eq!(duration("1m 30s"), Ok(Duration::from_secs(90)));
        assert!(duration("-1s").is_err() && duration("100").is_err());
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("64kB"), Ok(64_000));
        assert_eq!(size("32 MiB"), Ok(32 << 20));
        assert!(size("many").is_err() && size("3 TB").is_err() && size("99999999999 GiB").is_err());
        assert_eq!(age("30d"), Ok(Duration::from_secs(30 * 86_400)));
        assert_eq!(age("1w 12h"), Ok(Duration::from_secs(180 * 3600)));
        assert!(age("-2h").is_err() && age("1 month").is_err() && age("7").is_err());
        let known = SystemTime::UNIX_EPOCH + Duration::from_millis(1500);
        assert_eq!(moment("1970-01-01T01:00:01.5+01:00"), Ok(known));
        let ago = moment("1h").expect("an hour ago");
        let hour = SystemTime::now().duration_since(ago);
        assert_eq!(hour.expect("it is past").as_secs() / 60, 60);
        assert!(moment("yesterday").is_err());
        assert_eq!(pair("a=b=c"), Ok(("a".into(), "b=c".into())));
        assert!(pair("=b").is_err() && pair("a").is_err());
    }
}
