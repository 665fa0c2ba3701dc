//! `smallint`, `integer`, `bigint`.

use super::fault::{Fault, quoted, sqlstate};
use super::field;
use super::kind::Kind;
use super::text::trim;

/// Writes `value` where it is in the type's range.
#[inline]
pub(super) fn put(kind: Kind, value: i64, out: &mut Vec<u8>) -> Result<(), Fault> {
    match kind {
        Kind::Int8 => field::eight(value.to_be_bytes(), out),
        Kind::Int4 => match i32::try_from(value) {
            Ok(value) => field::four(value.to_be_bytes(), out),
            Err(_) => return Err(Fault::range(value, kind.name())),
        },
        _ => match i16::try_from(value) {
            Ok(value) => field::two(value.to_be_bytes(), out),
            Err(_) => return Err(Fault::range(value, kind.name())),
        },
    }
    Ok(())
}

/// Writes a float that is a whole number.
pub(super) fn put_float(kind: Kind, value: f64, out: &mut Vec<u8>) -> Result<(), Fault> {
    const BEYOND: f64 = 9_223_372_036_854_775_808.0;
    if value.is_finite() && value.trunc() != value {
        let reason = format!("{} is no whole number", quoted(&value.to_string()));
        return Err(Fault::new(sqlstate::TEXT_REPRESENTATION, reason));
    }
    if !(-BEYOND..BEYOND).contains(&value) {
        return Err(Fault::range(value, kind.name()));
    }
    put(kind, value as i64, out)
}

/// Reads decimal digits with a sign and spaces around, as the server does.
pub(super) fn put_text(kind: Kind, text: &str, out: &mut Vec<u8>) -> Result<(), Fault> {
    let digits = trim(text);
    match digits.parse::<i64>() {
        Ok(value) => put(kind, value, out).map_err(|_| Fault::range(text, kind.name())),
        Err(error) => Err(match error.kind() {
            std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow => {
                Fault::range(text, kind.name())
            }
            // The server gives up at the digit that is too much, whatever follows.
            _ if begins_beyond(kind, digits) => Fault::range(text, kind.name()),
            _ => Fault::syntax(text, kind.name()),
        }),
    }
}

/// Whether the digits at the begin of `text` are out of range.
fn begins_beyond(kind: Kind, text: &str) -> bool {
    let sign = usize::from(text.starts_with(['-', '+']));
    let digits = text.as_bytes()[sign..].iter().take_while(|b| b.is_ascii_digit()).count();
    let (least, most) = match kind {
        Kind::Int8 => (i64::MIN, i64::MAX),
        Kind::Int4 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        _ => (i64::from(i16::MIN), i64::from(i16::MAX)),
    };
    digits > 0
        && text[..sign + digits]
            .parse::<i64>()
            .map_or(true, |value| !(least..=most).contains(&value))
}
