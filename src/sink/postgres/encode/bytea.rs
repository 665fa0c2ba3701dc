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

/// Reads what the server reads: its hex form, or else a text in which `\\` is a backslash and `\377` a
/// byte in octal.
pub(super) fn put_any_text(text: &str, out: &mut Vec<u8>) -> Result<(), Fault> {
    if text.starts_with("\\x") {
        return put_text(text, out);
    }
    field::with(out, |out| {
        let mut rest = text.as_bytes();
        loop {
            rest = match rest {
                [] => return Ok(()),
                [b'\\', b'\\', tail @ ..] => {
                    out.push(b'\\');
                    tail
                }
                [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..] => {
                    out.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                    tail
                }
                [b'\\', ..] => return Err(Fault::syntax(text, "bytea")),
                [byte, tail @ ..] => {
                    out.push(*byte);
                    tail
                }
            };
        }
    })
}

/// The byte that two hex digits make.
pub(super) fn pair(high: u8, low: u8) -> Option<u8> {
    let digit = |b: u8| char::from(b).to_digit(16);
    Some((digit(high)? << 4 | digit(low)?) as u8)
}
