//! Any topic into any table, as parameters say: no Rust to write. `docs/copy.md` describes them.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use tidegate::codec::{Columns, Take, Tombstones};
use tidegate::record::Policy;
use tidegate::sink::Postgres;
use tidegate::source::kafka::Kafka;
use tidegate::{Engine, Error, Result};

/// Topic `topic` into table `table`: upserts and deletes by the columns `key`, appends without them.
pub fn copy(engine: Engine<'_>) -> Result<()> {
    let (codec, sink) = (codec(&engine)?, sink(&engine)?);
    let keyed = !key(&engine)?.is_empty();
    let sink = match codec.names() {
        Some(names) => sink.fields(names),
        None => sink,
    };
    let sink = match keyed {
        true => {
            let (field, text) = codec.marker();
            sink.delete_when(field, text)
        }
        false => sink,
    };
    let rows = engine.dataframe(source(&engine, codec)?);

    rows.filter(|row| !row.is_tombstone()).sink(sink);
    Ok(())
}

fn source(engine: &Engine<'_>, codec: Columns) -> Result<Kafka<Columns>> {
    let mut source = Kafka::topic(engine.param("topic")?, codec);
    let policies = [("reject", Policy::Reject), ("stop", Policy::Stop), ("skip", Policy::Skip)];
    if let Some(policy) = choice(engine, "policy", policies)? {
        source = source.policy(policy);
    }
    if let Some(count) = parsed(engine, "max_rejects")? {
        source = source.max_rejects(count);
    }
    Ok(source)
}

fn codec(engine: &Engine<'_>) -> Result<Columns> {
    let columns = columns(engine)?;
    let key = key(engine)?;
    let mapped = !columns.is_empty();
    if let Some(column) = key.iter().find(|name| mapped && !columns.contains_key(*name)) {
        return Err(Error::config(format!(
            "parameter `key` names column `{column}`, which takes nothing of the record; say what with \
             `column.{column}`"
        )));
    }
    let keyed = !key.is_empty();
    let mut codec = Columns::new(columns).key(key.clone());

    if let Some(text) = engine.param_if("delete_when") {
        let Some((field, text)) = text.split_once('=') else {
            return Err(wrong("delete_when", &text, "a JSON field and its text, `field=text`"));
        };
        if !keyed {
            return Err(Error::config("parameter `delete_when` needs a `key` to delete by"));
        }
        if !mapped && key.iter().any(|column| column == field) {
            return Err(Error::config(format!(
                "parameter `delete_when` names `{field}`, a column of the key: a row's key cannot say \
                 that it is deleted"
            )));
        }
        codec = codec.delete_when(field, text);
    }
    let tombstones =
        [("key", Tombstones::Key), ("filter", Tombstones::Filter), ("reject", Tombstones::Reject)];
    let tombstones = match choice(engine, "tombstones", tombstones)? {
        Some(Tombstones::Key) if !keyed => {
            return Err(Error::config("parameter `tombstones` is `key`, and there is no `key`"));
        }
        Some(tombstones) => tombstones,
        None if keyed => Tombstones::Key,
        None => Tombstones::Filter,
    };
    codec = codec.tombstones(tombstones);
    if refuses_extra(engine)? {
        codec = codec.refuse_extra();
    }
    Ok(codec)
}

fn sink(engine: &Engine<'_>) -> Result<Postgres> {
    let table = match engine.param_if("schema") {
        None => engine.param("table")?,
        Some(schema) => format!("{}.{}", exact(&schema), exact(&engine.param("table")?)),
    };
    let mut sink = Postgres::table(table);
    let key = key(engine)?;
    if !key.is_empty() {
        sink = sink.key(key);
    }
    if let Some(name) = engine.param_if("name") {
        sink = sink.name(name);
    }
    let columns = columns(engine)?;
    let known = |family: &str| {
        let given = engine.params(family);
        match given.keys().find(|name| !columns.is_empty() && !columns.contains_key(*name)) {
            None => Ok(given),
            Some(name) => Err(Error::config(format!(
                "parameter `{family}.{name}` is for a column that takes nothing of the record; say what \
                 with `column.{name}`"
            ))),
        }
    };
    if let Some(unit) = parsed(engine, "unit")? {
        sink = sink.default_unit(unit);
    }
    for (column, unit) in known("unit")? {
        let unit =
            unit.parse().map_err(|error: Error| error.at(format!("parameter `unit.{column}`")))?;
        sink = sink.unit(column, unit);
    }
    if let Some(zone) = engine.param_if("zone") {
        sink = sink.default_zone(zone);
    }
    for (column, zone) in known("zone")? {
        sink = sink.zone(column, zone);
    }
    // Where columns are given they are all there is.
    if columns.is_empty() && !refuses_extra(engine)? {
        sink = sink.ignore_extra_fields();
    }
    Ok(sink)
}

/// The columns that are given, with what each takes.
fn columns(engine: &Engine<'_>) -> Result<BTreeMap<String, Take>> {
    let given = engine.params("column").into_iter().map(|(name, take)| {
        let take = take.parse().map_err(|why| {
            Error::config(format!("parameter `column.{name}` is `{take}`: {why}"))
        })?;
        Ok((name, take))
    });
    given.collect()
}

/// The columns of the key; none for an append.
fn key(engine: &Engine<'_>) -> Result<Vec<String>> {
    let Some(text) = engine.param_if("key") else { return Ok(Vec::new()) };
    let names: Vec<String> = if text.trim_start().starts_with('[') {
        serde_json::from_str(&text).map_err(|_| wrong("key", &text, "a JSON array of names"))?
    } else {
        text.split(',').map(|name| name.trim().to_owned()).collect()
    };
    if names.is_empty() || names.iter().any(String::is_empty) {
        return Err(wrong("key", &text, "the names of columns, separated by commas"));
    }
    Ok(names)
}

fn refuses_extra(engine: &Engine<'_>) -> Result<bool> {
    Ok(choice(engine, "extra", [("ignore", false), ("reject", true)])?.unwrap_or(false))
}

/// An exact name as `Postgres::table` takes it.
fn exact(name: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_$-".contains(c);
    if !name.is_empty() && name.chars().all(plain) {
        return name.to_owned();
    }
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The parameter `name`, which is one of these words.
fn choice<T, const N: usize>(
    engine: &Engine<'_>,
    name: &str,
    words: [(&str, T); N],
) -> Result<Option<T>> {
    let Some(text) = engine.param_if(name) else { return Ok(None) };
    let known = words.each_ref().map(|(word, _)| format!("`{word}`")).join(" or ");
    let found = words.into_iter().find(|(word, _)| *word == text);
    found.map(|(_, value)| Some(value)).ok_or_else(|| wrong(name, &text, &known))
}

fn parsed<T: FromStr<Err: Display>>(engine: &Engine<'_>, name: &str) -> Result<Option<T>> {
    let Some(text) = engine.param_if(name) else { return Ok(None) };
    let value = text
        .parse()
        .map_err(|error| Error::config(format!("parameter `{name}` is `{text}`: {error}")))?;
    Ok(Some(value))
}

fn wrong(name: &str, text: &str, expected: &str) -> Error {
    Error::config(format!("parameter `{name}` is `{text}`; expected {expected}"))
}
