//! `uuid`.

use super::bytea::pair;
use super::fault::Fault;
use super::field;

/// Reads what the server reads: 32 hex digits, a hyphen allowed after each four, braces around.
pub(super) fn put_text(text: &str, out: &mut Vec<u8>) -> Result<(), Fault> {
    let value = parse(text.as_bytes()).ok_or_else(|| Fault::syntax(text, "uuid"))?;
    field::slice(&value, out)
}

/// Writes sixteen bytes.
pub(super) fn put_bytes(value: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
    if value.len() != 16 {
        return Err(Fault::syntax(&format!("{} bytes", value.len()), "uuid"));
    }
    field::slice(value, out)
}

fn parse(text: &[u8]) -> Option<[u8; 16]> {
    let mut rest = match text {
        [b'{', inner @ .., b'}'] => inner,
        other => other,
    };
    let mut value = [0; 16];
    for (index, byte) in value.iter_mut().enumerate() {
        let [high, low, tail @ ..] = rest else { return None };
        *byte = pair(*high, *low)?;
        rest = match tail {
            [b'-', tail @ ..] if index % 2 == 1 && index < 15 => tail,
            tail => tail,
        };
    }
    rest.is_empty().then_some(value)
}
