//! Random values for a column.

use super::column::{Cat, Type};
use super::value::Val;
use crate::random::Random;

const INTS: [i64; 18] = [
    0,
    1,
    -1,
    5,
    255,
    256,
    32767,
    32768,
    -32768,
    -32769,
    2147483647,
    2147483648,
    -2147483648,
    -2147483649,
    i64::MAX,
    i64::MIN,
    1_709_209_800,
    1_709_209_800_123,
];
const WIDE: [i128; 5] =
    [i64::MAX as i128 + 1, i64::MIN as i128 - 1, u64::MAX as i128, i128::MAX, i128::MIN];
const FLOATS: [f64; 32] = [
    0.0,
    -0.0,
    1.0,
    1.5,
    0.1,
    -2.5,
    1e15,
    1e16,
    1e22,
    1e23,
    123456789.125,
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::MAX,
    f64::MIN_POSITIVE,
    5e-324,
    3.4028235e38,
    3.4028235677973366e38,
    3.4028236e38,
    1e-45,
    7e-46,
    1e-46,
    2147483647.0,
    2147483648.0,
    9223372036854775808.0,
    -9223372036854775808.0,
    32767.5,
    1e-5,
    0.0001,
    999999.5,
    1709209800.1234565,
];
const MUTANTS: [char; 34] = [
    ' ', '\t', '\n', '-', '+', '.', ',', ':', 'e', 'E', '0', '1', '5', '9', 'T', 'Z', '"', '\'',
    '\\', '{', '}', '[', ']', '(', ')', 'x', 'n', 'a', '/', '\u{0}', '\u{b}', '\u{a0}', 'æ', '🙂',
];

/// Any value, for a column of type `of`.
pub fn value(random: &mut Random, of: &Type, all: &[Type]) -> Val {
    match random.below(20) {
        0 => Val::Null,
        1 | 2 => anything(random, 2),
        3..=8 => Val::Str(text(random, of, all)),
        9..=14 => Val::Json(json(random, of, all)),
        15 => Val::Utf8(bytes_of(random, of, all)),
        _ => natural(random, of, all),
    }
}

/// A text for the type: one of its own, one mutated, a number or a time made up, another type's.
pub fn text(random: &mut Random, of: &Type, all: &[Type]) -> String {
    let mut text = match random.below(10) {
        0 => {
            let other = &all[random.below(all.len())];
            random.of(other.texts).to_owned()
        }
        1..=3 if matches!(of.cat, Cat::Int | Cat::Float | Cat::Numeric) => number(random),
        1..=4 if of.cat.is_time() => moment(random, of.cat),
        _ => random.of(of.texts).to_owned(),
    };
    if random.once_in(3) {
        for _ in 0..=random.below(2) {
            mutate(random, &mut text);
        }
    }
    text
}

fn mutate(random: &mut Random, text: &mut String) {
    let mut chars: Vec<char> = text.chars().collect();
    let at = random.below(chars.len() + 1);
    match random.below(4) {
        0 if at < chars.len() => drop(chars.remove(at)),
        1 if at < chars.len() => chars[at] = random.of(&MUTANTS),
        2 if at < chars.len() => chars.insert(at, chars[at]),
        _ => chars.insert(at, random.of(&MUTANTS)),
    }
    *text = chars.into_iter().collect();
}

fn digits(random: &mut Random, most: usize) -> String {
    (0..random.below(most + 1))
        .map(|_| random.of(&['0', '0', '1', '4', '5', '9', '9', '7']))
        .collect()
}

fn number(random: &mut Random) -> String {
    let sign = random.of(&["", "", "-", "+"]);
    let most = random.of(&[2, 6, 20, 45]);
    let mut text = format!("{sign}{}", digits(random, most));
    if random.once_in(2) {
        text = format!("{text}.{}", digits(random, most));
    }
    if random.once_in(4) {
        let exponent = random.of(&["", "-", "+"]);
        text = format!("{text}e{exponent}{}", digits(random, 3));
    }
    text
}

/// A day and time of the usual forms, not always one that exists.
fn moment(random: &mut Random, cat: Cat) -> String {
    let year = match random.below(4) {
        0 => random.below(10_000),
        1 => random.of(&[
            1, 4, 99, 100, 400, 1600, 1883, 1969, 1970, 2000, 2100, 4713, 9999, 99_999, 294_276,
            294_277,
        ]),
        _ => 1970 + random.below(80),
    };
    let (month, day) = (random.below(13) + usize::from(!random.once_in(20)), random.below(31) + 1);
    let date = match random.below(8) {
        0 => format!("{year:04}{month:02}{day:02}"),
        1 => format!("{year:04}-{month}-{day}"),
        _ => format!("{year:04}-{month:02}-{day:02}"),
    };
    let (hour, minute, second) = (random.below(25), random.below(60), random.below(61));
    let mut time = match random.below(8) {
        0 => format!("{hour:02}:{minute:02}"),
        1 => format!("{hour}:{minute}:{second}"),
        2 => format!("{hour:02}{minute:02}{second:02}"),
        _ => format!("{hour:02}:{minute:02}:{second:02}"),
    };
    if random.once_in(2) {
        time = format!("{time}.{}", digits(random, 9));
    }
    let zone = match random.below(6) {
        0 => "Z".to_owned(),
        1 => format!("{}{:02}", random.of(&['+', '-']), random.below(17)),
        2 => format!("{}{:02}:{:02}", random.of(&['+', '-']), random.below(16), random.below(61)),
        3 => format!("{}{:02}{:02}", random.of(&['+', '-']), random.below(16), random.below(60)),
        _ => String::new(),
    };
    let era = random.of(&["", "", "", "", "", " BC"]);
    let gap = random.of(&["T", " "]);
    match cat {
        Cat::Date => format!("{date}{era}"),
        Cat::Time => time,
        Cat::Timestamp if !random.once_in(6) => format!("{date}{gap}{time}{era}"),
        _ => format!("{date}{gap}{time}{zone}{era}"),
    }
}

fn bytes_of(random: &mut Random, of: &Type, all: &[Type]) -> Vec<u8> {
    let mut bytes = text(random, of, all).into_bytes();
    if random.once_in(4) {
        let at = random.below(bytes.len() + 1);
        bytes.insert(at, random.of(&[0xff, 0xc3, 0x80, 0, 0xed]));
    }
    bytes
}

/// A text as a JSON string, some characters escaped, sometimes with half of a surrogate pair.
fn quoted(random: &mut Random, text: &str) -> String {
    let mut json = String::from('"');
    for c in text.chars() {
        let mut units = [0; 2];
        if c < ' ' || random.once_in(12) {
            for unit in c.encode_utf16(&mut units) {
                json.push_str(&format!("\\u{unit:04x}"));
            }
        } else if matches!(c, '"' | '\\') {
            json.extend(['\\', c]);
        } else {
            json.push(c);
        }
    }
    if random.once_in(60) {
        json.push_str(random.of(&["\\ud83d", "\\ude42", "\\u0000", "\\/"]));
    }
    json.push('"');
    json
}

/// One JSON value for the type, as it might be written.
pub fn json(random: &mut Random, of: &Type, all: &[Type]) -> String {
    let made = match random.below(12) {
        0 => random
            .of(&["null", "true", "false", "{}", "[]", "[1,5]", "[[1],[2]]", "{\"a\":1}"])
            .to_owned(),
        1 => number(random),
        2 => random.of(&INTS).to_string(),
        3 | 4 if matches!(of.cat, Cat::Array | Cat::JsonArray) => list(random, of, 0),
        5 | 6 if of.cat == Cat::Json => text(random, of, all),
        7 if matches!(of.cat, Cat::Int | Cat::Float | Cat::Numeric | Cat::Cast) => {
            text(random, of, all)
        }
        _ => {
            let text = text(random, of, all);
            quoted(random, &text)
        }
    };
    if is_json(&made) { made } else { quoted(random, &made) }
}

/// An array of texts and numbers that elements of array types are made of.
fn list(random: &mut Random, of: &Type, depth: usize) -> String {
    let elements = (0..random.below(4)).map(|_| match random.below(8) {
        0 => "null".to_owned(),
        1 => number_json(random),
        2 if depth < 3 => list(random, of, depth + 1),
        3 => "{\"a\": 1.50}".to_owned(),
        _ => {
            let inner = random.of(of.texts);
            let inner = inner.trim_matches(['{', '}']).split(',').next().unwrap_or_default();
            quoted(random, inner)
        }
    });
    let elements: Vec<String> = elements.collect();
    format!("[{}]", elements.join(random.of(&[",", " , "])))
}

fn number_json(random: &mut Random) -> String {
    let text = number(random);
    if is_json(&text) { text } else { "7".to_owned() }
}

/// Half surrogate pairs are JSON, as far as syntax goes; what stands around it is not its own.
pub fn is_json(text: &str) -> bool {
    serde_json::from_str::<&serde_json::value::RawValue>(text).is_ok_and(|raw| raw.get() == text)
}

/// A value as a typed row would have it.
fn natural(random: &mut Random, of: &Type, all: &[Type]) -> Val {
    match of.cat {
        Cat::Bool => Val::Bool(random.once_in(2)),
        Cat::Int | Cat::Float | Cat::Numeric => figure(random),
        Cat::Bytea if random.once_in(2) => {
            Val::Seq((0..random.below(5)).map(|_| byte(random)).collect())
        }
        Cat::Bytea => Val::Bytes((0..random.below(9)).map(|_| random.next() as u8).collect()),
        Cat::Uuid => {
            let length = random.of(&[16, 16, 16, 15, 17, 0]);
            Val::Bytes((0..length).map(|_| random.next() as u8).collect())
        }
        Cat::Date | Cat::Time | Cat::Timestamp | Cat::Timestamptz => match random.below(3) {
            0 => Val::Millis(instant(random)),
            1 => Val::Int(instant(random)),
            _ => figure(random),
        },
        Cat::Array | Cat::JsonArray => elements(random, of, all, 0),
        Cat::Json => anything(random, 4),
        _ => Val::Str(text(random, of, all)),
    }
}

fn byte(random: &mut Random) -> Val {
    let odd = random.once_in(16);
    Val::Int(if odd { random.of(&[256, -1]) } else { random.of(&[0, 1, 127, 128, 255]) })
}

fn elements(random: &mut Random, of: &Type, all: &[Type], depth: usize) -> Val {
    let element = |random: &mut Random| match random.below(10) {
        0 => Val::Null,
        1 => figure(random),
        2 if depth < 3 => elements(random, of, all, depth + 1),
        3 => anything(random, 1),
        4 => Val::Json(json(random, of, all)),
        _ => {
            let inner = random.of(of.texts);
            let inner = inner.trim_matches(['{', '}']).split(',').next().unwrap_or_default();
            Val::Str(inner.to_owned())
        }
    };
    Val::Seq((0..random.below(4)).map(|_| element(random)).collect())
}

fn instant(random: &mut Random) -> i64 {
    let spread = random.of(&[
        1_000_000_000_i64,
        100_000_000_000,
        4_000_000_000_000,
        400_000_000_000_000,
        i64::MAX,
    ]);
    (random.next() as i64) % spread
}

/// Any number.
fn figure(random: &mut Random) -> Val {
    match random.below(8) {
        0 | 1 => Val::Int(random.of(&INTS)),
        2 => Val::Int(random.next() as i64 >> random.below(64)),
        3 => Val::Wide(random.of(&WIDE)),
        4 if random.once_in(2) => Val::Huge(u128::MAX),
        4 => Val::F64(f64::from_bits(random.next())),
        5 => Val::F64(random.of(&FLOATS)),
        6 => Val::F32(random.of(&FLOATS) as f32),
        _ => Val::F64((random.next() as i64 >> 40) as f64 / random.of(&[1.0, 10.0, 1000.0, 64.0])),
    }
}

/// Any value at all.
fn anything(random: &mut Random, depth: usize) -> Val {
    let several = |random: &mut Random| random.below(4);
    match random.below(if depth == 0 { 8 } else { 11 }) {
        0 => Val::Null,
        1 => Val::Bool(random.once_in(2)),
        2 | 3 => figure(random),
        4 => Val::Char(random.of(&MUTANTS)),
        5 => Val::Str(random.of(&["", "1", "true", "a\u{0}b", "æ", "\"\\\n", "null"]).to_owned()),
        6 => Val::Bytes((0..several(random)).map(|_| random.next() as u8).collect()),
        7 => Val::Millis(instant(random)),
        8 => Val::Seq((0..several(random)).map(|_| anything(random, depth - 1)).collect()),
        9 => Val::Json(
            random.of(&["1.50", "\"\\u0041\"", "null", "{\"a\" :1}", "[1, 2]", "true"]).to_owned(),
        ),
        _ => Val::Map(
            (0..several(random))
                .map(|index| {
                    (
                        random.of(&["a", "b", "æ\"", ""]).repeat(index + 1),
                        anything(random, depth - 1),
                    )
                })
                .collect(),
        ),
    }
}
