//! JSON as it was written: what a value is, the text of a string, the parts of an array or object.
//!
//! The text is taken to be one JSON value. Where it is not, what is found is some text or other, which
//! is then judged like any.

use std::borrow::Cow;

use super::fault::{Fault, sqlstate};

/// What a JSON value is, by its first character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Raw<'a> {
    Null,
    /// `true` or `false`.
    Bool(&'a str),
    /// As it was written.
    Number(&'a str),
    /// What stands between the quotes.
    String(&'a str),
    /// As it was written.
    Array(&'a str),
    /// As it was written.
    Object(&'a str),
}

impl<'a> Raw<'a> {
    /// What `text` is.
    #[inline]
    pub fn of(text: &'a str) -> Raw<'a> {
        let text = text.trim_matches([' ', '\t', '\n', '\r']);
        match text.as_bytes() {
            [b'"', .., b'"'] => Raw::String(&text[1..text.len() - 1]),
            [b'{', ..] => Raw::Object(text),
            [b'[', ..] => Raw::Array(text),
            b"null" => Raw::Null,
            b"true" | b"false" => Raw::Bool(text),
            _ => Raw::Number(text),
        }
    }
}

/// The text of a JSON string, of which `inner` stands between the quotes.
#[inline]
pub(super) fn unescape(inner: &str) -> Result<Cow<'_, str>, Fault> {
    match inner.find('\\') {
        None => Ok(Cow::Borrowed(inner)),
        Some(first) => escapes(inner, first).map(Cow::Owned),
    }
}

fn escapes(inner: &str, first: usize) -> Result<String, Fault> {
    let mut text = String::with_capacity(inner.len());
    let mut rest = inner;
    let mut next = Some(first);
    while let Some(at) = next {
        text.push_str(&rest[..at]);
        let escape = &rest[at + 1..];
        let (character, len) = match escape.as_bytes().first() {
            Some(b'b') => ('\u{8}', 1),
            Some(b'f') => ('\u{c}', 1),
            Some(b'n') => ('\n', 1),
            Some(b'r') => ('\r', 1),
            Some(b't') => ('\t', 1),
            Some(b'u') => unicode(escape).map_err(|wrong| wrong.fault(sqlstate::CHARACTER))?,
            _ => escape.chars().next().map_or(('\\', 0), |c| (c, c.len_utf8())),
        };
        text.push(character);
        rest = &escape[len..];
        next = rest.find('\\');
    }
    text.push_str(rest);
    Ok(text)
}

/// What is wrong with an escape.
enum Wrong {
    /// No four hex digits follow.
    Digits,
    /// Half of a surrogate pair.
    Half,
}

impl Wrong {
    #[cold]
    fn fault(self, half: &str) -> Fault {
        match self {
            Wrong::Digits => {
                Fault::new(sqlstate::TEXT_REPRESENTATION, "`\\u` without four hex digits")
            }
            Wrong::Half => Fault::new(half, "a text holds half of a surrogate pair"),
        }
    }
}

/// The character of an escape that begins with `u`, and how long it is.
fn unicode(escape: &str) -> Result<(char, usize), Wrong> {
    let first = hex(escape.as_bytes().get(1..5))?;
    if let Some(character) = char::from_u32(first) {
        return Ok((character, 5));
    }
    if first < 0xdc00 && escape.as_bytes().get(5..7) == Some(br"\u") {
        let second = hex(escape.as_bytes().get(7..11))?;
        if (0xdc00..0xe000).contains(&second) {
            let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
            return char::from_u32(code).map(|character| (character, 11)).ok_or(Wrong::Half);
        }
    }
    Err(Wrong::Half)
}

fn hex(digits: Option<&[u8]>) -> Result<u32, Wrong> {
    digits.ok_or(Wrong::Digits)?.iter().try_fold(0, |value, digit| {
        let digit = char::from(*digit).to_digit(16).ok_or(Wrong::Digits)?;
        Ok(value << 4 | digit)
    })
}

/// Whether `jsonb` takes the escapes of a JSON text: it refuses NUL and half surrogate pairs, which
/// `json` keeps.
pub(super) fn check_escapes(text: &str) -> Result<(), Fault> {
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let escape = &rest[at + 1..];
        let len = if escape.starts_with('u') {
            let (character, len) =
                unicode(escape).map_err(|wrong| wrong.fault(sqlstate::TEXT_REPRESENTATION))?;
            if character == '\0' {
                return Err(Fault::new(sqlstate::UNTRANSLATABLE, "a text holds the character NUL"));
            }
            len
        } else {
            escape.chars().next().map_or(0, char::len_utf8)
        };
        rest = &escape[len..];
    }
    Ok(())
}

/// The elements of a JSON array, or the names and values of an object, in turn; each as it was written.
pub(super) struct Parts<'a>(&'a str);

/// The parts of `text`, an array or object with its brackets.
pub(super) fn parts(text: &str) -> Parts<'_> {
    Parts(text.get(1..).unwrap_or_default())
}

impl<'a> Iterator for Parts<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let text = self.0.trim_start_matches([' ', '\t', '\n', '\r']);
        let (mut depth, mut at) = (0_usize, 0);
        let bytes = text.as_bytes();
        while let Some(byte) = bytes.get(at) {
            match byte {
                b'"' => {
                    at += 1;
                    while let Some(byte) = bytes.get(at).filter(|byte| **byte != b'"') {
                        at += if *byte == b'\\' { 2 } else { 1 };
                    }
                }
                b'[' | b'{' => depth += 1,
                b']' | b'}' if depth == 0 => {
                    let last = text[..at].trim_end_matches([' ', '\t', '\n', '\r']);
                    self.0 = "";
                    return (!last.is_empty()).then_some(last);
                }
                b']' | b'}' => depth -= 1,
                b',' | b':' if depth == 0 => {
                    self.0 = &text[at + 1..];
                    return Some(text[..at].trim_end_matches([' ', '\t', '\n', '\r']));
                }
                _ => {}
            }
            at += 1;
        }
        self.0 = "";
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_as_they_were_written() {
        let array = r#" [1.50, "a,]\"" ,[2,{"b": [3]}] , {}, null ] "#;
        let Raw::Array(text) = Raw::of(array) else { panic!("an array") };
        let found: Vec<_> = parts(text).collect();
        assert_eq!(found, ["1.50", r#""a,]\"""#, r#"[2,{"b": [3]}]"#, "{}", "null"]);
        assert_eq!(
            parts("{\"a\" : 1,\"b\":[ ]}").collect::<Vec<_>>(),
            ["\"a\"", "1", "\"b\"", "[ ]"]
        );
        assert_eq!(parts("[ ]").count(), 0);
    }

    #[test]
    fn escapes_are_resolved() {
        let text = r#"\"\\\/\b\f\n\r\t\u00e4\ud83d\ude80ä"#;
        assert_eq!(unescape(text).unwrap(), "\"\\/\u{8}\u{c}\n\r\tä🚀ä");
        for half in [r"\ud83d", r"\ude80 x", r"\ude80\ud83d", r"\ud83d\ud83d\ude80", r"\ud83dx"] {
            let fault = unescape(half).unwrap_err();
            assert_eq!(fault.0.sqlstate.as_deref(), Some("22021"), "{half}");
            let fault = check_escapes(half).unwrap_err();
            assert_eq!(fault.0.sqlstate.as_deref(), Some("22P02"), "{half}");
        }
        assert_eq!(
            check_escapes(r"\\u0000\u0000").unwrap_err().0.sqlstate.as_deref(),
            Some("22P05")
        );
        check_escapes(r"\\u0000 \ud83d\ude80 \u0001").unwrap();
    }

    #[test]
    fn any_text_is_taken_apart_without_a_panic() {
        for text in ["", "\"", "[", "[\"", "[\"\\", "{]", "\\u", "\\ud83d\\u", "\\", "[1,", "é"] {
            let _ = (Raw::of(text), unescape(text), check_escapes(text), parts(text).count());
        }
    }
}
