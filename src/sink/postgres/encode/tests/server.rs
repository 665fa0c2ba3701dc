//! Compares what is encoded here with what a server makes of the same texts.

use std::fmt::Debug;
use std::io::Write;

use postgres::{Client, NoTls};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};

use super::*;

/// A table with one column of a type, and a function that reads a text as that type.
pub(super) struct Server {
    pub client: Client,
    pub column: Column,
    /// Whether a text may be refused here that the server takes.
    pub strict: bool,
}

impl Server {
    pub fn of(type_name: &str) -> Server {
        Server::with("", type_name)
    }

    /// The same, after some SQL.
    pub fn with(prelude: &str, type_name: &str) -> Server {
        let url = std::env::var("DATABASE_URL")
            .expect("DATABASE_URL must name a PostgreSQL server; `scripts/test` starts one");
        let mut client = Client::connect(&url, NoTls).expect("the server of DATABASE_URL answers");
        let setup = format!(
            "set timezone = 'UTC'; set datestyle = 'ISO, MDY'; set client_min_messages = 'warning';
             {prelude};
             create temp table ours (i bigint, v {type_name});
             create temp table staged (i bigint, v text);
             create function pg_temp.read(t text) returns text language plpgsql as $$
                 declare v {type_name};
                 begin
                     v := t;
                     return v::text;
                 exception when others then
                     return 'refused with ' || sqlstate;
                 end $$"
        );
        client.batch_execute(&setup).unwrap();
        let row = client
            .query_one(
                "select case when r.prosrc in ('textrecv', 'enum_recv') then 25::oid
                             else coalesce(b.oid, t.oid) end,
                        a.atttypmod, format_type(a.atttypid, a.atttypmod),
                        format('%I.%I', n.nspname, coalesce(b.typname, t.typname)),
                        case when coalesce(b.typcategory, t.typcategory) = 'A'
                             then coalesce(b.typelem, t.typelem) end
                   from pg_attribute a join pg_type t on t.oid = a.atttypid
                   left join pg_type b on b.oid = t.typbasetype
                   join pg_namespace n on n.oid = coalesce(b.typnamespace, t.typnamespace)
                   join pg_proc r on r.oid = coalesce(b.typreceive, t.typreceive)
                  where a.attrelid = 'pg_temp.ours'::regclass and a.attname = 'v'",
                &[],
            )
            .unwrap();
        let oid = row.get(0);
        let text = (!super::super::is_binary(oid)).then(|| row.get(3));
        let column = Column {
            type_name: row.get(2),
            typmod: row.get(1),
            text,
            element: row.get(4),
            ..column("v", oid)
        };
        Server { client, column, strict: false }
    }

    /// Allows refusals of what the server takes.
    pub fn strictly(mut self) -> Self {
        self.strict = true;
        self
    }

    /// What the server makes of `texts`.
    pub fn reads(&mut self, texts: &[String]) -> Vec<String> {
        let query =
            "select pg_temp.read(t) from unnest($1::text[]) with ordinality u(t, i) order by i";
        self.client.query(query, &[&texts]).unwrap().iter().map(|row| row.get(0)).collect()
    }

    /// What arrives of `values` by way of the encoder.
    pub fn takes<V: Serialize>(&mut self, values: &[V]) -> Vec<String> {
        #[derive(Serialize)]
        struct Row<'a, V> {
            i: i64,
            v: &'a V,
        }
        let mut results = Vec::new();
        let mut encoder = encoder(table(vec![column("i", 20), self.column.clone()], &[]));
        for (i, v) in (0..).zip(values) {
            results.push(match put(&mut encoder, Row { i, v }) {
                Ok(()) => String::new(),
                Err(refusal) => format!("refused with {}", refusal.sqlstate.unwrap_or_default()),
            });
        }
        let rows = taken(&mut encoder);
        // What the server judges (labels of enums, what is cast) is copied one by one if it fails.
        if self.copy(&rows.bytes).is_err() {
            let mut start = 0;
            for entry in &rows.entries {
                let tuple = &rows.bytes[start..entry.row_end];
                start = entry.row_end;
                let index = i64::from_be_bytes(tuple[6..14].try_into().unwrap());
                if let Err(code) = self.copy(tuple) {
                    results[index as usize] = format!("refused with {code}");
                }
            }
        }
        for row in self.client.query("select i, v::text from ours", &[]).unwrap() {
            let text: Option<String> = row.get(1);
            results[row.get::<_, i64>(0) as usize] = text.unwrap_or_else(|| "NULL".to_owned());
        }
        self.client.batch_execute("truncate ours").unwrap();
        results
    }

    /// Copies tuples, by way of a staging table where they hold a text that is cast.
    fn copy(&mut self, tuples: &[u8]) -> Result<(), String> {
        let mut transaction = self.client.transaction().unwrap();
        let place = if self.column.text.is_some() { "staged" } else { "ours" };
        let mut copied = (|| {
            let mut copy =
                transaction.copy_in(&format!("copy {place} from stdin (format binary)"))?;
            copy.write_all(b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0").unwrap();
            copy.write_all(tuples).unwrap();
            copy.write_all(&[0xff; 2]).unwrap();
            copy.finish().map(drop)
        })();
        if let (Ok(()), Some(text)) = (&copied, &self.column.text) {
            let cast = format!("insert into ours select i, v::{text} from staged; truncate staged");
            copied = transaction.batch_execute(&cast);
        }
        match copied {
            Ok(()) => {
                transaction.commit().unwrap();
                Ok(())
            }
            Err(error) => Err(error.code().expect("the server says why").code().to_owned()),
        }
    }

    /// Asserts that `values` arrive as the server reads their `texts`.
    #[track_caller]
    pub fn agrees_on<V: Serialize + Debug>(&mut self, values: &[V], texts: &[String]) {
        let (ours, theirs) = (self.takes(values), self.reads(texts));
        for (index, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
            if self.strict && ours.starts_with("refused") && !theirs.starts_with("refused") {
                continue;
            }
            let type_name = &self.column.type_name;
            assert_eq!(ours, theirs, "{:?} as {type_name}", values[index]);
        }
    }

    #[track_caller]
    pub fn agrees(&mut self, texts: &[&str]) {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        self.agrees_on(&texts, &texts);
    }

    /// Compares random texts, some hundreds a query.
    #[track_caller]
    pub fn agrees_on_all(&mut self, texts: impl Strategy<Value = String>) {
        let config = Config { cases: 8, failure_persistence: None, ..Config::default() };
        let server = std::cell::RefCell::new(self);
        let mut runner = TestRunner::new(config);
        let result = runner.run(&vec(texts, 300), |texts| {
            server.borrow_mut().agrees_on(&texts, &texts);
            Ok(())
        });
        if let Err(error) = result {
            panic!("{error}");
        }
    }
}

#[test]
fn booleans() {
    Server::of("boolean").agrees(&[
        "true", "t", "TRU", " yes ", "y", "on", "1", "false", "f", "no", "n", "of", "OFF", "0",
        "o", "", "2", "tr ue", "truee",
    ]);
}

#[test]
fn integers() {
    for type_name in ["smallint", "integer", "bigint"] {
        let mut server = Server::of(type_name);
        server.agrees(&[
            "0",
            "-0",
            "+7",
            " 12\t",
            "32767",
            "32768",
            "-32768",
            "-32769",
            "2147483647",
            "2147483648",
            "-2147483649",
            "9223372036854775807",
            "9223372036854775808",
            "-9223372036854775808",
            "-9223372036854775809",
            "",
            " ",
            "1.0",
            "1e3",
            "x",
            "1 2",
            "--1",
        ]);
        server.agrees_on_all("[+-]?[0-9]{1,20}");
        let wide = [0_i128, -32769, 1 << 62, 1 << 63, 1 << 100, i128::MIN];
        server.agrees_on(&wide, &wide.map(|value| value.to_string()));
        let floats = [0.0, -0.0, 1e3, -32768.0, 32768.0, 9_223_372_036_854_774_784.0, 1e19];
        server.agrees_on(&floats, &floats.map(|value: f64| format!("{value:.0}")));
    }
}

#[test]
fn floats() {
    for type_name in ["real", "double precision"] {
        let mut server = Server::of(type_name);
        server.agrees(&[
            "0",
            "-0",
            "1e400",
            "-1e400",
            "1e39",
            "3e-400",
            "1e-46",
            "1e-45",
            "5e-324",
            "2e-324",
            "NaN",
            "nan",
            "Infinity",
            "-inf",
            "+Infinity",
            " 1.5 ",
            ".5",
            "5.",
            "",
            ".",
            "e5",
            "1e",
            "0e999",
            "0.000",
            "x",
            "3.4028235e38",
            "3.4028236e38",
            "1.7976931348623157e308",
        ]);
        server.agrees_on_all("-?[0-9]{0,20}(\\.[0-9]{0,20})?([eE][+-]?[0-9]{1,2})?");
        let ints = [i64::MAX, i64::MIN, (1 << 53) + 1, 16_777_217, 7_038_531_026_587_893_761];
        server.agrees_on(&ints, &ints.map(|value| value.to_string()));
        let wide = [u64::MAX, (1 << 63) + 1025];
        server.agrees_on(&wide, &wide.map(|value| value.to_string()));
        let floats = [1e39, 1e-46, f64::NAN, f64::INFINITY, 0.1, -0.0];
        server.agrees_on(&floats, &floats.map(|value: f64| value.to_string()));
    }
}

const NUMERICS: [&str; 42] = [
    "0",
    "-0",
    "0.000",
    "-0.00",
    "1",
    "10000",
    "9999",
    "99999999",
    "0.0001",
    "0.00001",
    "1.50",
    "123456789.987654321",
    "1e10",
    "1e-10",
    "1E+5",
    ".5",
    "5.",
    "+.5e1",
    " 7 ",
    "NaN",
    "nan",
    "Infinity",
    "-Infinity",
    "inf",
    "+inf",
    "-INF",
    "1e131071",
    "1e131072",
    "1e-16383",
    "0e500",
    "1e2000000000",
    "1e-2000000000",
    "",
    ".",
    "-",
    "1e",
    "e1",
    "1.2.3",
    "x",
    "999.995",
    "99999.995",
    "-0.004",
];

#[test]
fn numerics() {
    for type_name in [
        "numeric",
        "numeric(10,2)",
        "numeric(5)",
        "numeric(3,5)",
        "numeric(4,-2)",
        "numeric(1000,999)",
    ] {
        let mut server = Server::of(type_name);
        server.agrees(&NUMERICS);
        server.agrees_on_all("[+-]?[0-9]{0,8}(\\.[0-9]{0,8})?(e[+-]?[0-9]{1,2})?");
        server.agrees_on_all("-?[09]{0,40}(\\.[0459]{0,40})?(e-?[0-9]{1,3})?");
    }
}

#[test]
fn numbers_as_numerics() {
    let mut server = Server::of("numeric");
    server.agrees(&["1e-16384", "0e-16384"]);
    // A literal is read whole before it is rounded, so this is too fine.
    let mut rounded = Server::of("numeric(10,0)");
    assert_eq!(rounded.takes(&["1e-16384"]), ["refused with 22003"]);
    // Above the greatest float, but half of the way to the next.
    assert_eq!(Server::of("real").takes(&[u128::MAX]), ["refused with 22003"]);
    let ints = [0, 1, -1, 9999, 10_000, i64::MAX, i64::MIN, 120_000_000];
    server.agrees_on(&ints, &ints.map(|value| value.to_string()));
    let wide = [u128::MAX, u128::from(u64::MAX)];
    server.agrees_on(&wide, &wide.map(|value| value.to_string()));
    let floats = [0.1, 1.5, 100.0, 1e300, 5e-324, -0.0, f64::MAX, f64::NAN, f64::INFINITY];
    server.agrees_on(&floats, &floats.map(|value: f64| value.to_string()));
    let narrow = [0.1_f32, 1e-45, f32::MAX, f32::NAN];
    server.agrees_on(&narrow, &narrow.map(|value| value.to_string()));
}

#[test]
fn texts() {
    let texts = ["", "a", "abc", "abcd", "abc   ", "äöü", "äöüß", "äöü ", " ", "    ", "a\nb\\"];
    for type_name in ["text", "varchar", "varchar(3)", "char(3)", "bpchar", "name"] {
        Server::of(type_name).agrees(&texts);
    }
}

/// Asserts that two texts of a float are the same, or the same float and not longer: where a shorter
/// text stands just at the border to the next float, or two are equally near, the server takes the
/// other.
#[track_caller]
fn equally_short<F: std::str::FromStr + PartialEq>(ours: &[String], theirs: &[String]) {
    for (ours, theirs) in ours.iter().zip(theirs) {
        let same = ours.len() <= theirs.len() && ours.parse::<F>().ok() == theirs.parse().ok();
        assert!(ours == theirs || same, "{ours} instead of {theirs}");
    }
}

#[test]
fn floats_as_text_look_as_the_server_prints_them() {
    let mut server = Server::of("text");
    let mut runner = TestRunner::deterministic();
    let mut random = |low: i32, high: i32| {
        let float =
            (-1.0..1.0_f64, low..high).prop_map(|(digits, power)| digits * 10_f64.powi(power));
        float.new_tree(&mut runner).unwrap().current()
    };
    let mut wide = vec![0.0, -0.0, 1e14, 1e15, 123456789012345.6, 1e-4, 1e-5, 1e21, 100.0, 0.1];
    wide.extend([f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, 5e-324]);
    wide.extend((0..500).map(|_| random(-300, 300)));
    wide.extend((0..500).map(|_| random(-7, 20)));
    let mut narrow = vec![0.3, 1e5, 1e6, 1e-5, 999_999.9, f32::MAX, 1e-45];
    narrow.extend((0..500).map(|_| random(-35, 38) as f32));
    narrow.extend((0..500).map(|_| random(-6, 9) as f32));

    let print = "select f::text from unnest($1::float8[]) with ordinality u(f, i) order by i";
    let theirs = server.client.query(print, &[&wide]).unwrap();
    let theirs: Vec<String> = theirs.iter().map(|row| row.get(0)).collect();
    equally_short::<f64>(&server.takes(&wide), &theirs);

    let print = "select f::text from unnest($1::float4[]) with ordinality u(f, i) order by i";
    let theirs = server.client.query(print, &[&narrow]).unwrap();
    let theirs: Vec<String> = theirs.iter().map(|row| row.get(0)).collect();
    equally_short::<f32>(&server.takes(&narrow), &theirs);

    assert_eq!(server.takes(&[true, false]), ["true", "false"]);
    assert_eq!(server.takes(&[u64::MAX]), ["18446744073709551615"]);
}

#[test]
fn byteas_and_uuids() {
    let mut server = Server::of("bytea").strictly();
    server.agrees(&["\\x", "\\x00fF", "\\x00 ff", "abc", ""]);
    assert_eq!(server.takes(&[vec![0_u8, 255], vec![]]), ["\\x00ff", "\\x"]);
    assert_eq!(server.takes(&[[1_i64, 256]]), ["refused with 42804"]);
    assert_eq!(server.takes(&[[1_u128, 255], [1, u128::MAX]]), ["\\x01ff", "refused with 42804"]);
    assert_eq!(server.takes(&[[-1_i128]]), ["refused with 42804"]);

    let mut server = Server::of("uuid");
    server.agrees(&[
        "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        "A0EEBC999C0B4EF8BB6D6BB9BD380A11",
        "{a0eebc99-9c0b4ef8-bb6d6bb9-bd380a11}",
        "a0ee-bc99-9c0b-4ef8-bb6d-6bb9-bd38-0a11",
        "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1",
        "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a111",
        "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11-",
        "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        "a0-eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        "",
    ]);
}

/// Dates, some of which do not exist.
fn date() -> impl Strategy<Value = String> {
    (1..=11_000, 0..=13, 0..=32).prop_map(|(y, m, d)| format!("{y:04}-{m:02}-{d:02}"))
}

/// Times, some of which do not exist.
fn time() -> impl Strategy<Value = String> {
    let fraction = prop_oneof![Just(String::new()), "\\.[0-9]{1,9}", "\\.99999949{1,3}"];
    (0..=24, 0..=60, 0..=61, fraction)
        .prop_map(|(h, m, s, fraction)| format!("{h:02}:{m:02}:{s:02}{fraction}"))
}

fn zone() -> impl Strategy<Value = String> {
    prop_oneof!["Z", " ?[+-](0[0-9]|1[0-6])(:?[0-5][0-9])?", "[+-]0[0-9]:[0-6][0-9]:[0-6][0-9]"]
}

#[test]
fn dates() {
    let mut server = Server::of("date");
    server.agrees(&[
        "2024-02-29",
        "2023-02-29",
        "1900-02-29",
        "2000-02-29",
        "2024-1-5",
        " 2024-01-05 ",
        "infinity",
        "-infinity",
        "Infinity",
        "0001-01-01",
        "0000-01-01",
        "0001-01-01 BC",
        "0044-03-15 bc",
        "0044-03-15 AD",
        "4713-11-24 BC",
        "4713-11-23 BC",
        "4714-11-24 BC",
        "4714-11-23 BC",
        "5874897-12-31",
        "5874898-01-01",
        "12345-06-07",
        "20240105",
        "20230229",
        "20241301",
        "2024-13-01",
        "2024-00-01",
        "",
        "x",
        "01/02/2024x",
    ]);
    server.agrees_on_all(date());
    // These the server takes by dropping what does not fit, or by guessing.
    let refused = ["2024-01-05T10:00:00Z", "today", "Jan 5 2024", "24-01-05"];
    assert!(server.takes(&refused).iter().all(|result| result == "refused with 22007"));
}

#[test]
fn times() {
    let mut server = Server::of("time");
    server.agrees(&[
        "00:00",
        "9:05",
        "23:59:60",
        "24:00:00",
        "24:00:01",
        "23:59:59.9999999",
        "25:00",
        "12:60",
        "12:00:61",
        "12:00:60.5",
        "",
        "x",
        "12:00:00.5",
        "12:00:00.",
    ]);
    server.agrees_on_all(time());
    Server::of("time(2)").agrees_on_all(time());
    assert_eq!(server.takes(&["12:00:00+02"]), ["refused with 22007"]);
}

const MOMENTS: [&str; 17] = [
    "infinity",
    "-infinity",
    "294276-12-31 23:59:59",
    "294277-01-01 00:00:00",
    "4714-11-24 00:00:00 BC",
    "4714-11-23 23:59:59.999999 BC",
    "2024-02-30 00:00:00",
    "1999-12-31 23:59:59.9999995",
    "1999-12-31 23:59:59.9999994",
    "2016-12-31 23:59:60",
    "0000-01-01 00:00:00",
    "0001-01-01 00:00:00 BC",
    "12345-06-07T08:09:10.5",
    "2024-01-05T24:00:00",
    "2024-01-05T123000.5",
    "2024-01-05T123000.",
    "2024-01-05T12:30:00.",
];

#[test]
fn timestamps() {
    for type_name in ["timestamp", "timestamp(0)", "timestamp(3)"] {
        let mut server = Server::of(type_name);
        server.agrees(&MOMENTS);
        server.agrees(&["2024-01-05", "2024-01-05 10:11", "2024-1-5  1:2:3", "x", ""]);
        server.agrees(&["2024-01-05 \u{b}1:2:3", "2024-01-05 \t\r10:11"]);
        server.agrees_on_all((date(), "[T ]", time()).prop_map(|(d, t, h)| d + &t + &h));
    }
    let mut server = Server::of("timestamp");
    server.agrees(&["294276-12-31 23:59:59.999999"]);
    assert_eq!(server.takes(&["2024-01-05T10:00:00Z"]), ["refused with 22007"]);
    assert_eq!(server.takes(&[1_704_448_800_000_i64]), ["refused with 22007"]);
    server.agrees(&["20240105T101112.5", "20240105 1011", "2024-01-05T101112"]);
}

#[test]
fn timestamps_with_a_zone() {
    for type_name in ["timestamptz", "timestamptz(0)", "timestamptz(4)"] {
        let mut server = Server::of(type_name);
        let zoned = MOMENTS.map(|text| match text.strip_suffix(" BC") {
            Some(text) => format!("{text}+00 BC"),
            None if text.ends_with("infinity") => text.to_owned(),
            None => format!("{text}Z"),
        });
        server.agrees_on(&zoned, &zoned);
        server.agrees(&[
            "2024-01-05T123000-0200",
            "2024-01-05T123000-02:00",
            "2024-01-05T123000.5-02:00",
            "2024-01-05T10:00:00z",
            "2024-01-05 10:00:00 UTC",
            "2024-01-05 10:00:00 +0530",
            "2024-01-05 10:00:00-15:59:59",
            "2024-01-05 10:00:00+16",
            "2024-01-05T10:00+02",
            "294276-12-31 23:59:59.999999-01",
            "294277-01-01 00:30:00+01",
            "4714-11-24 00:30:00+01 BC",
            "4714-11-23 23:30:00-01 BC",
            "2024-01-05 10:00:00+5",
        ]);
        server.agrees_on_all(
            (date(), "[T ]", time(), zone()).prop_map(|(d, t, h, z)| d + &t + &h + &z),
        );
    }
    let mut server = Server::of("timestamptz");
    let refused = ["2024-01-05T10:00:00", "2024-01-05", "now"];
    assert!(server.takes(&refused).iter().all(|result| result == "refused with 22007"));
}

#[test]
fn json_values() {
    let values = [
        serde_json::json!({"a": [1, 2.5, null, true, "ä\"\n\\u0000"], "b": {}}),
        serde_json::json!("text"),
        serde_json::json!(7),
        serde_json::json!([u64::MAX, -1e300]),
    ];
    let texts = values.clone().map(|value| value.to_string());
    Server::of("json").agrees_on(&values, &texts);
    Server::of("jsonb").agrees_on(&values, &texts);
    assert_eq!(Server::of("json").takes(&["\0"]), ["\"\\u0000\""]);
    assert_eq!(Server::of("jsonb").takes(&["\0"]), ["refused with 22P05"]);
}
