//! `date`, `time`, `timestamp`, `timestamptz`.

use std::fmt::Display;

use jiff::SignedDuration;
use jiff::civil::DateTime;
use jiff::tz::AmbiguousOffset;

use super::fault::{Fault, quoted, sqlstate};
use super::field;
use super::kind::{Cell, Kind};
use super::moment::{Civil, DAY, Moment, Wrong, moment, time_of_day};

/// The first day, 4713-11-24 BC, in days since 2000-01-01.
const FIRST_DAY: i64 = -2_451_545;
/// The day after the last that a `date` holds, 5874897-12-31.
const DATE_END: i64 = 2_147_483_494 - 2_451_545;
/// The microsecond after the last that a timestamp holds, 294276-12-31 23:59:59.999999.
const TIMESTAMP_END: i64 = 9_223_371_331_200_000_000;

/// Reads a text into the column.
pub(super) fn put_text(cell: Cell, text: &str, out: &mut Vec<u8>) -> Result<(), Fault> {
    let wrong = |wrong| wrong_text(wrong, cell.kind, text);
    match cell.kind {
        Kind::Time => {
            let time = time_of_day(text).map_err(wrong)?;
            field::eight(rounded(time, cell.typmod).to_be_bytes(), out);
        }
        Kind::Date => {
            let days = match moment(text).map_err(wrong)? {
                Moment::Before => i32::MIN,
                Moment::After => i32::MAX,
                Moment::At(civil) => date(civil, text)?,
            };
            field::four(days.to_be_bytes(), out);
        }
        _ => {
            let micros = match moment(text).map_err(wrong)? {
                Moment::Before => i64::MIN,
                Moment::After => i64::MAX,
                Moment::At(civil) => timestamp(cell, civil, text)?,
            };
            field::eight(micros.to_be_bytes(), out);
        }
    }
    Ok(())
}

/// Writes a number as it is written in decimal digits, without an exponent, under the column's unit.
pub(super) fn put_number(cell: Cell, text: &str, out: &mut Vec<u8>) -> Result<(), Fault> {
    let Some(unit) = cell.unit else { return Err(without_unit(cell.kind)) };
    let form = || {
        let reason = format!("{} is no plain decimal number", quoted(text));
        Fault::new(sqlstate::DATETIME_FORMAT, reason)
    };
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() || !whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit()) {
        return Err(form());
    }
    // More digits than any time in any unit has; the rest of a fraction does not round.
    if whole.len() > 30 {
        return Err(wrong_text(Wrong::Field, cell.kind, text));
    }
    let scale = 9 - unit.digits() as usize;
    let number = |digits: &str| digits.bytes().fold(0, |n, b| n * 10 + i128::from(b - b'0'));
    let fraction = &fraction[..fraction.len().min(scale)];
    let fraction = number(fraction) * 10_i128.pow((scale - fraction.len()) as u32);
    let nanos = number(whole).checked_mul(10_i128.pow(scale as u32));
    let nanos = nanos.and_then(|nanos| nanos.checked_add(fraction));
    put_nanos(cell, nanos.map(|nanos| if negative { -nanos } else { nanos }), text, out)
}

/// Writes an integer under the column's unit.
pub(super) fn put_integer(cell: Cell, value: i128, out: &mut Vec<u8>) -> Result<(), Fault> {
    let Some(unit) = cell.unit else { return Err(without_unit(cell.kind)) };
    let nanos = value.checked_mul(10_i128.pow(9 - unit.digits()));
    put_nanos(cell, nanos, value, out)
}

/// Writes the instant so many nanoseconds after 1970-01-01 UTC, to the nearest microsecond: a date
/// has its day, a time its time of day. `None` is more than can be counted.
fn put_nanos(
    cell: Cell,
    nanos: Option<i128>,
    number: impl Display,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    /// The microseconds from 1970-01-01 to 2000-01-01.
    const SHIFT: i128 = 10_957 * DAY as i128;
    let range = || wrong_text(Wrong::Field, cell.kind, &number.to_string());
    let micros = nanos.and_then(|nanos| nanos.checked_add(500)).ok_or_else(range)?;
    let micros = micros.div_euclid(1000) - SHIFT;
    match cell.kind {
        Kind::Time => {
            // An instant that no timestamp holds is none.
            let instant = i64::try_from(micros).ok().and_then(|micros| within(micros, -1));
            let time = instant.ok_or_else(range)?.rem_euclid(DAY);
            field::eight(rounded(time, cell.typmod).to_be_bytes(), out);
        }
        Kind::Date => {
            // A date reaches further than microseconds do.
            let days = micros.div_euclid(i128::from(DAY));
            let fits = (i128::from(FIRST_DAY)..i128::from(DATE_END)).contains(&days);
            let days = i32::try_from(days).ok().filter(|_| fits).ok_or_else(range)?;
            field::four(days.to_be_bytes(), out);
        }
        _ => {
            let micros = i64::try_from(micros).map_err(|_| range())?;
            let kept = within(micros, cell.typmod).ok_or_else(range)?;
            field::eight(kept.to_be_bytes(), out);
        }
    }
    Ok(())
}

/// A number, which does not say what it counts.
#[cold]
fn without_unit(kind: Kind) -> Fault {
    let reason = format!(
        "the unit of a number for {} is not declared; declare it, or send a text as RFC 3339 has it",
        kind.name()
    );
    Fault::new(sqlstate::DATETIME_FORMAT, reason)
}

fn date(civil: Civil, text: &str) -> Result<i32, Fault> {
    if civil.time.is_some() {
        let reason = format!("{} has a time, which a date would drop", quoted(text));
        return Err(Fault::new(sqlstate::DATETIME_FORMAT, reason));
    }
    if !(FIRST_DAY..DATE_END).contains(&civil.days) {
        return Err(wrong_text(Wrong::Field, Kind::Date, text));
    }
    Ok(civil.days as i32)
}

#[inline]
fn timestamp(cell: Cell, civil: Civil, text: &str) -> Result<i64, Fault> {
    let kind = cell.kind;
    let zone = match (kind, civil.zone) {
        (Kind::Timestamp, None) => 0,
        (Kind::Timestamptz, Some(zone)) => zone,
        (Kind::Timestamptz, None) if cell.zone.is_some() => offset(cell, civil),
        _ => return Err(wrong_zone(kind, text)),
    };
    let range = || wrong_text(Wrong::Field, kind, text);
    // An offset reaches into the days around; within them no sum overflows.
    if !(FIRST_DAY - 1..=TIMESTAMP_END / DAY).contains(&civil.days) {
        return Err(range());
    }
    let micros = civil.days * DAY + civil.time.unwrap_or(0) - zone * 1_000_000;
    within(micros, cell.typmod).ok_or_else(range)
}

/// The microseconds that are kept, if they are in the range of a timestamp.
#[inline]
fn within(micros: i64, typmod: i32) -> Option<i64> {
    let possible = FIRST_DAY * DAY..TIMESTAMP_END;
    let kept = rounded(micros, typmod);
    (possible.contains(&micros) && possible.contains(&kept)).then_some(kept)
}

/// How many seconds east of Greenwich the column's zone is at a local time. Of one that happened twice
/// the later counts, and one that never happened is counted from before the change: as the server does.
fn offset(cell: Cell, civil: Civil) -> i64 {
    let Some(zone) = cell.zone else { return 0 };
    // The calendar, and what is known of zones, repeats every 400 years; the library ends before the
    // server does.
    let mut days = civil.days;
    while days > LATE {
        days -= CENTURIES;
    }
    let time = civil.time.unwrap_or(0);
    let local = EPOCH
        .checked_add(SignedDuration::from_hours(days * 24))
        .and_then(|midnight| midnight.checked_add(SignedDuration::from_micros(time)));
    // All that is left is in the library's range.
    let Ok(local) = local else { return 0 };
    let offset = match zone.to_ambiguous_timestamp(local).offset() {
        AmbiguousOffset::Unambiguous { offset } => offset,
        AmbiguousOffset::Gap { before, .. } => before,
        AmbiguousOffset::Fold { after, .. } => after,
    };
    i64::from(offset.seconds())
}

/// Where days are counted from.
const EPOCH: DateTime = jiff::civil::datetime(2000, 1, 1, 0, 0, 0, 0);
/// The days of 400 years.
const CENTURIES: i64 = 146_097;
/// A day in the last centuries that the library knows.
const LATE: i64 = 7_900 * 366;

/// Rounds to the digits that `time(n)` or `timestamp(n)` keeps, half away from zero.
#[inline]
fn rounded(micros: i64, typmod: i32) -> i64 {
    if !(0..6).contains(&typmod) {
        return micros;
    }
    let unit = 10_i64.pow(6 - typmod as u32);
    let half = unit / 2;
    if micros >= 0 { (micros + half) / unit * unit } else { -((-micros + half) / unit * unit) }
}

#[cold]
fn wrong_zone(kind: Kind, text: &str) -> Fault {
    let reason = match kind {
        Kind::Timestamp => format!("{} has an offset, which timestamp would drop", quoted(text)),
        _ => format!(
            "{} has no offset (`Z` for UTC), and no time zone is declared for the column",
            quoted(text)
        ),
    };
    Fault::new(sqlstate::DATETIME_FORMAT, reason)
}

#[cold]
fn wrong_text(wrong: Wrong, kind: Kind, text: &str) -> Fault {
    let (state, what) = match wrong {
        Wrong::Form => (sqlstate::DATETIME_FORMAT, "is no"),
        Wrong::Field => (sqlstate::DATETIME_OVERFLOW, "is out of range for"),
        Wrong::Zone => (sqlstate::ZONE_DISPLACEMENT, "has no possible offset for"),
    };
    Fault::new(state, format!("{} {what} {}", quoted(text), kind.name()))
}
