//! `json` and `jsonb`: any serde value, as serde_json prints it.

use serde::Serialize;
use serde::de::IgnoredAny;

use super::fault::{Fault, sqlstate};
use super::kind::{Cell, Kind};
use super::value::Value;
use super::{exact, field, nested, raw};

/// The version byte in front of a `jsonb` text.
const JSONB_VERSION: u8 = 1;

/// Writes `value` as JSON; a null at its top is NULL.
pub(super) fn put<T: Serialize + ?Sized>(
    cell: Cell,
    value: &T,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    if let Some(done) = exact::find(value, Value { cell, out }) {
        return done;
    }
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    if cell.kind == Kind::Jsonb {
        out.push(JSONB_VERSION);
    }
    let text = out.len();
    nested::write(value, out)?;
    if &out[text..] == b"null" {
        out.truncate(start);
        return super::value::null(cell, out);
    }
    if cell.kind == Kind::Jsonb && out[text..].contains(&b'\\') {
        // It may hold values that were not printed here.
        raw::check_escapes(std::str::from_utf8(&out[text..]).expect("JSON prints as UTF-8"))?;
    }
    field::close(start, out)
}

/// Writes a JSON text as it is.
pub(super) fn put_raw(cell: Cell, text: &str, out: &mut Vec<u8>) -> Result<(), Fault> {
    if cell.kind == Kind::Jsonb {
        raw::check_escapes(text)?;
    }
    field::with(out, |out| {
        if cell.kind == Kind::Jsonb {
            out.push(JSONB_VERSION);
        }
        out.extend_from_slice(text.as_bytes());
        Ok(())
    })
}

/// Writes a text that should be JSON.
pub(super) fn put_text(cell: Cell, text: &str, out: &mut Vec<u8>) -> Result<(), Fault> {
    if text.as_bytes().contains(&0) {
        return Err(Fault::new(sqlstate::CHARACTER, "a text holds the character NUL"));
    }
    serde_json::from_str::<IgnoredAny>(text).map_err(|_| Fault::syntax(text, cell.kind.name()))?;
    put_raw(cell, text, out)
}
