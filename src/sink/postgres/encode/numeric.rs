//! `numeric`: digits in base 10000, a weight, a sign and a display scale, as `numeric_send` has them.

use super::fault::Fault;
use super::float::format;
use super::text::trim;

const POSITIVE: u16 = 0x0000;
const NEGATIVE: u16 = 0x4000;
const NAN: u16 = 0xc000;
const INFINITY: u16 = 0xd000;
const MINUS_INFINITY: u16 = 0xf000;

/// The greatest weight of the first digit in base 10000.
const WEIGHT: i64 = 32767;
/// The greatest display scale.
const SCALE: i64 = 0x3fff;
/// Exponents from here on overflow, whatever the digits.
const EXPONENT: i64 = (i32::MAX / 2) as i64;
/// How many digits are kept on the stack.
const SHORT: usize = 64;

/// Writes an integer.
pub(super) fn put_int(value: i128, typmod: i32, out: &mut Vec<u8>) -> Result<(), Fault> {
    put_text(format(&mut [0; 48], format_args!("{value}")), typmod, out)
}

/// Writes the shortest decimal number that gives the same float back.
pub(super) fn put_f64(value: f64, typmod: i32, out: &mut Vec<u8>) -> Result<(), Fault> {
    put_text(format(&mut [0; 32], format_args!("{value:e}")), typmod, out)
}

/// The same for a narrow float.
pub(super) fn put_f32(value: f32, typmod: i32, out: &mut Vec<u8>) -> Result<(), Fault> {
    put_text(format(&mut [0; 32], format_args!("{value:e}")), typmod, out)
}

/// Reads what the server reads: digits of any number with a point and an exponent, `NaN`, `Infinity`,
/// `inf`; rounds to the column's scale.
pub(super) fn put_text(text: &str, typmod: i32, out: &mut Vec<u8>) -> Result<(), Fault> {
    let overflow = || Fault::range(text, "numeric");
    let number = trim(text);
    if let Some(sign) = special(number) {
        if sign != NAN && Modifier::of(typmod).is_some() {
            return Err(overflow());
        }
        header(0, 0, sign, 0, out);
        return Ok(());
    }
    let parts = Parts::of(number).ok_or_else(|| Fault::syntax(text, "numeric"))?;
    if parts.exponent.abs() >= EXPONENT {
        return Err(overflow());
    }

    let count = parts.whole.len() + parts.fraction.len();
    let mut stack = [0; SHORT];
    let mut heap = Vec::new();
    let buffer = if count <= SHORT {
        &mut stack[..count]
    } else {
        heap.resize(count, 0);
        &mut heap[..]
    };
    let (whole, fraction) = buffer.split_at_mut(parts.whole.len());
    whole.copy_from_slice(parts.whole);
    fraction.copy_from_slice(parts.fraction);

    let mut decimal = Decimal {
        digits: buffer,
        weight: parts.whole.len() as i64 - 1 + parts.exponent,
        scale: (parts.fraction.len() as i64 - parts.exponent).max(0),
    };
    if decimal.scale > SCALE {
        // The server reads the whole number before it rounds.
        return Err(overflow());
    }
    decimal.strip();
    if let Some(modifier) = Modifier::of(typmod) {
        decimal.round(modifier.scale);
        if !decimal.digits.is_empty() && decimal.weight + 1 > modifier.precision - modifier.scale {
            return Err(overflow());
        }
    }
    decimal.put(parts.negative, out).ok_or_else(overflow)
}

fn special(number: &str) -> Option<u16> {
    let is = |words: [&str; 2]| words.iter().any(|word| number.eq_ignore_ascii_case(word));
    match number.as_bytes().first()? {
        b'0'..=b'9' | b'.' => None,
        _ if is(["nan", "nan"]) => Some(NAN),
        _ if is(["infinity", "inf"]) || is(["+infinity", "+inf"]) => Some(INFINITY),
        _ if is(["-infinity", "-inf"]) => Some(MINUS_INFINITY),
        _ => None,
    }
}

/// A decimal number as it is written.
struct Parts<'a> {
    negative: bool,
    whole: &'a [u8],
    fraction: &'a [u8],
    exponent: i64,
}

impl<'a> Parts<'a> {
    fn of(number: &'a str) -> Option<Self> {
        let (negative, rest) = match number.as_bytes() {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        let (whole, rest) = digits(rest);
        let (fraction, rest) = match rest {
            [b'.', rest @ ..] => digits(rest),
            rest => (&rest[..0], rest),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let exponent = match rest {
            [] => 0,
            [b'e' | b'E', rest @ ..] => exponent(rest)?,
            _ => return None,
        };
        Some(Parts { negative, whole, fraction, exponent })
    }
}

/// The digits at the start of `text`, and what follows.
fn digits(text: &[u8]) -> (&[u8], &[u8]) {
    text.split_at(text.iter().position(|b| !b.is_ascii_digit()).unwrap_or(text.len()))
}

fn exponent(text: &[u8]) -> Option<i64> {
    let (negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let (digits, rest) = digits(text);
    if digits.is_empty() || !rest.is_empty() {
        return None;
    }
    let value = digits
        .iter()
        .fold(0_i64, |value, b| value.saturating_mul(10).saturating_add(i64::from(b - b'0')));
    Some(if negative { -value } else { value })
}

/// What `numeric(precision, scale)` asks for.
struct Modifier {
    precision: i64,
    scale: i64,
}

impl Modifier {
    fn of(typmod: i32) -> Option<Modifier> {
        let packed = typmod.checked_sub(4).filter(|packed| *packed >= 0)?;
        // The scale has eleven bits with a sign since PostgreSQL 15, and fitted them before.
        let scale = ((packed & 0x7ff) ^ 0x400) - 0x400;
        Some(Modifier { precision: i64::from(packed >> 16 & 0xffff), scale: i64::from(scale) })
    }
}

/// Decimal digits (ASCII), the power of ten of the first, and how many are shown behind the point.
struct Decimal<'a> {
    digits: &'a mut [u8],
    weight: i64,
    scale: i64,
}

impl Decimal<'_> {
    /// Drops the zeros at both ends.
    fn strip(&mut self) {
        let digits = std::mem::take(&mut self.digits);
        let Some(first) = digits.iter().position(|b| *b != b'0') else { return };
        let last = digits.iter().rposition(|b| *b != b'0').unwrap_or(first);
        self.weight -= first as i64;
        self.digits = &mut digits[first..=last];
    }

    /// Rounds to `scale` digits behind the point, half away from zero.
    fn round(&mut self, scale: i64) {
        self.scale = scale.max(0);
        let keep = self.weight + 1 + scale;
        if keep >= self.digits.len() as i64 {
            return;
        }
        let digits = std::mem::take(&mut self.digits);
        let Ok(keep) = usize::try_from(keep) else { return };
        let up = digits[keep] >= b'5';
        if !up {
            self.digits = &mut digits[..keep];
            return self.strip();
        }
        match digits[..keep].iter().rposition(|b| *b != b'9') {
            Some(last) => {
                digits[last] += 1;
                self.digits = &mut digits[..=last];
            }
            None => {
                digits[0] = b'1';
                self.weight += 1;
                self.digits = &mut digits[..1];
            }
        }
    }

    /// Writes the number, unless weight or scale do not fit the format.
    fn put(&self, negative: bool, out: &mut Vec<u8>) -> Option<()> {
        if self.digits.is_empty() {
            header(0, 0, POSITIVE, self.scale as u16, out);
            return Some(());
        }
        let weight = self.weight.div_euclid(4);
        if weight > WEIGHT {
            return None;
        }
        // How many zeros stand in front of the first digit in its group of four.
        let lead = ((weight + 1) * 4 - (self.weight + 1)) as usize;
        let groups = (self.digits.len() + lead).div_ceil(4);
        let sign = if negative { NEGATIVE } else { POSITIVE };
        header(groups, weight as i16, sign, self.scale as u16, out);

        let (first, rest) = self.digits.split_at(self.digits.len().min(4 - lead));
        out.extend_from_slice(&group(first, lead).to_be_bytes());
        for chunk in rest.chunks(4) {
            out.extend_from_slice(&group(chunk, 0).to_be_bytes());
        }
        Some(())
    }
}

/// Up to four decimal digits as one in base 10000, with `lead` zeros in front and the rest behind.
fn group(digits: &[u8], lead: usize) -> u16 {
    let value = digits.iter().fold(0, |value, b| value * 10 + u16::from(b - b'0'));
    value * [1, 10, 100, 1000][4 - lead - digits.len()]
}

/// The field's length and all of it but the digits.
fn header(groups: usize, weight: i16, sign: u16, scale: u16, out: &mut Vec<u8>) {
    let mut header = [0; 12];
    header[..4].copy_from_slice(&(8 + 2 * groups as u32).to_be_bytes());
    header[4..6].copy_from_slice(&(groups as u16).to_be_bytes());
    header[6..8].copy_from_slice(&weight.to_be_bytes());
    header[8..10].copy_from_slice(&sign.to_be_bytes());
    header[10..].copy_from_slice(&scale.to_be_bytes());
    out.extend_from_slice(&header);
}
