//! `text`, `varchar(n)`, `char(n)`, `name`.

use super::fault::{Fault, quoted, sqlstate};
use super::field;
use super::kind::{Cell, Kind};

/// The longest `name` in bytes (`NAMEDATALEN` less its terminator).
const NAME: usize = 63;

/// Writes `text`, cut where all that is too long is spaces, as an assignment on the server does.
#[inline]
pub(super) fn put(cell: Cell, text: &str, out: &mut Vec<u8>) -> Result<(), Fault> {
    if text.as_bytes().contains(&0) {
        return Err(Fault::new(sqlstate::CHARACTER, "a text holds the character NUL"));
    }
    let text = if cell.kind == Kind::Text { text } else { fit(cell, text)? };
    field::slice(text.as_bytes(), out)
}

/// Writes the text that `write` appends, which has no NUL.
pub(super) fn put_with(
    cell: Cell,
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>),
) -> Result<(), Fault> {
    let start = out.len();
    field::with(out, |out| {
        write(out);
        Ok(())
    })?;
    if cell.kind != Kind::Text {
        let text = std::str::from_utf8(&out[start + 4..]).expect("scalars print as UTF-8");
        fit(cell, text)?;
    }
    Ok(())
}

/// The part of `text` that fits the column.
fn fit(cell: Cell, text: &str) -> Result<&str, Fault> {
    if cell.kind == Kind::Name {
        if text.len() > NAME {
            let reason = format!("{} is longer than the {NAME} bytes of a name", quoted(text));
            return Err(Fault::new(sqlstate::NAME_TOO_LONG, reason));
        }
        return Ok(text);
    }
    let Ok(limit) = usize::try_from(cell.typmod - 4) else { return Ok(text) };
    if text.len() <= limit {
        return Ok(text);
    }
    match text.char_indices().nth(limit) {
        None => Ok(text),
        Some((end, _)) if text.as_bytes()[end..].iter().all(|b| *b == b' ') => Ok(&text[..end]),
        Some(_) => {
            let reason = format!("{} is longer than {limit} characters", quoted(text));
            Err(Fault::new(sqlstate::TOO_LONG, reason))
        }
    }
}

/// Bytes as text.
pub(super) fn utf8(bytes: &[u8]) -> Result<&str, Fault> {
    std::str::from_utf8(bytes).map_err(|error| {
        let reason = format!("not UTF-8 at byte {}", error.valid_up_to());
        Fault::new(sqlstate::CHARACTER, reason)
    })
}

/// `text` without the spaces around it that the server's parsers skip.
pub(super) fn trim(text: &str) -> &str {
    text.trim_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r'])
}
