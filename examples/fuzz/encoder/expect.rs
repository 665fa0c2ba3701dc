//! What a value should become: the SQL by which the server makes the same of it, or that it is refused.
//!
//! Written from docs/types.md alone. Where the sink refuses more than the server does, the entry says so.

use serde_json::value::RawValue;

use super::column::Cat;
use super::value::Val;

/// What is expected of a value.
#[derive(Clone, Debug)]
pub enum Expect {
    /// What the server makes of this expression in `insert .. values`.
    Sql(String),
    /// The same, but it may be refused with one of these SQLSTATEs for a documented reason.
    Or(String, &'static str, &'static str),
    /// Taken, but perhaps as another value, for a documented reason.
    Near(String, &'static str),
    /// Refused with this SQLSTATE, or one of its class, whatever the server would say.
    Refused(&'static str),
}

use Expect::{Near, Or, Refused, Sql};

/// A shape that the column does not take.
const MISMATCH: Expect = Refused("42804");
/// A text with the character NUL, or half of a surrogate pair, or not UTF-8.
const CHARACTER: Expect = Refused("22021");

/// What a column says beside its type.
#[derive(Clone, Copy, Debug)]
pub struct Of {
    pub cat: Cat,
    /// Decimal digits of the declared unit's seconds.
    pub unit: Option<u32>,
    pub zone: bool,
}

pub fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// What `value` should become.
pub fn expect(of: Of, value: &Val) -> Expect {
    if of.cat == Cat::Json {
        return json_column(of, value);
    }
    match value {
        Val::Null => Sql("null".to_owned()),
        Val::Bool(value) => match of.cat {
            Cat::Bool => Sql(value.to_string()),
            Cat::Text | Cat::Name | Cat::Cast | Cat::Array | Cat::JsonArray => {
                text(of, &value.to_string())
            }
            _ => MISMATCH,
        },
        Val::Int(value) => integer(of, &value.to_string()),
        Val::Wide(value) => integer(of, &value.to_string()),
        Val::Huge(value) => integer(of, &value.to_string()),
        Val::F64(value) => {
            float(of, *value, &format!("{value:e}"), &value.to_string(), "float8", 15)
        }
        Val::F32(value) => {
            let display = f64::from(*value).to_string();
            float(of, f64::from(*value), &format!("{value:e}"), &display, "float4", 6)
        }
        Val::Char(value) => typed_text(of, &value.to_string()),
        Val::Str(value) => typed_text(of, value),
        Val::Bytes(bytes) => match of.cat {
            Cat::Bytea => Sql(hex(bytes)),
            Cat::Uuid if bytes.len() == 16 => Sql(literal(&hex(bytes)[3..35])),
            Cat::Uuid => Refused("22P02"),
            _ => MISMATCH,
        },
        Val::Seq(values) => match of.cat {
            Cat::Bytea => {
                let byte = |value: &Val| match value {
                    Val::Int(value) => u8::try_from(*value).ok(),
                    _ => None,
                };
                let bytes: Option<Vec<u8>> = values.iter().map(byte).collect();
                bytes.map_or(MISMATCH, |bytes| Sql(hex(&bytes)))
            }
            Cat::Array | Cat::JsonArray => match array(values, of.cat == Cat::JsonArray) {
                Ok(text) => Sql(literal(&text)),
                Err(refused) => refused,
            },
            _ => MISMATCH,
        },
        Val::Map(_) => MISMATCH,
        Val::Json(json) => raw_json(of, json),
        Val::Utf8(bytes) if of.cat == Cat::Bytea => Sql(hex(bytes)),
        Val::Utf8(bytes) => match std::str::from_utf8(bytes) {
            Ok(value) => text(of, value),
            Err(_) => CHARACTER,
        },
        Val::Millis(millis) if of.cat.is_time() => {
            count(Of { unit: Some(3), ..of }, &millis.to_string())
        }
        Val::Millis(millis) => integer(of, &millis.to_string()),
    }
}

fn integer(of: Of, digits: &str) -> Expect {
    match of.cat {
        Cat::Bool | Cat::Bytea | Cat::Uuid => MISMATCH,
        cat if cat.is_time() => count(of, digits),
        _ => Sql(literal(digits)),
    }
}

fn float(of: Of, value: f64, shortest: &str, display: &str, name: &str, digits: i32) -> Expect {
    let server = format!("{}::{name}", literal(shortest));
    match of.cat {
        // A whole number is taken as one, however it is printed.
        Cat::Int if value.is_finite() && value.trunc() == value => {
            Sql(literal(&format!("{value:.0}")))
        }
        Cat::Int => Sql(literal(display)),
        Cat::Float => Sql(server),
        Cat::Numeric => Sql(literal(shortest)),
        Cat::Text | Cat::Name | Cat::Cast | Cat::Array | Cat::JsonArray => {
            Sql(literal(&printed(value, shortest, digits)))
        }
        cat if cat.is_time() => count(of, display),
        _ => MISMATCH,
    }
}

/// A float as the server prints it, from its shortest digits.
pub fn printed(value: f64, shortest: &str, digits: i32) -> String {
    if !value.is_finite() {
        let names = if value > 0.0 { "Infinity" } else { "-Infinity" };
        return if value.is_nan() { "NaN".to_owned() } else { names.to_owned() };
    }
    let (mantissa, exponent) = shortest.split_once('e').expect("it has an exponent");
    let exponent: i32 = exponent.parse().expect("a number");
    if exponent < -4 || exponent >= digits {
        return format!("{mantissa}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs());
    }
    let sign = if mantissa.starts_with('-') { "-" } else { "" };
    let figures: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let point = exponent + 1;
    if point <= 0 {
        return format!("{sign}0.{}{figures}", "0".repeat(point.unsigned_abs() as usize));
    }
    let point = point as usize;
    if figures.len() <= point {
        return format!("{sign}{figures}{}", "0".repeat(point - figures.len()));
    }
    format!("{sign}{}.{}", &figures[..point], &figures[point..])
}

/// A text of a typed row.
fn typed_text(of: Of, value: &str) -> Expect {
    if of.cat == Cat::Bytea && !value.starts_with("\\x") {
        // Escapes are for texts whose source has no bytes.
        return Refused("22P02");
    }
    text(of, value)
}

/// A text that goes where the server would put it.
fn text(of: Of, value: &str) -> Expect {
    if value.contains('\0') {
        return CHARACTER;
    }
    let sql = literal(value);
    match of.cat {
        // The server would cut it.
        Cat::Name if value.len() > 63 => Refused("42622"),
        Cat::Date | Cat::Time | Cat::Timestamp | Cat::Timestamptz if !is_iso(of, value) => Or(
            sql,
            "22007 22008",
            "a time in a form that the server guesses, or with what it would drop",
        ),
        Cat::Timestamp | Cat::Timestamptz if value.contains("294276") => {
            Or(sql, "22008", "a time that is rounded beyond the last, which no dump restores")
        }
        Cat::Timestamptz if of.zone && is_old(value) => {
            Near(sql, "a time before 1970 without an offset, by another time zone database")
        }
        Cat::Numeric if value.trim().contains(char::is_whitespace) => {
            Or(sql, "22P02", "a space within a number, which the server takes behind an `e`")
        }
        Cat::Float if value.contains(['x', 'X']) => {
            Or(sql, "22P02", "a float in hexadecimal digits")
        }
        _ => Sql(sql),
    }
}

/// A number under a unit.
fn count(of: Of, number: &str) -> Expect {
    let Some(unit) = of.unit else { return Refused("22007") };
    let (negative, digits) = match number.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, number),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let plain = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !plain(whole) || !plain(fraction) {
        return Refused("22007");
    }
    let Ok(whole) = whole.parse::<i128>() else { return Refused("22008") };
    let scale = 9 - unit;
    let fraction = format!("{fraction:0<9}")[..scale as usize].parse::<i128>().unwrap_or(0);
    let Some(nanos) = whole.checked_mul(10_i128.pow(scale)).and_then(|n| n.checked_add(fraction))
    else {
        return Refused("22008");
    };
    let nanos = if negative { -nanos } else { nanos };
    let Some(nanos) = nanos.checked_add(500) else { return Refused("22008") };
    let micros = nanos.div_euclid(1000);
    let (day, micros) = (micros.div_euclid(86_400_000_000), micros.rem_euclid(86_400_000_000));
    if i32::try_from(day).is_err() {
        return Refused("22008");
    }
    let date = format!("(date '1970-01-01' + ({day}))");
    let time = format!("interval '{micros} microseconds'");
    Sql(match of.cat {
        Cat::Date => date,
        // An instant beyond the range of timestamps is no instant.
        Cat::Time if !(-2_451_545 + 10_957..109_203_528 - 10_957).contains(&day) => {
            return Refused("22008");
        }
        Cat::Time => format!("(time '00:00' + {time})"),
        Cat::Timestamp => format!("({date}::timestamp + {time})"),
        _ => format!("(({date}::timestamp + {time}) at time zone 'UTC')"),
    })
}

fn raw_json(of: Of, json: &str) -> Expect {
    let trimmed = json.trim_matches([' ', '\t', '\n', '\r']);
    match trimmed.as_bytes().first() {
        Some(b'n') => Sql("null".to_owned()),
        Some(b'"') => match serde_json::from_str::<String>(trimmed) {
            Ok(value) => text(of, &value),
            Err(_) => CHARACTER,
        },
        Some(b'[') => match of.cat {
            Cat::Array | Cat::JsonArray => match raw_array(trimmed, of.cat == Cat::JsonArray) {
                Ok(text) => Sql(literal(&text)),
                Err(refused) => refused,
            },
            Cat::Text | Cat::Name | Cat::Bytea => Refused("22P02"),
            _ => text(of, trimmed),
        },
        Some(b'{') => match of.cat {
            Cat::Text | Cat::Name | Cat::Bytea => Refused("22P02"),
            _ => text(of, trimmed),
        },
        Some(b't' | b'f') => text(of, trimmed),
        _ if of.cat.is_time() => count(of, trimmed),
        _ => text(of, trimmed),
    }
}

fn element(text: &str) -> Result<String, Expect> {
    if text.contains('\0') {
        return Err(CHARACTER);
    }
    Ok(format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")))
}

fn raw_array(json: &str, is_json: bool) -> Result<String, Expect> {
    let parts: Vec<&RawValue> = serde_json::from_str(json).expect("it is an array");
    let parts: Result<Vec<String>, Expect> =
        parts.iter().map(|part| raw_element(part.get(), is_json)).collect();
    Ok(format!("{{{}}}", parts?.join(",")))
}

fn raw_element(json: &str, is_json: bool) -> Result<String, Expect> {
    let json = json.trim_matches([' ', '\t', '\n', '\r']);
    match json.as_bytes().first() {
        Some(b'n') => Ok("NULL".to_owned()),
        _ if is_json => element(json),
        Some(b'[') => raw_array(json, is_json),
        Some(b'"') => element(&serde_json::from_str::<String>(json).map_err(|_| CHARACTER)?),
        _ => element(json),
    }
}

fn array(values: &[Val], is_json: bool) -> Result<String, Expect> {
    let parts = values.iter().map(|value| {
        if is_json {
            let json = to_json(value)?;
            return if json == "null" { Ok("NULL".to_owned()) } else { element(&json) };
        }
        Ok(match value {
            Val::Null => "NULL".to_owned(),
            Val::Bool(value) => element(&value.to_string())?,
            Val::Int(value) | Val::Millis(value) => element(&value.to_string())?,
            Val::Wide(value) => element(&value.to_string())?,
            Val::Huge(value) => element(&value.to_string())?,
            Val::F64(value) => element(&printed(*value, &format!("{value:e}"), 15))?,
            Val::F32(value) => element(&printed(f64::from(*value), &format!("{value:e}"), 6))?,
            Val::Char(value) => element(&value.to_string())?,
            Val::Str(value) => element(value)?,
            Val::Bytes(bytes) => element(hex(bytes).trim_matches('\''))?,
            Val::Seq(values) => array(values, is_json)?,
            Val::Map(_) => return Err(MISMATCH),
            Val::Json(json) => raw_element(json, is_json)?,
            Val::Utf8(bytes) => element(std::str::from_utf8(bytes).map_err(|_| CHARACTER)?)?,
        })
    });
    let parts: Result<Vec<String>, Expect> = parts.collect();
    Ok(format!("{{{}}}", parts?.join(",")))
}

fn hex(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("'\\x{digits}'")
}

fn json_column(of: Of, value: &Val) -> Expect {
    match value {
        // Its text should be JSON.
        Val::Utf8(bytes) => match std::str::from_utf8(bytes) {
            Ok(value) => text(of, value),
            Err(_) => CHARACTER,
        },
        Val::Json(json) if json.trim() == "null" => Sql("null".to_owned()),
        Val::Json(json) => Sql(literal(json)),
        value => match to_json(value) {
            Ok(json) if json == "null" => Sql("null".to_owned()),
            Ok(json) => Sql(literal(&json)),
            Err(refused) => refused,
        },
    }
}

/// A value as serde_json prints it, with JSON values as they were written.
fn to_json(value: &Val) -> Result<String, Expect> {
    let parts = |parts: Vec<String>| parts.join(",");
    let list =
        |values: &[Val]| values.iter().map(to_json).collect::<Result<Vec<_>, _>>().map(parts);
    Ok(match value {
        Val::Seq(values) => format!("[{}]", list(values)?),
        Val::Map(entries) => {
            let entry = |(name, value): &(String, Val)| {
                Ok(format!("{}:{}", serde_json::to_string(name).expect("a text"), to_json(value)?))
            };
            let entries = entries.iter().map(entry).collect::<Result<Vec<_>, Expect>>();
            format!("{{{}}}", parts(entries?))
        }
        Val::Json(json) => json.clone(),
        Val::Utf8(bytes) => {
            let text = std::str::from_utf8(bytes).map_err(|_| CHARACTER)?;
            serde_json::to_string(text).expect("a text")
        }
        Val::Millis(millis) => millis.to_string(),
        scalar => serde_json::to_string(scalar).expect("a scalar"),
    })
}

/// Whether a text has a form of RFC 3339 or ISO 8601, or one that the server prints, for the column.
fn is_iso(of: Of, text: &str) -> bool {
    let text = text.trim_matches([' ', '\t', '\n', '\u{b}', '\u{c}', '\r']);
    if of.cat == Cat::Time {
        return is_time(text, false);
    }
    if ["infinity", "-infinity"].iter().any(|word| text.eq_ignore_ascii_case(word)) {
        return true;
    }
    let lower = text.to_ascii_lowercase();
    let body = lower.strip_suffix("bc").or(lower.strip_suffix("ad")).unwrap_or(&lower).trim_end();
    let (date, rest) = match body.find(['t', ' ']) {
        Some(at) => (&body[..at], Some(&body[at + 1..])),
        None => (body, None),
    };
    let parts: Vec<&str> = date.split('-').collect();
    let all_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    // Several spaces may stand for the `T`, but none behind it.
    let rest = rest.map(|rest| if body.contains('t') { rest } else { rest.trim_start() });
    let is_date = match parts[..] {
        [date] => date.len() == 8 && all_digits(date),
        [year, month, day] => {
            parts.iter().all(|part| all_digits(part))
                && (4..8).contains(&year.len())
                && month.len() < 3
                && day.len() < 3
        }
        _ => false,
    };
    let Some(rest) = rest else {
        return is_date && (of.cat != Cat::Timestamptz || of.zone);
    };
    let at = rest.find(['z', 'u', '+', '-']).unwrap_or(rest.len());
    let (time, zone) = (rest[..at].trim_end(), &rest[at..]);
    if rest[..at].bytes().all(|b| b.is_ascii_digit()) && zone.starts_with('-') && zone.contains(':')
    {
        // Neither basic nor extended; the server reads a date there.
        return false;
    }
    let zoned = match of.cat {
        Cat::Timestamptz => (zone.is_empty() && of.zone) || is_zone(zone),
        Cat::Timestamp => zone.is_empty(),
        _ => return false,
    };
    is_date && zoned && is_time(time, true)
}

/// Whether a text begins with a year before 1970.
fn is_old(text: &str) -> bool {
    let text = text.trim_start();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let year = text[..digits].parse::<i64>().unwrap_or(0);
    let year = if digits == 8 { year / 10_000 } else { year };
    year < 1970 || text.to_ascii_lowercase().ends_with("bc")
}

fn is_time(text: &str, basic: bool) -> bool {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let parts: Vec<&str> = whole.split(':').collect();
    let digits = |text: &str, most: usize| {
        (1..=most).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit())
    };
    let exact = digits(fraction, 100);
    match parts[..] {
        [time] => {
            // Without colons the server takes 24:59 too, and 95 seconds.
            basic
                && digits(time, 6)
                && !time.starts_with("24")
                && time.get(4..).is_none_or(|second| second.is_empty() || second < "60")
                && (time.len() == 6 || (time.len() == 4 && !text.contains('.')))
                && exact
        }
        [hour, minute] => digits(hour, 2) && digits(minute, 2) && !text.contains('.'),
        [hour, minute, second] => {
            digits(hour, 2)
                && digits(minute, 2)
                && digits(second, 2)
                && (fraction.is_empty() || exact)
        }
        _ => false,
    }
}

fn is_zone(text: &str) -> bool {
    if text == "z" || text == "utc" {
        return true;
    }
    let Some(rest) = text.strip_prefix(['+', '-']) else { return false };
    let parts: Vec<&str> = rest.split(':').collect();
    let two = |text: &str| text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit());
    match parts[..] {
        [hour] if hour.len() == 4 => hour.bytes().all(|b| b.is_ascii_digit()),
        _ => parts.len() < 4 && parts.iter().all(|part| two(part)),
    }
}
