//! `real`, `double precision`, and floats as text.

use std::io::Write;

use super::fault::Fault;
use super::field;
use super::kind::Kind;
use super::text::trim;

/// Writes `value`; too large or too small for the type is refused, as the server does.
#[inline]
pub(super) fn put(kind: Kind, value: f64, out: &mut Vec<u8>) -> Result<(), Fault> {
    if kind == Kind::Float8 {
        field::eight(value.to_be_bytes(), out);
        return Ok(());
    }
    let narrow = value as f32;
    if (narrow.is_infinite() && value.is_finite()) || (narrow == 0.0 && value != 0.0) {
        return Err(Fault::range(value, kind.name()));
    }
    field::four(narrow.to_be_bytes(), out);
    Ok(())
}

/// Reads a decimal number, `NaN`, `Infinity`, `inf`.
pub(super) fn put_text(kind: Kind, text: &str, out: &mut Vec<u8>) -> Result<(), Fault> {
    let number = trim(text);
    let syntax = |_| Fault::syntax(text, kind.name());
    let mantissa = number.split(['e', 'E']).next().unwrap_or_default();
    let digits = mantissa.bytes().any(|b| b.is_ascii_digit());
    let zero = !mantissa.bytes().any(|b| matches!(b, b'1'..=b'9'));
    // Digits that end as infinity are an overflow, digits other than 0 that end as 0 an underflow.
    let lost = |infinite: bool, nought: bool| digits && (infinite || (nought && !zero));
    if kind == Kind::Float8 {
        let value: f64 = number.parse().map_err(syntax)?;
        if lost(value.is_infinite(), value == 0.0) {
            return Err(Fault::range(text, kind.name()));
        }
        field::eight(value.to_be_bytes(), out);
    } else {
        let value: f32 = number.parse().map_err(syntax)?;
        if lost(value.is_infinite(), value == 0.0) {
            return Err(Fault::range(text, kind.name()));
        }
        field::four(value.to_be_bytes(), out);
    }
    Ok(())
}

/// The shortest digits that give the same `double precision` back, laid out as the server does; the
/// server's may differ in the last digit, or have one more.
pub(super) fn text64(value: f64, out: &mut Vec<u8>) {
    let mut shortest = [0; 32];
    if value.is_finite() {
        layout(format(&mut shortest, format_args!("{value:e}")), 15, out);
    } else {
        special(value, out);
    }
}

/// The same for `real`.
pub(super) fn text32(value: f32, out: &mut Vec<u8>) {
    let mut shortest = [0; 32];
    if value.is_finite() {
        layout(format(&mut shortest, format_args!("{value:e}")), 6, out);
    } else {
        special(f64::from(value), out);
    }
}

/// What `arguments` print, in `buffer`.
pub(super) fn format<'a>(buffer: &'a mut [u8], arguments: std::fmt::Arguments<'_>) -> &'a str {
    let size = buffer.len();
    let mut rest = &mut buffer[..];
    rest.write_fmt(arguments).expect("the buffer holds the longest number");
    let used = size - rest.len();
    std::str::from_utf8(&buffer[..used]).expect("numbers print as ASCII")
}

fn special(value: f64, out: &mut Vec<u8>) {
    let word: &[u8] = match value {
        value if value.is_nan() => b"NaN",
        value if value > 0.0 => b"Infinity",
        _ => b"-Infinity",
    };
    out.extend_from_slice(word);
}

/// Lays out `-1.25e-7`: with a point from 1e-4 below 10^`precision`, else with an exponent of at
/// least two digits.
fn layout(scientific: &str, precision: i32, out: &mut Vec<u8>) {
    let (mantissa, exponent) = scientific.split_once('e').expect("`{:e}` prints an exponent");
    let exponent: i32 = exponent.parse().expect("`{:e}` prints a decimal exponent");
    let mantissa = match mantissa.strip_prefix('-') {
        Some(mantissa) => {
            out.push(b'-');
            mantissa
        }
        None => mantissa,
    };
    if !(-4..precision).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        write!(out, "{mantissa}e{sign}{:02}", exponent.abs()).expect("a vector takes all bytes");
        return;
    }
    let digits = mantissa.bytes().filter(|b| *b != b'.');
    if exponent < 0 {
        out.extend_from_slice(b"0.");
        out.extend(std::iter::repeat_n(b'0', (-exponent - 1) as usize));
        out.extend(digits);
        return;
    }
    let whole = exponent as usize + 1;
    let mut written = 0;
    for digit in digits {
        if written == whole {
            out.push(b'.');
        }
        out.push(digit);
        written += 1;
    }
    out.extend(std::iter::repeat_n(b'0', whole.saturating_sub(written)));
}
