//! The columns of random tables: types, and texts that are on the edge of each.

/// How a column takes values; what its modifier and domain say comes on top, on either side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cat {
    Bool,
    Int,
    Float,
    Numeric,
    /// Enums too, whose labels are texts.
    Text,
    Name,
    Bytea,
    Uuid,
    Date,
    Time,
    Timestamp,
    Timestamptz,
    Json,
    Array,
    JsonArray,
    /// All others, which the server reads from their texts.
    Cast,
}

impl Cat {
    pub fn is_time(self) -> bool {
        matches!(self, Cat::Date | Cat::Time | Cat::Timestamp | Cat::Timestamptz)
    }
}

/// A type, and texts for it: the first is valid.
pub struct Type {
    /// As in `create table`.
    pub sql: &'static str,
    pub cat: Cat,
    pub texts: &'static [&'static str],
}

const INTS: &[&str] = &[
    "1",
    "0",
    "-0",
    "+7",
    " 12 ",
    "007",
    "32767",
    "32768",
    "-32768",
    "-32769",
    "2147483647",
    "2147483648",
    "-2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "1.0",
    "1e3",
    "",
    "-",
    "12a",
    "99999999999999999999x",
    "0x10",
    "1_000",
    "١",
];
const FLOATS: &[&str] = &[
    "1.5",
    "0",
    "-0",
    "-0.0",
    "+1",
    ".5",
    "5.",
    "1e10",
    "1E-5",
    " 2.5\t",
    "NaN",
    "nan",
    "Infinity",
    "-infinity",
    "inf",
    "+inf",
    "1e38",
    "3.4028235e38",
    "3.4028236e38",
    "1e-45",
    "1e-46",
    "1e308",
    "1.7976931348623157e308",
    "1.7976931348623159e308",
    "4.9e-324",
    "2e-324",
    "0e999",
    "0.000e-9999",
    "0x10",
    "0x1p3",
    "1e",
    "1e+",
    ".",
    "-",
    "",
    "1.5x",
    "1,5",
    "-nan",
    "16777217",
    "9007199254740993",
    "0.1",
    "1d",
    "1f",
    "infinit",
];
const NUMERICS: &[&str] = &[
    "0",
    "1",
    "1.50",
    "0",
    "-0",
    "0.00",
    "000123.4500",
    "+5",
    ".5",
    "5.",
    "1e3",
    "1.5E-3",
    "123.455",
    "-123.455",
    "999.994",
    "999.995",
    "9999.995",
    "0.005",
    "0.0005",
    "-0.004999",
    "149",
    "150",
    "-50",
    "0.000019",
    "0.00001",
    "123456789012345678901234567890.123456789012345678901234567890",
    "NaN",
    "nan",
    "Infinity",
    "-inf",
    "+inf",
    "1e131071",
    "1e131072",
    "1e-16383",
    "1e-16384",
    "1e99999999999",
    "-1e-99999999999",
    "0e131072",
    "",
    ".",
    "-",
    "1e",
    "1 2",
    "--1",
    " 7 ",
    "0x1F",
    "1_000",
    "e5",
    "NaNa",
    "9.99e37",
    "12345678901234567890.1",
    "inf x",
];
const TEXTS: &[&str] = &[
    "sad",
    "abc",
    "",
    " ",
    "ab   ",
    "abcd",
    "abcde",
    "abcdef",
    "abcd  ",
    "abcde     ",
    "æøå",
    "🙂🙂🙂🙂🙂🙂",
    "a\tb\n",
    "\\",
    "\\x00",
    "'quoted'",
    "\"",
    "$1",
    "{}",
    "null",
    "NULL",
    "0123456789012345678901234567890123456789012345678901234567890123",
    "sad",
    "happy",
    "Happy",
    "it's",
    "so so",
    "\u{feff}x",
    "e\u{301}",
    "a\u{0}b",
    "true",
    "\u{10ffff}",
];
const BYTEAS: &[&str] = &[
    "\\x00ff",
    "\\x",
    "\\xDEADbeef",
    "\\x 00 ff",
    "\\x0",
    "\\x0g",
    "\\xg0",
    "\\X00",
    "abc",
    "",
    "\\\\",
    "\\000",
    "\\377",
    "\\400",
    "\\12",
    "a\\",
    "\\x00\nff",
    "æ",
    "\\x00 f f",
    "\\x 0",
    "\\x\t00",
    "\\\\x00",
    "\\x00\u{b}ff",
];
const UUIDS: &[&str] = &[
    "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    "A0EEBC999C0B4EF8BB6D6BB9BD380A11",
    "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}",
    "a0ee-bc99-9c0b-4ef8-bb6d-6bb9-bd38-0a11",
    "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1",
    "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11a",
    "",
    " a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    "a0e-ebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    "a0eebc99--9c0b-4ef8-bb6d-6bb9bd380a11",
    "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11-",
    "-a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
];
const DATES: &[&str] = &[
    "2024-02-29",
    "2023-02-29",
    "20240229",
    "2024-2-9",
    "1900-02-29",
    "2000-02-29",
    "0001-01-01",
    "0000-01-01",
    "0001-01-01 BC",
    "4714-11-24 BC",
    "4714-11-23 BC",
    "4713-01-01 BC",
    "5874897-12-31",
    "5874898-01-01",
    "infinity",
    "-infinity",
    "Infinity",
    "+infinity",
    "today",
    "epoch",
    "Jan 5 2024",
    "01/02/2024",
    "24-01-05",
    "2024-13-01",
    "2024-00-01",
    "2024-01-32",
    "2024-01-00",
    "2024-060",
    "2024-01-01T00:00:00",
    "2024-01-01 00:00",
    "",
    " 2024-01-01 ",
    "2024-01-01 AD",
    "2024-01-01 bc",
    "10000-01-01",
    "99999-01-01",
    "2024-01-01Z",
    "2024/01/01",
    "2024.01.01",
    "J2451187",
    "2024-01-01 BC AD",
    "2024-01",
    "294277-01-01",
    "2024-W01-1",
    "January 8, 1999",
];
const TIMES: &[&str] = &[
    "12:30:00.5",
    "00:00",
    "24:00:00",
    "24:00:00.1",
    "23:59:60",
    "23:59:59.9999999",
    "23:59:59.999",
    "12:30:00.1234567",
    "1:2:3",
    "12:60:00",
    "25:00",
    "12:30:61",
    "12",
    "1230",
    "123045",
    "12:30 PM",
    "noon",
    "allballs",
    "12:30:00Z",
    "12:30:00+02",
    "T12:30",
    "12:30:",
    "12:30:00.",
    "-1:00",
    "",
    "12:30:0.0000005",
    "12:30:00.0000015",
    "04:05:06.789-8",
    "2024-01-01 12:30",
    " 12:30 ",
    "23:59:60.5",
    "12:30:60",
    "24:00",
    "12:30:00,5",
    "040506",
    "12:30:00.500000000000000000000000001",
];
const STAMPS: &[&str] = &[
    "2024-02-29T12:30:00Z",
    "2024-02-29T12:30:00",
    "2024-02-29 12:30:00",
    "2024-02-29 12:30:00.123456",
    "2024-02-29T12:30:00.1234565",
    "2024-02-29T12:30:00.1234575Z",
    "2024-02-29t12:30:00z",
    "2024-02-29T12:30Z",
    "2024-02-29",
    "2024-02-29Z",
    "20240229T123000Z",
    "20240229 1230",
    "2024-02-29T12:30:00+02",
    "2024-02-29T12:30:00+0230",
    "2024-02-29T12:30:00+02:30",
    "2024-02-29T12:30:00-02:30:15",
    "2024-02-29T12:30:00+15:59:59",
    "2024-02-29T12:30:00+16",
    "2024-02-29T12:30:00-15:60",
    "2024-02-29T12:30:00 +02",
    "2024-02-29T12:30:00 UTC",
    "2024-02-29T12:30:00UTC",
    "2024-02-29T12:30:00 utc",
    "2024-02-29T12:30:00 CET",
    "2024-02-29T12:30:00 Europe/Oslo",
    "2024-02-29T12:30:00 GMT",
    "2023-02-29T12:30:00Z",
    "2024-02-29T24:00:00Z",
    "2024-02-29T24:00:00.000001Z",
    "2024-06-30T23:59:60Z",
    "2024-02-29T23:59:59.9999999Z",
    "0001-01-01T00:00:00Z BC",
    "0001-01-01 00:00:00+00 BC",
    "4714-11-24 00:00:00+00 BC",
    "4714-11-23 23:59:59.999999+00 BC",
    "294276-12-31T23:59:59.999999Z",
    "294276-12-31 23:59:59.9999995",
    "294277-01-01T00:00:00Z",
    "294277-01-01 00:00:00+01",
    "infinity",
    "-infinity",
    "INFINITY",
    "2024-03-31T02:30:00",
    "2024-10-27T02:30:00",
    "1999-12-31 23:59:59.5",
    "1999-12-31 23:59:59.4999999",
    "0000-01-01T00:00:00Z",
    "1969-12-31T23:59:59.9995Z",
    "1850-01-01T00:00:00",
    "9999-12-31T23:59:59.999999Z",
    "12024-02-29T12:30:00Z",
    "20240229",
    "today 12:00",
    "2024-02-29T12:30:00.Z",
    "2024-02-29T12:30:00.5+01:00 AD",
    "2024-02-29  12:30:00",
    "2024-02-29T 12:30:00Z",
    "2024-02-29T12:30:00  Z",
    "Thu Feb 29 2024 12:30",
    "2024-02-29T12Z",
    "2024-02-29T12:30:00+2",
    "2024-02-29T12:30:00+002",
    "2024-02-29T12:30:00+02:3",
    "2024-02-29T12:30:00-00:00",
    "",
    "2024-02-29T12:30:00ZZ",
    "1709209800",
    "2024-02-29 12:30 PM",
    "0001-01-01T00:00:00+01 BC",
    "0001-01-01T00:00:00-01",
    "2024-1-1 1:1:1",
    "2024-02-29T12:30:60Z",
    "2024-02-29T12:59:60.5Z",
];
const JSONS: &[&str] = &[
    r#"{"a":1.50,"b":[true,null]}"#,
    "1",
    "-0",
    "1.500",
    "1e400",
    "1e-400",
    "123456789012345678901234567890",
    "null",
    " null ",
    "true",
    "\"text\"",
    "\"a\\u0000b\"",
    "\"\\ud83d\"",
    "\"\\ud83d\\ude42\"",
    "\"\\ude42\"",
    "{}",
    "[]",
    " { \"b\" : 1, \"a\":2, \"b\":3 } ",
    "[1,[2,[3]]]",
    "",
    "{",
    "{'a':1}",
    "01",
    "NaN",
    "\"\t\"",
    "tru",
    "1 2",
    "\"\\x\"",
    "{\"a\":}",
    "[1,]",
    "\"æ🙂\"",
    "{\"\":\"\\\\\\\"\"}",
    "1E5",
    "-1.0e+2",
    "\"\\/\"",
    "nul",
    "\u{a0}1",
    "\u{b}1",
    "1e131072",
    "\"\\u00e6\"",
    "\"\\uD83D\\u0041\"",
];
const INTERVALS: &[&str] = &[
    "1 day",
    "P1Y2M3DT4H5M6.7S",
    "1 year 2 mons",
    "-1:30",
    "5",
    "1.5",
    "1-2",
    "3 4:05:06.789",
    "1 day ago",
    "",
    "x",
    "infinity",
    "178000001 years",
    "1 day 25:61:00",
    "@ 1 minute",
    "2147483648 days",
    "0.0000005 seconds",
    "P0001-02-03T04:05:06",
    "10:20",
    "1.234567 sec",
];

macro_rules! types {
    ($($sql:literal $cat:ident $texts:expr;)*) => {
        &[$(Type { sql: $sql, cat: Cat::$cat, texts: $texts }),*]
    };
}

/// All of them. `types_sql` says what the last ones are.
pub const TYPES: &[Type] = types! {
    "boolean" Bool &["true", "t", "TRUE", "fal", "no", "on", "of", "off", "o", "1", "0", "2", "", " yes ", "y", "truee", "null", "\u{a0}true", "yes\u{b}"];
    "smallint" Int INTS;
    "integer" Int INTS;
    "bigint" Int INTS;
    "real" Float FLOATS;
    "double precision" Float FLOATS;
    "numeric" Numeric NUMERICS;
    "numeric(5,2)" Numeric NUMERICS;
    "numeric(10,0)" Numeric NUMERICS;
    "numeric(38,18)" Numeric NUMERICS;
    "numeric(3,-2)" Numeric NUMERICS;
    "numeric(2,5)" Numeric NUMERICS;
    "numeric(1000,1000)" Numeric NUMERICS;
    "text" Text TEXTS;
    "varchar" Text TEXTS;
    "varchar(5)" Text TEXTS;
    "char(4)" Text TEXTS;
    "bpchar" Text TEXTS;
    "citext" Text TEXTS;
    "name" Name TEXTS;
    "bytea" Bytea BYTEAS;
    "uuid" Uuid UUIDS;
    "date" Date DATES;
    "time" Time TIMES;
    "time(2)" Time TIMES;
    "time(0)" Time TIMES;
    "timestamp" Timestamp STAMPS;
    "timestamp(0)" Timestamp STAMPS;
    "timestamp(3)" Timestamp STAMPS;
    "timestamptz" Timestamptz STAMPS;
    "timestamptz(1)" Timestamptz STAMPS;
    "timestamptz(6)" Timestamptz STAMPS;
    "json" Json JSONS;
    "jsonb" Json JSONS;
    "\"char\"" Cast &["a", "", "ab", "æ", "\\101", "\u{7f}", "\0"];
    "interval" Cast INTERVALS;
    "interval(2)" Cast INTERVALS;
    "interval day to second(1)" Cast INTERVALS;
    "interval minute" Cast INTERVALS;
    "interval year" Cast INTERVALS;
    "timetz" Cast TIMES;
    "timetz(0)" Cast TIMES;
    "inet" Cast &["127.0.0.1", "::1", "10.0.0.0/8", "10.0.0.1/33", "10/8", "fe80::1%eth0", "", "1.2.3", "256.1.1.1", " 1.2.3.4"];
    "cidr" Cast &["10.0.0.0/8", "10.0.0.1/8", "10", "::/0", "x"];
    "macaddr" Cast &["08:00:2b:01:02:03", "08002b010203", "08-00-2b-01-02-03", "08:00:2b:01:02", "g8:00:2b:01:02:03"];
    "macaddr8" Cast &["08:00:2b:01:02:03:04:05", "08:00:2b:01:02:03", ""];
    "int4range" Cast &["[1,5]", "empty", "(1,5]", "[5,1]", "[1,1)", "(,)", "[1,2147483647]", "[1,5", "{1,5}"];
    "numrange" Cast &["[1.5,2)", "(,1.50]", "empty", "[2,1]", "[a,b]"];
    "daterange" Cast &["[2024-01-01,2024-02-01)", "[2024-01-01,2024-01-31]", "[today,)", "(,infinity]"];
    "tstzrange" Cast &["[2024-01-01 00:00:00+00,2024-02-01 00:00:00+00)", "[\"2024-01-01 00:00:00\",)", "empty"];
    "int4multirange" Cast &["{[1,5),[7,9)}", "{}", "{[1,5),[3,9)}", "{[5,1)}", "[1,5)"];
    "bit" Cast &["1", "0", "10", "", "2", "x1"];
    "bit(4)" Cast &["1010", "101", "10101", "xA", "b1010", "x5F", ""];
    "varbit" Cast &["101", "", "xFF", "2"];
    "varbit(3)" Cast &["101", "1010", "1", "xF"];
    "money" Cast &["1.50", "$1,000.505", "-5", "(5)", "92233720368547758.07", "92233720368547758.08", "abc", ""];
    "xml" Cast &["<a>1</a>", "text", "<a>", "", "<?xml version=\"1.0\"?><a/>", "<a>&amp;</a>", "&"];
    "oid" Cast &["1", "4294967295", "4294967296", "-1", "x", "1.0"];
    "tsvector" Cast &["a:1 b:2", "'it''s':3A", "", "a:x"];
    "tsquery" Cast &["a & b", "!a | (b <-> c)", "a &", ""];
    "point" Cast &["(1,2)", "1,2", "(1e400,2)", "(1,2", "[1,2]"];
    "box" Cast &["(2,2),(1,1)", "1,2,3,4", "(1,2)"];
    "polygon" Cast &["((0,0),(1,1),(2,0))", "()"];
    "pg_lsn" Cast &["16/B374D848", "G/0", "0/0"];
    "xid8" Cast &["18446744073709551615", "1", "x"];
    "jsonpath" Cast &["$.a[*] ? (@ > 1)", "$.", "strict $"];
    "integer[]" Array &["{1,2}", "{}", "{1,NULL}", "{{1,2},{3,4}}", "{{1},{2,3}}", "{1,x}", "[2:3]={1,2}", "{1,2", "{ 1 , 2 }", "1", "{\"1\"}"];
    "text[]" Array &["{a,b}", "{\"a,b\",\"c\\\"d\"}", "{NULL,\"NULL\"}", "{}", "{a b, c}", "{\"\"}", "{,}"];
    "varchar(3)[]" Array &["{abc}", "{abcd}", "{\"ab   \"}"];
    "numeric(5,2)[]" Array &["{1.555,NaN}", "{1000}", "{}"];
    "boolean[]" Array &["{t,f,true}", "{maybe}"];
    "double precision[]" Array &["{1.5,NaN,-0}", "{1e400}"];
    "bytea[]" Array &["{\"\\\\x00ff\",abc}", "{\"\\\\x0\"}"];
    "date[]" Array &["{2024-02-29,infinity}", "{2023-02-29}", "{today}"];
    "timestamptz[]" Array &["{2024-02-29T12:30:00Z}", "{2024-02-29 12:30:00}", "{x}"];
    "uuid[]" Array &["{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}", "{a}"];
    "json[]" JsonArray &["{\"1\",\"{\\\"a\\\":1}\"}", "{}", "{x}"];
    "jsonb[]" JsonArray &["{\"1.50\",\"{\\\"b\\\":1,\\\"a\\\":2}\"}", "{NULL}", "{\"\\\"\\\\\\\\u0000\\\"\"}"];
    "mood" Text TEXTS;
    "mood[]" Array &["{happy,\"so so\"}", "{glad}", "{Happy}"];
    "pair" Cast &["(1,a)", "(1,)", "(,\"a,b\")", "(x,a)", "(1,a,2)", "1,a", "()"];
    "positive" Int INTS;
    "positive[]" Array &["{1,2}", "{0}", "{-1,2}"];
    "short" Text TEXTS;
    "shorter" Text TEXTS;
    "cents" Numeric NUMERICS;
    "deciseconds" Timestamp STAMPS;
    "nibble" Cast &["1010", "101", "xA"];
    "needed" Text TEXTS;
    "few" Array &["{1}", "{1,2,3}", "{}"];
    "net" Cast &["127.0.0.1", "::1", "10.0.0.0/8"];
};

/// What makes the types that the server has not.
pub fn types_sql() -> &'static str {
    "create type mood as enum ('sad', 'so so', 'happy', 'it''s', '');
     create type pair as (a integer, b text);
     create domain positive as integer check (value > 0);
     create domain short as varchar(4);
     create domain shorter as short check (length(value) < 4);
     create domain cents as numeric(6,2);
     create domain deciseconds as timestamp(1);
     create domain nibble as bit(4);
     create domain needed as text not null;
     create domain few as integer[] check (cardinality(value) < 3);
     create domain net as inet check (family(value) = 4);"
}
