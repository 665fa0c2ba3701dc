//! A file of settings of the Kafka client: `name=value` a line, as Kafka's own tools and kcat read them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::error::{Error, Result};

/// Reads the file at `path`. What is wrong is told by its line's number: the line may hold a secret.
pub(super) fn read(path: &Path) -> Result<BTreeMap<String, String>> {
    let text = fs::read_to_string(path).map_err(|error| {
        Error::config(format!("the Kafka settings in `{}` cannot be read: {error}", path.display()))
    })?;
    parse(&text).map_err(|line| {
        Error::config(format!(
            "line {line} of the Kafka settings in `{}` is no `name=value`; correct it",
            path.display()
        ))
    })
}

/// The settings, or the number of the first line that is none. Blank lines and those that begin with `#`
/// are passed over; blanks around name and value do not count, and a value may hold any `=`.
fn parse(text: &str) -> Result<BTreeMap<String, String>, usize> {
    let lines = (1..).zip(text.lines()).map(|(number, line)| (number, line.trim()));
    lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(number, line)| {
            let (name, value) = line.split_once('=').ok_or(number)?;
            let (name, value) = (name.trim(), value.trim());
            if name.is_empty() { Err(number) } else { Ok((name.to_owned(), value.to_owned())) }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_line_by_line() {
        let text = "# login\n\nsasl.username = alice\n  sasl.password=a=b#c \r\nssl.ca.location=\n";
        let expected =
            [("sasl.password", "a=b#c"), ("sasl.username", "alice"), ("ssl.ca.location", "")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(parse(text), Ok(expected.into()));
        assert_eq!(parse("a=1\n\nhunter2"), Err(3));
        assert_eq!(parse("=1"), Err(1));
    }
}
