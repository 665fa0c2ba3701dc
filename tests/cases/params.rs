//! A case in the words of the dataflow `copy`: its file of parameters.

use std::fmt::Write;

use super::form::{Case, Column, Mode};

/// The file's text; the tables of the case are in `schema`.
pub fn params(case: &Case, topic: &str, schema: &str) -> String {
    let mut file = String::new();
    let mut say = |line: String| writeln!(file, "{line}").expect("a string takes all");
    say(format!("topic = {}", quote(topic)));
    say(format!("schema = {}", quote(schema)));
    say(format!("table = {}", quote(&case.table)));
    if let Mode::Key(names) = &case.mode {
        let names: Vec<_> = names.iter().map(|name| quote(name)).collect();
        say(format!("key = [{}]", names.join(", ")));
    }
    if let Some(rule) = &case.delete_when {
        say(format!("delete_when = {}", quote(&format!("{}={}", rule.json_field, rule.equals))));
    }
    let mut table = |name: &str, value: &dyn Fn(&Column) -> Option<String>| {
        say(format!("\n[{name}]"));
        for column in &case.columns {
            if let Some(value) = value(column) {
                say(format!("{} = {}", quote(&column.name), quote(&value)));
            }
        }
    };
    table("column", &|column| Some(origin(column)));
    table("unit", &|column| column.unit.clone());
    table("zone", &|column| column.zone.clone());
    file
}

/// Where the value of a column comes from.
fn origin(column: &Column) -> String {
    match (&column.source, &column.json_field) {
        (Some(source), None) => source.clone(),
        (None, Some(field)) => format!("field:{field}"),
        both => panic!("column {} comes from {both:?}", column.name),
    }
}

/// A text in TOML, whose escapes are JSON's.
fn quote(text: &str) -> String {
    serde_json::to_string(text).expect("a text is JSON")
}
