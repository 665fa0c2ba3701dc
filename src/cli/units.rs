//! Durations, sizes and pairs as people write them.

use std::time::Duration;

/// A duration such as `100ms`, `30s` or `1m 30s`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let span: jiff::SignedDuration =
        text.parse().map_err(|_| "expected a duration such as `100ms` or `30s`".to_owned())?;
    Duration::try_from(span).map_err(|_| "a duration cannot be negative".to_owned())
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
        assert_eq!(pair("a=b=c"), Ok(("a".into(), "b=c".into())));
        assert!(pair("=b").is_err() && pair("a").is_err());
    }
}
