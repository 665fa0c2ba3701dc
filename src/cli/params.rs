//! Parameters from a file.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value as Json;
use toml::{Table, Value};

use crate::error::{Error, Result};

/// The parameters in the TOML file at `path`: a table's entries have its name and a dot before theirs,
/// an array is JSON, anything else the text of it.
pub(super) fn read(path: &Path) -> Result<BTreeMap<String, String>> {
    let wrong = |why: String| Error::config(format!("parameters `{}`: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    parse(&text).map_err(wrong)
}

fn parse(text: &str) -> Result<BTreeMap<String, String>, String> {
    let table: Table = text.parse().map_err(|error: toml::de::Error| {
        let line = error.span().map(|span| text[..span.start].matches('\n').count() + 1);
        let line = line.map_or_else(String::new, |line| format!("line {line}: "));
        // The message of one error may have several lines.
        format!("{line}{}", error.message().replace('\n', ", "))
    })?;
    let mut params = BTreeMap::new();
    put(&mut params, "", table)?;
    Ok(params)
}

fn put(params: &mut BTreeMap<String, String>, prefix: &str, table: Table) -> Result<(), String> {
    for (name, value) in table {
        let name = format!("{prefix}{name}");
        let text = match value {
            Value::Table(table) => {
                put(params, &format!("{name}."), table)?;
                continue;
            }
            Value::String(text) => text,
            Value::Integer(number) => number.to_string(),
            Value::Float(number) => number.to_string(),
            Value::Boolean(yes) => yes.to_string(),
            Value::Datetime(moment) => moment.to_string(),
            Value::Array(_) => json(&name, value)?.to_string(),
        };
        if params.insert(name.clone(), text).is_some() {
            return Err(format!("`{name}` is set twice, by a dot and by a table"));
        }
    }
    Ok(())
}

fn json(name: &str, value: Value) -> Result<Json, String> {
    Ok(match value {
        Value::String(text) => text.into(),
        Value::Integer(number) => number.into(),
        Value::Float(number) if number.is_finite() => number.into(),
        Value::Float(number) => {
            return Err(format!("`{name}` holds {number}, which JSON has no word for"));
        }
        Value::Boolean(yes) => yes.into(),
        Value::Datetime(moment) => moment.to_string().into(),
        Value::Array(items) => {
            items.into_iter().map(|item| json(name, item)).collect::<Result<Vec<_>, _>>()?.into()
        }
        Value::Table(table) => {
            let fields = table.into_iter();
            let fields = fields.map(|(field, value)| Ok((field, json(name, value)?)));
            Json::Object(fields.collect::<Result<_, String>>()?)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_become_dotted_names_and_arrays_json() {
        let text = r#"
            topic = "orders"
            max_rejects = 1_000
            rate = 0.5
            yes = true
            key = ["a,b", "c\"d"]
            column.id = "order_id"
            day = 2026-01-31

            [column]
            "Random Text" = "a.b"
            "x.y" = "z"
            nested.deep = 1
            [unit]
            at = 'ms'
            [[list]]
            a = 1
        "#;
        // What a table was begun by, a header cannot go on with.
        assert!(parse(text).is_err());
        let params = parse(&text.replace("column.id = \"order_id\"", "")).expect("parameters");
        let expected = [
            ("topic", "orders"),
            ("max_rejects", "1000"),
            ("rate", "0.5"),
            ("yes", "true"),
            ("key", r#"["a,b","c\"d"]"#),
            ("day", "2026-01-31"),
            ("column.Random Text", "a.b"),
            ("column.x.y", "z"),
            ("column.nested.deep", "1"),
            ("unit.at", "ms"),
            ("list", r#"[{"a":1}]"#),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(params, BTreeMap::from(expected));
    }

    #[test]
    fn what_is_wrong_is_one_sentence_with_its_line() {
        let error = parse("topic = \"a\"\ntable = b\n").expect_err("no quotes");
        assert!(error.starts_with("line 2: ") && !error.contains('\n'), "{error}");
        assert!(parse("a.b = 1\n\"a.b\" = 2").expect_err("twice").contains("`a.b` is set twice"));
        assert!(parse("a = [nan]").is_err());
    }
}
