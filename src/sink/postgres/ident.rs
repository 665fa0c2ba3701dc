//! Names and values as they stand in SQL: the one place where they are quoted.

use std::fmt;

use crate::error::{Error, Result};

/// `name` as a quoted identifier.
///
/// A NUL cannot stand in any; [`TableName::parse`] and the settings refuse it.
pub(crate) fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// `names` quoted, with commas between.
pub(super) fn quote_all<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().map(quote).collect::<Vec<_>>().join(", ")
}

/// `text` as a string literal, for statements that cannot bind values; sessions have
/// `standard_conforming_strings` on.
pub(super) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// The exact name of a table, with or without its schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TableName {
    /// The schema; where there is none, the server's `search_path` decides.
    pub schema: Option<String>,
    /// The table.
    pub name: String,
}

impl fmt::Display for TableName {
    /// As people write it, unquoted.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.schema {
            Some(schema) => write!(f, "{schema}.{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

impl TableName {
    /// Parses `table` or `schema.table`. Parts may stand in double quotes, within which a dot is a
    /// dot and `""` a quote. Case is kept either way: `Orders` is the table `"Orders"`.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |why: &str| Err(Error::config(format!("table name `{text}`: {why}")));
        if text.contains('\0') {
            return wrong("a name holds no NUL");
        }
        let mut parts = Vec::new();
        let mut rest = text.trim();
        loop {
            let part;
            if let Some(quoted) = rest.strip_prefix('"') {
                let Some((name, after)) = unquote(quoted) else {
                    return wrong("a quote is not closed");
                };
                part = name;
                rest = after;
            } else {
                let end = rest.find(['.', '"']).unwrap_or(rest.len());
                part = rest[..end].to_owned();
                rest = &rest[end..];
            }
            if part.is_empty() {
                return wrong("a part of it is empty");
            }
            parts.push(part);
            match rest.strip_prefix('.') {
                Some(after) => rest = after,
                None if rest.is_empty() => break,
                None => return wrong("a quote stands in the middle of a part"),
            }
        }
        let name = parts.pop().expect("at least one part was parsed");
        let schema = parts.pop();
        if !parts.is_empty() {
            return wrong(
                "expected `table` or `schema.table`; put a name with dots in double quotes",
            );
        }
        Ok(TableName { schema, name })
    }
}

/// The name up to the closing quote, and what stands after it.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut rest = text;
    loop {
        let end = rest.find('"')?;
        name.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('"') {
            Some(after) => {
                name.push('"');
                rest = after;
            }
            None => return Some((name, rest)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (Option<String>, String) {
        let TableName { schema, name } = TableName::parse(text).expect(text);
        (schema, name)
    }

    #[test]
    fn a_dot_splits_only_outside_of_quotes() {
        assert_eq!(parsed("orders"), (None, "orders".into()));
        assert_eq!(parsed("Sales-EU.Order"), (Some("Sales-EU".into()), "Order".into()));
        assert_eq!(parsed(r#""Sales-EU"."Order""#), (Some("Sales-EU".into()), "Order".into()));
        assert_eq!(parsed(r#""a.b""#), (None, "a.b".into()));
        assert_eq!(parsed(r#"x."a""b""#), (Some("x".into()), r#"a"b"#.into()));
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for text in ["", ".", "a.", ".a", "a.b.c", "\"a", "a\"b\"", "\"a\"b", "\"\"", "a\0"] {
            assert!(TableName::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn quotes_are_doubled() {
        assert_eq!(quote(r#"a"b"#), r#""a""b""#);
        assert_eq!(literal("o'clock"), "'o''clock'");
    }
}
