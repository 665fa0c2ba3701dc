//! Values that kept the form in which they were read, compared with what the server makes of their
//! texts.

use std::collections::HashMap;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::server::Server;
use super::*;
use crate::codec::exact::{Millis, RawJson, Utf8};

/// JSON values that go anywhere.
const VALUES: [&str; 66] = [
    "0",
    "-0",
    "1",
    "7",
    "101",
    "1.0",
    "1.50",
    "-12.345",
    "1e3",
    "5E3",
    "1e400",
    "-1.8e308",
    "3e-400",
    "0e-999",
    "5e-324",
    "1e-46",
    "3.5e38",
    "1.7976931348623157e308",
    "1e131071",
    "1e131072",
    "32768",
    "2147483648",
    "99999999999.5",
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775809",
    "18446744073709551615",
    "122637770461000000001",
    "0.1234567890123456789",
    "99999999999999999999999999999999999999999",
    "true",
    "false",
    r#""""#,
    r#"" ""#,
    r#""a""#,
    r#""abc  ""#,
    r#""abcdef""#,
    r#""12""#,
    r#"" 7 ""#,
    r#""1.50""#,
    r#""NaN""#,
    r#""Infinity""#,
    r#""true""#,
    r#""yes""#,
    r#""soon""#,
    r#""ä\n\"\\\/\u00e4\ud83d\ude80""#,
    r#""low""#,
    r#""Low""#,
    r#""5B1F0E5C-0A3D-4C59-9A52-0F1F6B7B7A01""#,
    r#""{5b1f0e5c-0a3d-4c59-9a52-0f1f6b7b7a01}""#,
    r#""\\x00ff""#,
    r#""a\\\\b\\101""#,
    r#""a\\b""#,
    r#""10.0.0.1""#,
    r#""10.1.2.3/8""#,
    r#""08:00:2b:01:02:03""#,
    r#""1 day 02:00""#,
    r#""12:30:00+02""#,
    r#""[1,5)""#,
    r#""{[1,5),[7,8)}""#,
    r#""{1,2}""#,
    r#""(1,x)""#,
    r#""<a/>""#,
    r#""$12.50""#,
    r#""fat & rat""#,
];

/// The text under which the server is asked about a JSON value.
fn text(raw: &str) -> String {
    serde_json::from_str::<String>(raw).unwrap_or_else(|_| raw.to_owned())
}

/// Asserts that `values` arrive as the server reads their texts; where both refuse, in one class.
#[track_caller]
fn agree(server: &mut Server, values: &[&str]) {
    let json = [114, 3802].contains(&server.column.oid);
    let texts: Vec<String> =
        values.iter().map(|raw| if json { (*raw).to_owned() } else { text(raw) }).collect();
    let raws: Vec<RawJson<'_>> = values.iter().map(|raw| RawJson(raw)).collect();
    let (ours, theirs) = (server.takes(&raws), server.reads(&texts));
    for (index, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        let refused = ours.starts_with("refused");
        if refused && server.strict && !theirs.starts_with("refused") {
            continue;
        }
        let same = if refused && theirs.starts_with("refused") {
            ours[..15] == theirs[..15]
        } else {
            ours == theirs
        };
        let type_name = &server.column.type_name;
        assert!(same, "{} as {type_name}: {ours} instead of {theirs}", values[index]);
    }
}

const PRELUDE: &str = "
    create type pg_temp.volume as enum ('low', 'high');
    create type pg_temp.pair as (n integer, t text);
    create domain pg_temp.short as varchar(3);
    create domain pg_temp.net as inet check (masklen(value) = 32);
    create domain pg_temp.span as int4range";

#[test]
fn json_values_go_where_their_texts_go() {
    for type_name in [
        "boolean",
        "smallint",
        "integer",
        "bigint",
        "real",
        "double precision",
        "numeric",
        "numeric(6,2)",
        "numeric(40,0)",
        "text",
        "varchar(5)",
        "char(4)",
        "name",
        "bytea",
        "uuid",
        "json",
        "jsonb",
        "interval",
        "interval(0)",
        "timetz",
        "inet",
        "cidr",
        "macaddr",
        "macaddr8",
        "int4range",
        "numrange",
        "tstzrange",
        "int4multirange",
        "bit(3)",
        "varbit(4)",
        "money",
        "xml",
        "tsvector",
        "tsquery",
        "point",
        "oid",
        "pg_lsn",
        "integer[]",
        "text[]",
        "bytea[]",
        "pg_temp.volume",
        "pg_temp.pair",
        "pg_temp.short",
        "pg_temp.net",
        "pg_temp.span",
        "pg_temp.volume[]",
        "pg_temp.pair[]",
    ] {
        let mut server = Server::with(PRELUDE, type_name);
        agree(&mut server, &VALUES);
        let null = server.takes(&[RawJson("null"), RawJson(" null ")]);
        assert_eq!(null, ["NULL", "NULL"], "{type_name}");
    }
    // What the server guesses is refused.
    for type_name in ["date", "time", "timestamp", "timestamptz"] {
        agree(&mut Server::of(type_name).strictly(), &VALUES);
    }
}

#[test]
fn arrays_and_objects_go_where_json_goes_and_to_what_reads_their_text() {
    let values = ["{}", "[]", r#"{"a":1}"#, r#"[1,"x"]"#, "[1,5]", "[null]"];
    for type_name in [
        "boolean",
        "integer",
        "bigint",
        "numeric",
        "real",
        "uuid",
        "date",
        "timestamptz",
        "json",
        "jsonb",
        "inet",
        "int4range",
        "interval",
        "pg_temp.volume",
        "pg_temp.pair",
        "point",
        "xml",
    ] {
        agree(&mut Server::with(PRELUDE, type_name), &values[..]);
    }
    for type_name in ["text", "varchar(5)", "char(4)", "name", "bytea"] {
        let raws = values.map(RawJson);
        let all = Server::of(type_name).takes(&raws);
        assert!(all.iter().all(|result| result == "refused with 22P02"), "{type_name}: {all:?}");
    }
}

#[test]
fn json_arrays_become_arrays() {
    let uuid = "5b1f0e5c-0a3d-4c59-9a52-0f1f6b7b7a01";
    let braced = format!(r#"[null,"{{{}}}"]"#, uuid.to_uppercase());
    let nulled = format!("{{NULL,{uuid}}}");
    for (type_name, raw, expected) in [
        ("integer[]", "[]", "{}"),
        ("integer[]", " [ 1 , null,\"3\" ] ", "{1,NULL,3}"),
        ("integer[]", "[[1,2],[3,4]]", "{{1,2},{3,4}}"),
        ("integer[]", "[[1,2],[3]]", "refused with 22P02"),
        ("integer[]", "[1.5]", "refused with 22P02"),
        ("integer[]", "[2147483648]", "refused with 22003"),
        ("integer[]", "{\"a\":1}", "refused with 22P02"),
        ("integer[]", "\"{1,2}\"", "{1,2}"),
        ("integer[]", "5", "refused with 22P02"),
        (
            "text[]",
            r#"["a","b,c","{}","NULL",null,"","\"\\ä\n"]"#,
            "{a,\"b,c\",\"{}\",\"NULL\",NULL,\"\",\"\\\"\\\\ä\n\"}",
        ),
        (
            "text[]",
            r#"[1.50,true,{"k":1},9007199254740993]"#,
            r#"{1.50,true,"{\"k\":1}",9007199254740993}"#,
        ),
        ("text[]", r#"["a\u0000"]"#, "refused with 22021"),
        ("text[]", r#"["a\ud83d"]"#, "refused with 22021"),
        ("varchar(3)[]", r#"["abcd"]"#, "refused with 22001"),
        ("varchar(3)[]", r#"["abc"]"#, "{abc}"),
        ("numeric(4,1)[]", "[1.25,1e2]", "{1.3,100.0}"),
        ("boolean[]", "[true,false,\"yes\",null]", "{t,f,t,NULL}"),
        ("uuid[]", &braced, &nulled),
        ("uuid[]", "[\"nope\"]", "refused with 22P02"),
        (
            "jsonb[]",
            r#"[{"b":1, "a":"x"},[1,2],"text",null,1.50]"#,
            r#"{"{\"a\": \"x\", \"b\": 1}","[1, 2]","\"text\"",NULL,1.50}"#,
        ),
        ("json[]", r#"[{"b":1, "a":[]}]"#, r#"{"{\"b\":1, \"a\":[]}"}"#),
        ("timestamptz[]", r#"["2024-01-02T03:04:05+02:00"]"#, "{\"2024-01-02 01:04:05+00\"}"),
        ("pg_temp.volume[]", r#"["low","high"]"#, "{low,high}"),
        ("pg_temp.volume[]", r#"["loud"]"#, "refused with 22P02"),
    ] {
        let mut server = Server::with(PRELUDE, type_name);
        assert_eq!(server.takes(&[RawJson(raw)]), [expected], "{raw} as {type_name}");
    }
}

#[test]
fn sequences_become_arrays() {
    #[derive(Serialize)]
    enum Volume {
        #[serde(rename = "low")]
        Low,
    }
    #[derive(Serialize)]
    struct Tag {
        name: &'static str,
    }
    let mut server = Server::of("bigint[]");
    assert_eq!(server.takes(&[vec![Some(1), None], vec![]]), ["{1,NULL}", "{}"]);
    assert_eq!(server.takes(&[[[1, 2], [3, 4]]]), ["{{1,2},{3,4}}"]);
    assert_eq!(server.takes(&[["x"]]), ["refused with 22P02"]);
    assert_eq!(server.takes(&[5]), ["refused with 22P02"]);
    assert_eq!(server.takes(&[None::<Vec<i64>>]), ["NULL"]);
    assert_eq!(server.takes(&[Tag { name: "x" }]), ["refused with 42804"]);
    let texts = [["a", "b,\"c\\", "NULL", ""]];
    assert_eq!(Server::of("text[]").takes(&texts), [r#"{a,"b,\"c\\","NULL",""}"#]);
    assert_eq!(Server::of("text[]").takes(&[["\0"]]), ["refused with 22021"]);
    assert_eq!(
        Server::of("double precision[]").takes(&[[0.1, f64::NAN, 1e300]]),
        ["{0.1,NaN,1e+300}"]
    );
    assert_eq!(Server::of("real[]").takes(&[[0.1_f32]]), ["{0.1}"]);
    assert_eq!(Server::of("boolean[]").takes(&[(true, false)]), ["{t,f}"]);
    let mut server = Server::with(PRELUDE, "pg_temp.volume[]");
    assert_eq!(server.takes(&[[Volume::Low]]), ["{low}"]);
    let mut server = Server::of("jsonb[]");
    assert_eq!(server.takes(&[[Tag { name: "x" }]]), [r#"{"{\"name\": \"x\"}"}"#]);
    assert_eq!(server.takes(&[[Some("x"), None]]), [r#"{"\"x\"",NULL}"#]);
    assert_eq!(server.takes(&[[RawJson("[1.50]")]]), ["{[1.50]}"]);
    assert_eq!(Server::of("text[]").takes(&[[RawJson("1.50"), RawJson("null")]]), ["{1.50,NULL}"]);
}

#[test]
fn typed_values_go_by_their_text_where_the_type_is_cast() {
    assert_eq!(Server::of("inet").takes(&["10.0.0.1", "x"]), ["10.0.0.1/32", "refused with 22P02"]);
    let address = std::net::IpAddr::from([10, 0, 0, 1]);
    assert_eq!(Server::of("inet").takes(&[address]), ["10.0.0.1/32"]);
    assert_eq!(Server::of("interval").takes(&["P1DT2H"]), ["1 day 02:00:00"]);
    assert_eq!(Server::of("interval(0)").takes(&["1.6 s"]), ["00:00:02"]);
    assert_eq!(Server::of("money").takes(&[12.5]), ["$12.50"]);
    assert_eq!(Server::of("oid").takes(&[7_u32]), ["7"]);
    assert_eq!(Server::of("bit(3)").takes(&["101", "1010"]), ["101", "refused with 22026"]);
    assert_eq!(Server::of("\"char\"").takes(&["a"]), ["a"]);
    let mut server = Server::with(PRELUDE, "pg_temp.volume");
    assert_eq!(server.takes(&["high", "High"]), ["high", "refused with 22P02"]);
    assert_eq!(Server::with(PRELUDE, "pg_temp.net").takes(&["10.0.0.0/8"]), ["refused with 23514"]);
    assert_eq!(Server::of("inet").takes(&["\0"]), ["refused with 22021"]);
    assert_eq!(Server::of("inet").takes(&[HashMap::from([("a", 1)])]), ["refused with 42804"]);
}

#[test]
fn nul_and_half_surrogates_are_refused_as_the_server_does() {
    let halves =
        [r#""cut \ud83d""#, r#""\ude80 tail""#, r#""\ude80\ud83d""#, r#""\ud83d\ud83d\ude80""#];
    let nul = r#""a\u0000b""#;
    for type_name in [
        "text",
        "varchar(5)",
        "char(4)",
        "name",
        "bigint",
        "uuid",
        "bytea",
        "date",
        "inet",
        "boolean",
        "text[]",
    ] {
        let mut server = Server::of(type_name);
        for raw in halves.iter().chain([&nul]) {
            assert_eq!(
                server.takes(&[RawJson(raw)]),
                ["refused with 22021"],
                "{raw} as {type_name}"
            );
        }
    }
    let whole = [
        r#""whole \ud83d\ude80""#,
        r#""\u0007\u0001""#,
        r#""\uFFFD\uFFFF\ud800\udc00""#,
        r#""\\u0000""#,
    ];
    for type_name in ["jsonb", "json", "text"] {
        agree(&mut Server::of(type_name), &whole);
    }
    let mut server = Server::of("jsonb");
    agree(&mut server, &halves);
    assert_eq!(server.takes(&[RawJson(halves[0])]), ["refused with 22P02"]);
    assert_eq!(server.takes(&[RawJson(nul)]), ["refused with 22P05"]);
    let deep = [r#"{"na\u0000me":1}"#, r#"{"a":["x",{"deep":"y\u0000z"}]}"#];
    assert_eq!(server.takes(&deep.map(RawJson)), ["refused with 22P05"; 2]);
    // `json` keeps both, and fails when it is read.
    let mut server = Server::of("json");
    agree(&mut server, &halves);
    agree(&mut server, &[nul]);
}

#[test]
fn json_stays_as_it_was_written() {
    let values = [
        r#"{"b":1,"a":[null,{"c":""}],"b":2}"#,
        "-12.50",
        " [ 1 ] ",
        r#""1""#,
        r#""{\"a\":1}""#,
        r#"{"$serde_json::private::Number":"1"}"#,
        "1e400",
        "0.12345678901234567890123",
    ];
    agree(&mut Server::of("json"), &values);
    agree(&mut Server::of("jsonb"), &values);
    assert_eq!(Server::of("json").takes(&[Some(RawJson("[1.50,  2]"))]), ["[1.50,  2]"]);
}

#[test]
fn json_within_a_value_stays_as_it_was_written() {
    #[derive(Serialize)]
    struct Event<'a> {
        body: Document<'a>,
        list: Vec<Option<RawJson<'a>>>,
        pair: (RawJson<'a>, Millis),
        text: Utf8<'a>,
        plain: &'a str,
    }
    let event = Event {
        body: Document(&[("a", " [1.50,\n\"\\u00e4\\\"\\\\\"]"), ("b", "{}")]),
        list: vec![Some(RawJson("1e400")), None],
        pair: (RawJson("null"), Millis(7)),
        text: Utf8("\"ä".as_bytes()),
        plain: "a\n\"\\",
    };
    let expected = "{\"body\":{\"a\": [1.50,\n\"\\u00e4\\\"\\\\\"],\"b\":{}},\"list\":[1e400,null],\
                    \"pair\":[null,7],\"text\":\"\\\"ä\",\"plain\":\"a\\n\\\"\\\\\"}";
    assert_eq!(Server::of("json").takes(&[&event]), [expected]);
    assert_eq!(Server::of("json[]").takes(&[[[RawJson("1.50")]]]), ["{[1.50]}"]);
    let halves = [[RawJson("\"\\ud83d\"")]];
    assert_eq!(Server::of("jsonb").takes(&halves), ["refused with 22P02"]);
    assert_eq!(Server::of("jsonb").takes(&[[Utf8(b"\xff")]]), ["refused with "]);
}

#[test]
fn bytes_are_text_but_for_bytea() {
    let values = [&b"abc"[..], "rø".as_bytes(), b"", b"\xfe\xff", b"a\0b"].map(Utf8);
    let refused = "refused with 22021";
    assert_eq!(Server::of("text").takes(&values), ["abc", "rø", "", refused, refused]);
    assert_eq!(
        Server::of("bytea").takes(&values),
        ["\\x616263", "\\x72c3b8", "\\x", "\\xfeff", "\\x610062"]
    );
    assert_eq!(Server::of("integer").takes(&[Utf8(b"7"), Utf8(b"x")]), ["7", "refused with 22P02"]);
    assert_eq!(
        Server::of("jsonb").takes(&[Utf8(b"{\"a\": 1}"), Utf8(b"{")]),
        ["{\"a\": 1}", "refused with 22P02"]
    );
    assert_eq!(Server::of("text[]").takes(&[Utf8(b"{a,b}")]), ["{a,b}"]);
    assert_eq!(Server::of("text").takes(&[None, Some(Utf8(b""))]), ["NULL", ""]);
}

#[test]
fn milliseconds_are_an_instant_in_columns_of_time() {
    let millis = [Millis(1_700_000_000_999), Millis(-1)];
    for (type_name, expected) in [
        ("timestamptz", ["2023-11-14 22:13:20.999+00", "1969-12-31 23:59:59.999+00"]),
        ("timestamp", ["2023-11-14 22:13:20.999", "1969-12-31 23:59:59.999"]),
        ("date", ["2023-11-14", "1969-12-31"]),
        ("time", ["22:13:20.999", "23:59:59.999"]),
        ("bigint", ["1700000000999", "-1"]),
        ("text", ["1700000000999", "-1"]),
        ("numeric", ["1700000000999", "-1"]),
        ("jsonb", ["1700000000999", "-1"]),
    ] {
        assert_eq!(Server::of(type_name).takes(&millis), expected, "{type_name}");
    }
    assert_eq!(Server::of("timestamptz").takes(&[Millis(i64::MAX)]), ["refused with 22008"]);
}

/// A JSON object as a codec keeps it.
struct Document<'a>(&'a [(&'a str, &'a str)]);

impl Serialize for Document<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in self.0 {
            map.serialize_entry(name, &RawJson(value))?;
        }
        map.end()
    }
}

fn scans(key: &[u16]) -> Table {
    let id = Column { not_null: true, ..column("id", 23) };
    let lane = Column { not_null: true, ..column("lane", 23) };
    let weight = Column { typmod: ((6 << 16) | 2) + 4, ..column("weight", 1700) };
    table(vec![id, lane, weight, column("ok", 16)], key)
}

/// A document, and the column and SQLSTATE of its refusal.
type Case = (&'static [(&'static str, &'static str)], Option<(&'static str, &'static str)>);

#[test]
fn good_and_bad_documents_are_told_apart() {
    for (key, ignore) in [(&[][..], true), (&[0], true), (&[], false)] {
        let mut encoder = encoder(Table { ignore_extra: ignore, ..scans(key) });
        let cases: [Case; 11] = [
            (&[("id", "1"), ("lane", "4"), ("weight", "12.345"), ("ok", "true")], None),
            (&[("id", "2"), ("weight", "1")], Some(("lane", "23502"))),
            (&[("id", "3"), ("lane", "\"four\"")], Some(("lane", "22P02"))),
            (&[("id", "5"), ("lane", "6"), ("ok", "\"maybe\"")], Some(("ok", "22P02"))),
            (&[("id", "6"), ("lane", "{\"n\":1}")], Some(("lane", "22P02"))),
            (&[("id", "7"), ("lane", "[1]")], Some(("lane", "22P02"))),
            (&[("id", "8"), ("lane", "true")], Some(("lane", "22P02"))),
            (&[("id", "null"), ("lane", "8")], Some(("id", "23502"))),
            (&[("id", "9"), ("lane", "null")], Some(("lane", "23502"))),
            (&[("id", "10"), ("lane", "7"), ("weight", "10000")], Some(("weight", "22003"))),
            (&[("lane", "9")], Some(("id", "23502"))),
        ];
        for (row, expected) in cases {
            let got = put(&mut encoder, Document(row)).err();
            let got = got.as_ref().map(|refusal| {
                (refusal.column.as_deref().unwrap_or(""), refusal.sqlstate.as_deref().unwrap_or(""))
            });
            assert_eq!(got, expected, "{row:?}");
        }
        for _ in 0..3 {
            let row = [("colour", "\"red\""), ("id", "4"), ("size", "{}"), ("lane", "5")];
            let done = put(&mut encoder, Document(&row));
            assert_eq!(done.is_ok(), ignore, "{done:?}");
        }
        let rows = taken(&mut encoder);
        assert_eq!(rows.entries.len(), if ignore { 4 } else { 1 });
        if ignore {
            assert_eq!(rows.layouts[1], [0, 1]);
        }
    }
}

#[test]
fn absent_is_not_null() {
    let id = Column { not_null: true, has_default: true, ..column("id", 20) };
    let handle = column("handle", 25);
    let since = Column { not_null: true, has_default: true, ..column("since", 1082) };
    let columns = vec![id, since, handle];
    let mut encoder_ = encoder(table(columns.clone(), &[]));
    put(&mut encoder_, Document(&[])).unwrap();
    put(&mut encoder_, Document(&[("handle", "\"ask\"")])).unwrap();
    put(&mut encoder_, Document(&[("handle", "null")])).unwrap();
    for column in ["id", "since"] {
        let refusal = put(&mut encoder_, Document(&[(column, "null")])).unwrap_err();
        assert_eq!(
            (refusal.column.as_deref(), refusal.sqlstate.as_deref()),
            (Some(column), Some("23502"))
        );
    }
    let rows = taken(&mut encoder_);
    assert_eq!(rows.layouts, [[2]], "an empty row names a column whose default is null");
    assert_eq!(rows.entries.len(), 3);
    // Where something may fill columns in, nothing is judged.
    let unjudged = Table { judges_null: false, ..table(columns, &[]) };
    let mut encoder_ = encoder(unjudged);
    put(&mut encoder_, Document(&[("since", "null")])).unwrap();
    let refusal = put(&mut encoder_, Document(&[])).unwrap_err();
    assert_eq!(refusal.reason, "the row has no field");
}

#[test]
fn deletes_need_their_key_only() {
    let mut marked = scans(&[0]);
    marked.delete_when = Some(("op".to_owned(), "gone".to_owned()));
    let mut encoder = encoder(marked);
    put(&mut encoder, Document(&[("id", "7"), ("op", "\"g\\u006fne\"")])).unwrap();
    put(&mut encoder, Document(&[("lane", "\"x\""), ("op", "\"gone\""), ("id", "8")])).unwrap();
    put(&mut encoder, Document(&[("id", "\"x\""), ("op", "\"gone\"")])).unwrap_err();
    put(&mut encoder, Document(&[("id", "9"), ("op", "null")])).unwrap_err();
    let rows = taken(&mut encoder);
    assert!(rows.entries.len() == 2 && rows.entries.iter().all(|entry| entry.delete));
}

#[test]
fn a_tombstones_key_goes_by_the_type_of_its_column() {
    let check = |column: Column, keys: &[(&str, Option<&str>)]| {
        for (key, refused) in keys {
            let mut encoder = encoder(table(vec![column.clone()], &[0]));
            let gone = encoder.encode(at(0), &Change::<()>::Delete(Some(key.as_bytes().into())));
            let state = gone.err().and_then(|refusal| refusal.sqlstate);
            assert_eq!(state.as_deref(), *refused, "{key:?} as {column:?}");
        }
    };
    let wide = Column { typmod: (24 << 16) + 4, ..column("k", 1700) };
    check(
        wide.clone(),
        &[
            ("123456789012345678901234", None),
            ("{\"k\": 123456789012345678901234}", None),
            ("1e24", Some("22003")),
            ("x", Some("22P02")),
            ("{\"k\": \"x\"}", Some("22P02")),
            ("{\"k\": null}", Some("23502")),
            ("{\"k\": {}}", Some("22P02")),
        ],
    );
    check(
        column("k", 1082),
        &[("20240301", None), ("2023-02-29", Some("22008")), ("01/02/2024x", Some("22007"))],
    );
    check(
        column("k", 2950),
        &[("{5b1f0e5c-0a3d-4c59-9a52-0f1f6b7b7a02}", None), ("not-a-uuid", Some("22P02"))],
    );
    check(
        column("k", 25),
        &[("", None), ("kiosk\0", Some("22021")), ("{\"k\":\"\\ud83d\"}", Some("22021"))],
    );
    check(column("k", 17), &[("\\x00ff", None), ("abc", None), ("\\9", Some("22P02"))]);
    let ints = Column {
        text: Some("pg_catalog._int4".to_owned()),
        element: Some(23),
        ..column("k", 1007)
    };
    check(ints, &[("{1,2}", None), ("{\"k\": [1, 2]}", None)]);

    // Every digit stays.
    let mut encoder = encoder(table(vec![wide], &[0]));
    for key in ["123456789012345678901234", "{\"k\": 1, \"k\": 123456789012345678901234 }"] {
        encoder.encode(at(0), &Change::<()>::Delete(Some(key.as_bytes().into()))).unwrap();
    }
    let keys = taken(&mut encoder).keys;
    assert_eq!(keys[..keys.len() / 2], keys[keys.len() / 2..]);
}
