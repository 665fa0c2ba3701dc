//! `bytea`.

use super::fault::{Fault, quoted, sqlstate};
use super::field;

/// Reads the server's hex form, `\x00ff`, with spaces allowed between bytes.
pub(super) fn put_text(text: &str, out: &mut Vec<u8>) -> Result<(), Fault> {
    let wrong = || {
        let reason = format!("{} is no bytea in hex form, `\\x00ff`", quoted(text));
        Fault::new(sqlstate::TEXT_REPRESENTATION, reason)
    };
    let hex = text.strip_prefix("\\x").ok_or_else(wrong)?;
    field::with(out, |out| {
        let mut rest = hex.as_bytes();
        loop {
            match rest {
                [] => return Ok(()),
                [b' ' | b'\t' | b'\n' | b'\r', tail @ ..] => rest = tail,
                [high, low, tail @ ..] => {
                    out.push(pair(*high, *low).ok_or_else(wrong)?);
                    rest = tail;
                }
                [_] => return Err(wrong()),
            }
        }
    })
}

/// The byte that two hex digits make.
pub(super) fn pair(high: u8, low: u8) -> Option<u8> {
    let digit = |b: u8| char::from(b).to_digit(16);
    Some((digit(high)? << 4 | digit(low)?) as u8)
}
