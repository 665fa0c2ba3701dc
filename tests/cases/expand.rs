//! Messages written out: repeated ones copied, their marks replaced.
//!
//! In a copy, `<<i>>` is its number from 0, `<<i+K>>` that plus K, `<<K-i>>` K minus that, and
//! `<<"text"*N>>` the text N times.

use super::form::{Item, Message, Part};

/// All messages, in the order of production.
pub fn expand(items: &[Item]) -> Vec<Message> {
    let mut messages = Vec::new();
    write_out(items, None, &mut messages);
    messages
}

fn write_out(items: &[Item], copy: Option<u64>, messages: &mut Vec<Message>) {
    for item in items {
        match (item, copy) {
            (Item::Repeat(group), _) => {
                (0..group.repeat).for_each(|i| write_out(&group.messages, Some(i), messages));
            }
            (Item::One(message), None) => messages.push(message.clone()),
            (Item::One(message), Some(i)) => messages.push(filled(message, i)),
        }
    }
}

fn filled(message: &Message, i: u64) -> Message {
    let part = |part: &Option<Part>| part.as_ref().map(|part| part.filled(i));
    let headers = message.headers.iter();
    Message {
        key: part(&message.key),
        value: part(&message.value),
        headers: headers.map(|(name, value)| (fill(name, i), part(value))).collect(),
        txn: message.txn.as_ref().map(|txn| fill(txn, i)),
        ..*message
    }
}

impl Part {
    fn filled(&self, i: u64) -> Self {
        match self {
            Part::Utf8(text) => Part::Utf8(fill(text, i)),
            Part::Hex(digits) => Part::Hex(fill(digits, i)),
        }
    }

    /// The bytes that it stands for.
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Part::Utf8(text) => text.clone().into_bytes(),
            Part::Hex(digits) => unhex(digits),
        }
    }
}

/// The bytes of pairs of hexadecimal digits.
pub fn unhex(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2);
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    pairs.map(|digits| pair(digits).expect("pairs of hexadecimal digits")).collect()
}

/// The text of copy `i`.
fn fill(text: &str, i: u64) -> String {
    let text = replace(text, |mark| {
        let (text, times) = mark.strip_prefix('"')?.rsplit_once("\"*")?;
        Some(text.repeat(times.parse().ok()?))
    });
    replace(&text, |mark| {
        if let Some(from) = mark.strip_suffix("-i") {
            return Some((from.parse::<i64>().ok()? - i as i64).to_string());
        }
        let plus = mark.strip_prefix('i')?;
        let plus = if plus.is_empty() { 0 } else { plus.strip_prefix('+')?.parse::<u64>().ok()? };
        Some((i + plus).to_string())
    })
}

/// Replaces each `<<mark>>` that `known` knows.
fn replace(text: &str, known: impl Fn(&str) -> Option<String>) -> String {
    let mut done = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("<<") {
        let mark = &rest[at + 2..];
        let found = mark.find(">>").and_then(|end| Some((known(&mark[..end])?, end)));
        done.push_str(&rest[..at]);
        if let Some((text, end)) = found {
            done.push_str(&text);
            rest = &mark[end + 2..];
        } else {
            // Only one of the two: another mark may begin with the second.
            done.push('<');
            rest = &rest[at + 1..];
        }
    }
    done.push_str(rest);
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_replaced_and_the_rest_is_kept() {
        for (text, expected) in [
            ("<<i>>", "7"),
            ("a<<i+10>>b<<100-i>>c<<3-i>>", "a17b93c-4"),
            (r#"<<"["*3>>1<<"]"*3>>"#, "[[[1]]]"),
            (r#"{"a":"<<"é"*2>>","n":<<i>>}"#, r#"{"a":"éé","n":7}"#),
            ("<<<i>> <<j>> <<i+>> << i>> <<", "<7 <<j>> <<i+>> << i>> <<"),
        ] {
            assert_eq!(fill(text, 7), expected, "{text}");
        }
    }

    #[test]
    fn groups_are_copied_in_their_order() {
        let text = r#"[
            {"key": null, "value": {"utf8": "<<i>>"}, "headers": [], "partition": 1},
            {"repeat": 2, "messages": [
                {"key": {"utf8": "k<<i>>"}, "value": null, "headers": [["h", {"hex": "<<\"ff\"*2>>"}]],
                 "partition": 0, "timestamp_ms": 5, "txn": "t<<i>>"},
                {"repeat": 2, "messages": [
                    {"key": {"utf8": "<<i>>"}, "value": null, "headers": [], "partition": 0}]}]}]"#;
        let messages = expand(&serde_json::from_str::<Vec<Item>>(text).unwrap());
        let keys: Vec<_> = messages.iter().map(|m| m.key.as_ref().map(Part::bytes)).collect();
        let expected = [None, Some("k0"), Some("0"), Some("1"), Some("k1"), Some("0"), Some("1")];
        assert_eq!(keys, expected.map(|key| key.map(|key| key.as_bytes().to_vec())));
        // Outside of a group, a mark is data.
        assert_eq!(messages[0].value, Some(Part::Utf8("<<i>>".into())));
        assert_eq!(messages[4].headers[0].1.as_ref().map(Part::bytes), Some(vec![0xff, 0xff]));
        assert_eq!((messages[4].timestamp_ms, messages[4].txn.as_deref()), (Some(5), Some("t1")));
    }
}
