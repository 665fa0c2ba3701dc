//! `boolean`.

use super::fault::Fault;
use super::field;
use super::text::trim;

/// Reads what the server reads: any beginning of true, false, yes, no, and on, off, 1, 0.
pub(super) fn put_text(text: &str, out: &mut Vec<u8>) -> Result<(), Fault> {
    let word = trim(text);
    let begins = |whole: &str, least: usize| {
        word.len() >= least
            && word.len() <= whole.len()
            && word.as_bytes().eq_ignore_ascii_case(&whole.as_bytes()[..word.len()])
    };
    let value = if begins("true", 1) || begins("yes", 1) || begins("on", 2) || word == "1" {
        true
    } else if begins("false", 1) || begins("no", 1) || begins("off", 2) || word == "0" {
        false
    } else {
        return Err(Fault::syntax(text, "boolean"));
    };
    field::one(u8::from(value), out);
    Ok(())
}
