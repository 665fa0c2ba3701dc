//! `date`, `time`, `timestamp`, `timestamptz`.

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

/// A number, which does not say what it counts.
#[cold]
pub(super) fn number(kind: Kind) -> Fault {
    let reason = format!(
        "the unit of a number for {} is not known; make it a text as RFC 3339 has it",
        kind.name()
    );
    Fault::new(sqlstate::MISMATCH, reason)
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
        _ => return Err(wrong_zone(kind, text)),
    };
    let range = || wrong_text(Wrong::Field, kind, text);
    // An offset reaches into the days around; within them no sum overflows.
    if !(FIRST_DAY - 1..=TIMESTAMP_END / DAY).contains(&civil.days) {
        return Err(range());
    }
    let micros = civil.days * DAY + civil.time.unwrap_or(0) - zone * 1_000_000;
    let possible = FIRST_DAY * DAY..TIMESTAMP_END;
    let kept = rounded(micros, cell.typmod);
    if !possible.contains(&micros) || !possible.contains(&kept) {
        return Err(range());
    }
    Ok(kept)
}

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
        _ => format!("{} has no offset, and timestamptz needs one (`Z` for UTC)", quoted(text)),
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
