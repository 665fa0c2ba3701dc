//! One random table, its twin, and their rows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use postgres::Client;
use tidegate::sink::postgres::Unit;
use tidegate::sink::{Pace, Postgres};
use tidegate::source::{Memory, Script, Step};
use tidegate::{Options, Pipeline};

use super::column::{Cat, TYPES, Type, types_sql};
use super::expect::{Expect, Of, expect, literal};
use super::judge::{Ours, Tally, Theirs};
use super::make;
use super::value::{Row, Val};
use crate::random::Random;

/// A column of the table.
struct Column {
    name: String,
    kind: &'static Type,
    not_null: bool,
}

/// Makes the schema, its types, and the function that tries a statement.
pub fn prepare(client: &mut Client, schema: &str) {
    client
        .batch_execute(&format!(
            "create extension if not exists citext;
             create schema {schema};
             set search_path = {schema}, public;
             set DateStyle = 'ISO, MDY';
             set IntervalStyle = 'postgres';
             set extra_float_digits = 3;
             set standard_conforming_strings = on;
             {}
             create function try(statement text) returns text language plpgsql as $$
             begin
               execute statement;
               return null;
             exception when others then
               return sqlstate;
             end $$;",
            types_sql()
        ))
        .expect("the schema is new");
}

/// The value of a column that is not the row's point: one that is taken.
fn plain(random: &mut Random, column: &Column) -> Option<Val> {
    match random.below(4) {
        0 if !column.not_null => Some(Val::Null),
        1 if !column.not_null => None,
        // The second text for a time without an offset has none.
        _ if column.kind.cat == Cat::Timestamp => Some(Val::Str(column.kind.texts[1].to_owned())),
        _ => Some(Val::Str(column.kind.texts[0].to_owned())),
    }
}

/// Fills a table of its own through the sink and its twin by the server; what is wrong, by kind, with
/// an example each.
pub fn round(
    client: &mut Client,
    schema: &str,
    seed: u64,
    rows: usize,
    tally: &mut Tally,
) -> Vec<(String, String)> {
    let random = &mut Random(seed);
    let units = [
        ("s", Unit::Seconds, 0),
        ("ms", Unit::Milliseconds, 3),
        ("us", Unit::Microseconds, 6),
        ("ns", Unit::Nanoseconds, 9),
    ];
    let unit = if random.once_in(2) { Some(random.of(&units)) } else { None };
    let zone = random.once_in(3);
    // Sessions of the sink read what the server reads by UTC; with a zone the twin cannot.
    let by_session = |kind: &&Type| kind.cat != Cat::Array && kind.cat != Cat::Cast;
    let types: Vec<&'static Type> = TYPES.iter().filter(|kind| !zone || by_session(kind)).collect();
    let columns: Vec<Column> = (0..=random.below(6))
        .map(|index| Column {
            name: format!("c{index}"),
            kind: types[random.below(types.len())],
            not_null: random.once_in(3),
        })
        .map(|column| Column { not_null: column.not_null || column.kind.sql == "needed", ..column })
        .collect();
    let defined: Vec<String> = columns
        .iter()
        .map(|column| {
            let null = if column.not_null { "not null" } else { "" };
            format!("{} {} {null}", column.name, column.kind.sql)
        })
        .collect();
    let defined = defined.join(", ");
    client
        .batch_execute(&format!(
            "set TimeZone = '{}';
             drop table if exists ours, twin;
             create table ours (n bigint primary key, {defined});
             create table twin (n bigint primary key, {defined});",
            if zone { "Europe/Oslo" } else { "UTC" }
        ))
        .expect("the tables are new");

    let mut script = Vec::new();
    let mut wanted = Vec::new();
    let (mut numbers, mut statements) = (Vec::new(), Vec::new());
    for n in 0..rows {
        let probe = random.below(columns.len());
        let mut row = vec![("n".to_owned(), Val::Int(n as i64))];
        let (mut names, mut values) = (vec!["n".to_owned()], vec![n.to_string()]);
        let mut expected = None;
        for (index, column) in columns.iter().enumerate() {
            let value = if index == probe {
                Some(make::value(random, column.kind, TYPES))
            } else {
                plain(random, column)
            };
            let Some(value) = value else { continue };
            let of = Of { cat: column.kind.cat, unit: unit.map(|unit| unit.2), zone };
            let expectation = expect(of, &value);
            names.push(column.name.clone());
            if let Expect::Sql(sql) | Expect::Or(sql, ..) | Expect::Near(sql, _) = &expectation {
                values.push(sql.clone());
            }
            if index == probe {
                expected = Some((expectation, value.clone(), column.kind.sql));
            }
            row.push((column.name.clone(), value));
        }
        if values.len() == names.len() {
            numbers.push(n as i64);
            statements.push(format!(
                "insert into twin ({}) values ({})",
                names.join(", "),
                values.join(", ")
            ));
        }
        wanted.push(expected.expect("the probe is a column"));
        script.push(Step::Row(Arc::new(Row(row))));
    }
    let asked = client
        .query(
            "select n, try(statement) from unnest($1::int8[], $2::text[]) as s (n, statement)",
            &[&numbers, &statements],
        )
        .expect("each statement ends");
    let theirs: BTreeMap<i64, Theirs> = asked
        .iter()
        .map(|row| {
            (row.get(0), row.get::<_, Option<String>>(1).map_or(Theirs::Written, Theirs::Refused))
        })
        .collect();

    let keyed = random.once_in(2);
    let name = format!("{schema}_{seed:x}");
    let (table, book) = (format!("{schema}.ours"), format!("{schema}_book"));
    let script = Script::new(vec![script]);
    let pipeline = Pipeline::new(&name, move |engine| {
        let mut sink = Postgres::table(&table).schema(&book);
        if keyed {
            sink = sink.key("n");
        }
        if let Some((_, unit, _)) = unit {
            sink = sink.default_unit(unit);
        }
        if zone {
            sink = sink.default_zone("Europe/Oslo");
        }
        engine
            .dataframe(Memory::new("rows", Arc::clone(&script)))
            .map(|row: Arc<Row>| (*row).clone())
            .sink(sink);
        Ok(())
    });
    let options = Options {
        until_end: true,
        tick: Duration::from_millis(1),
        pace: Pace {
            linger: Duration::from_millis(1),
            max_rows: random.of(&[7, 60, 1000]),
            ..Pace::default()
        },
        ..Options::default()
    };
    let about = format!(
        "table ({defined}) unit={:?} zone={zone} keyed={keyed} seed={seed}",
        unit.map(|unit| unit.0)
    );
    if let Err(error) = pipeline.run(&options) {
        return vec![(format!("the run ended: {error}"), about)];
    }
    let ours = ours(client, schema, &name, &columns);
    let mut findings = Vec::new();
    for (n, (expected, value, kind)) in (0..).zip(wanted) {
        let ours = ours.get(&n).cloned().unwrap_or((Ours::Lost, String::new()));
        let theirs = theirs.get(&n).cloned().unwrap_or(Theirs::NotAsked);
        if let Some(wrong) = tally.judge(&expected, &ours.0, &theirs) {
            let shape = format!("{value:?}");
            let shape = shape.split(['(', ' ']).next().unwrap_or_default().to_owned();
            findings.push((
                format!("{kind}: {shape}: {wrong}"),
                format!("{value:?} expected {expected:?}, was {:?} {}, server {theirs:?}; row {n} of {about}", ours.0, ours.1),
            ));
        }
    }
    findings
}

/// What became of each row, and how it differs.
fn ours(
    client: &mut Client,
    schema: &str,
    pipeline: &str,
    columns: &[Column],
) -> BTreeMap<i64, (Ours, String)> {
    let texts = |alias: &str| {
        let texts: Vec<String> =
            columns.iter().map(|column| format!("{alias}.{}::text", column.name)).collect();
        format!("array[{}]::text[]", texts.join(", "))
    };
    let query = format!(
        "select n, {}, t.n is not null, {} from ours as o left join twin as t using (n)",
        texts("o"),
        texts("t")
    );
    let query = query.replace("t.n is not null", "exists (select from twin where twin.n = o.n)");
    let rows = client.query(&query, &[]).expect("all values have texts");
    let mut all: BTreeMap<i64, (Ours, String)> = rows
        .iter()
        .map(|row| {
            let (ours, twin): (Vec<Option<String>>, Vec<Option<String>>) = (row.get(1), row.get(3));
            let there: bool = row.get(2);
            let how = if ours == twin { String::new() } else { format!("{ours:?} for {twin:?}") };
            (row.get(0), (Ours::Written(there && ours == twin), how))
        })
        .collect();
    let query = format!(
        "select \"offset\", coalesce(sqlstate, '?????'), stage || ': ' || reason from {schema}_book.rejects
          where pipeline = {}",
        literal(pipeline)
    );
    for row in client.query(&query, &[]).expect("the rejects are there") {
        let refused = (Ours::Refused(row.get(1)), row.get(2));
        if all.insert(row.get(0), refused).is_some() {
            all.insert(row.get(0), (Ours::Lost, "both written and refused".to_owned()));
        }
    }
    all
}
