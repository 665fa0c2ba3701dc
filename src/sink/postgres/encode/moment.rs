//! Reads dates and times in the forms of RFC 3339 and ISO 8601, and as the server prints them.

use super::text::trim;

/// The microseconds of a day.
pub(super) const DAY: i64 = 86_400_000_000;

/// What a text says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// `-infinity`
    Before,
    /// `infinity`
    After,
    /// A date, with or without a time.
    At(Civil),
}

/// A date of the (proleptic) Gregorian calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Civil {
    /// Days since 2000-01-01.
    pub days: i64,
    /// Microseconds since midnight; a whole day for 24:00.
    pub time: Option<i64>,
    /// Seconds east of Greenwich.
    pub zone: Option<i64>,
}

/// What is wrong with a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// It has another form.
    Form,
    /// There is no such day or time.
    Field,
    /// There is no such offset.
    Zone,
}

/// Reads `YYYY-MM-DD`, then `T` or a space and a time, then `Z` or an offset, then `BC`; or
/// `infinity`.
#[inline]
pub(super) fn moment(text: &str) -> Result<Moment, Wrong> {
    let mut rest = Rest(text.as_bytes());
    if let Some((date, time)) = rest.usual() {
        let fraction = rest.fraction()?;
        let time = Some(within_a_day(time, fraction)?);
        let zone = match rest.0 {
            [] => None,
            [b'Z'] => {
                rest.0 = &[];
                Some(0)
            }
            _ => rest.zone()?,
        };
        let year = if rest.0.is_empty() && date.0 > 0 { date.0 } else { rest.era(date.0)? };
        return Ok(Moment::At(Civil { days: days(year, date.1, date.2)?, time, zone }));
    }
    unusual(trim(text))
}

/// Reads `HH:MM`, `HH:MM:SS` or `HH:MM:SS.ffffff` as microseconds.
pub(super) fn time_of_day(text: &str) -> Result<i64, Wrong> {
    let mut rest = Rest(trim(text).as_bytes());
    let time = rest.time()?;
    if rest.0.is_empty() { Ok(time) } else { Err(Wrong::Form) }
}

#[cold]
fn unusual(text: &str) -> Result<Moment, Wrong> {
    if text.eq_ignore_ascii_case("infinity") {
        return Ok(Moment::After);
    }
    if text.eq_ignore_ascii_case("-infinity") {
        return Ok(Moment::Before);
    }
    let mut rest = Rest(text.as_bytes());
    let (year, month, day) = rest.date()?;
    let time = match rest.0 {
        [b'T' | b't', tail @ ..] => {
            rest.0 = tail;
            Some(rest.any_time()?)
        }
        [b' ', ..] => {
            rest.spaces();
            let follows = rest.0.first().is_some_and(u8::is_ascii_digit);
            if follows { Some(rest.any_time()?) } else { None }
        }
        _ => None,
    };
    let zone = if time.is_some() { rest.zone()? } else { None };
    let year = rest.era(year)?;
    Ok(Moment::At(Civil { days: days(year, month, day)?, time, zone }))
}

/// What is left to read.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    /// Year, month, day and the seconds of the day of `YYYY-MM-DDTHH:MM:SS`, if it begins so.
    #[inline]
    fn usual(&mut self) -> Option<((i64, i64, i64), i64)> {
        let (text, rest) = self.0.split_first_chunk::<19>()?;
        let marks = [text[4], text[7], text[13], text[16]] == *b"--::";
        if !marks || !matches!(text[10], b'T' | b' ') {
            return None;
        }
        let mut odd = false;
        let mut two = |at: usize| {
            let (tens, ones) = (text[at].wrapping_sub(b'0'), text[at + 1].wrapping_sub(b'0'));
            odd |= tens > 9 || ones > 9;
            i64::from(tens) * 10 + i64::from(ones)
        };
        let date = (two(0) * 100 + two(2), two(5), two(8));
        let (hour, minute, second) = (two(11), two(14), two(17));
        if odd || hour > 24 || minute > 59 || second > 60 {
            return None;
        }
        self.0 = rest;
        Some((date, (hour * 60 + minute) * 60 + second))
    }

    /// `YYYY-MM-DD`, with more digits of the year or fewer of the rest, or `YYYYMMDD`.
    fn date(&mut self) -> Result<(i64, i64, i64), Wrong> {
        if self.digits() == 8 {
            let date = self.number(8, 8)?;
            return Ok((date / 10_000, date / 100 % 100, date % 100));
        }
        let year = self.number(4, 7)?;
        self.expect(b'-')?;
        let month = self.number(1, 2)?;
        self.expect(b'-')?;
        let day = self.number(1, 2)?;
        Ok((year, month, day))
    }

    /// A time with colons, or `HHMM`, `HHMMSS` and a fraction, as it may follow a date.
    fn any_time(&mut self) -> Result<i64, Wrong> {
        let count = self.digits();
        if count != 4 && count != 6 {
            return self.time();
        }
        let digits = self.number(count, count)?;
        let (minutes, second) = if count == 6 { (digits / 100, digits % 100) } else { (digits, 0) };
        if let [b'.', rest @ ..] = self.0
            && !rest.first().is_some_and(u8::is_ascii_digit)
        {
            // Allowed behind a time with colons only.
            return Err(Wrong::Form);
        }
        if self.0.first() == Some(&b'-') && self.0.contains(&b':') {
            // For the server digits before a hyphen begin a date.
            return Err(Wrong::Form);
        }
        let fraction = if count == 6 { self.fraction()? } else { 0 };
        let (hour, minute) = (minutes / 100, minutes % 100);
        if hour > 24 || minute > 59 || second > 60 {
            return Err(Wrong::Field);
        }
        within_a_day((hour * 60 + minute) * 60 + second, fraction)
    }

    /// How many digits stand here.
    fn digits(&self) -> usize {
        self.0.iter().take_while(|b| b.is_ascii_digit()).count()
    }

    fn time(&mut self) -> Result<i64, Wrong> {
        let hour = self.number(1, 2)?;
        self.expect(b':')?;
        let minute = self.number(1, 2)?;
        let (mut second, mut fraction) = (0, 0);
        if let [b':', rest @ ..] = self.0 {
            self.0 = rest;
            second = self.number(1, 2)?;
            fraction = self.fraction()?;
        }
        if hour > 24 || minute > 59 || second > 60 {
            return Err(Wrong::Field);
        }
        within_a_day((hour * 60 + minute) * 60 + second, fraction)
    }

    /// `.` and digits as microseconds, rounded by the same arithmetic as the server's.
    #[inline]
    fn fraction(&mut self) -> Result<i64, Wrong> {
        let [b'.', digits @ ..] = self.0 else { return Ok(0) };
        let count = digits.iter().take_while(|b| b.is_ascii_digit()).count();
        let text = &self.0[..=count];
        self.0 = &digits[count..];
        match count {
            0 => Ok(0),
            1..=6 => {
                let value = text[1..].iter().fold(0, |value, b| value * 10 + i64::from(b - b'0'));
                Ok(value * [100_000, 10_000, 1000, 100, 10, 1][count - 1])
            }
            _ => {
                let text = std::str::from_utf8(text).map_err(|_| Wrong::Form)?;
                let value: f64 = text.parse().map_err(|_| Wrong::Form)?;
                Ok((value * 1e6).round_ties_even() as i64)
            }
        }
    }

    /// `Z`, `UTC`, `±HH`, `±HHMM`, `±HH:MM` or `±HH:MM:SS`, if one follows.
    fn zone(&mut self) -> Result<Option<i64>, Wrong> {
        let before = self.0;
        self.spaces();
        let east = match self.0 {
            [b'Z' | b'z', rest @ ..] => {
                self.0 = rest;
                return Ok(Some(0));
            }
            [u, t, c, rest @ ..] if [*u, *t, *c].eq_ignore_ascii_case(b"utc") => {
                self.0 = rest;
                return Ok(Some(0));
            }
            [b'+', rest @ ..] => {
                self.0 = rest;
                true
            }
            [b'-', rest @ ..] => {
                self.0 = rest;
                false
            }
            _ => {
                self.0 = before;
                return Ok(None);
            }
        };
        let start = self.0.len();
        let mut hour = self.number(1, 4)?;
        let (mut minute, mut second) = (0, 0);
        if start - self.0.len() > 2 {
            (hour, minute) = (hour / 100, hour % 100);
        } else if let [b':', rest @ ..] = self.0 {
            self.0 = rest;
            minute = self.number(2, 2)?;
            if let [b':', rest @ ..] = self.0 {
                self.0 = rest;
                second = self.number(2, 2)?;
            }
        }
        if hour > 15 || minute > 59 || second > 59 {
            return Err(Wrong::Zone);
        }
        let seconds = (hour * 60 + minute) * 60 + second;
        Ok(Some(if east { seconds } else { -seconds }))
    }

    /// The year as astronomers count it, after `BC`, `AD` or nothing, which end the text.
    fn era(&mut self, year: i64) -> Result<i64, Wrong> {
        self.spaces();
        let before = match self.0 {
            [] => false,
            word if word.eq_ignore_ascii_case(b"ad") => false,
            word if word.eq_ignore_ascii_case(b"bc") => true,
            _ => return Err(Wrong::Form),
        };
        match year {
            0 => Err(Wrong::Field),
            year if before => Ok(1 - year),
            year => Ok(year),
        }
    }

    fn number(&mut self, least: usize, most: usize) -> Result<i64, Wrong> {
        let count = self.digits();
        if count < least || count > most {
            return Err(Wrong::Form);
        }
        let (digits, rest) = self.0.split_at(count);
        self.0 = rest;
        Ok(digits.iter().fold(0, |value, b| value * 10 + i64::from(b - b'0')))
    }

    fn expect(&mut self, byte: u8) -> Result<(), Wrong> {
        match self.0 {
            [first, rest @ ..] if *first == byte => {
                self.0 = rest;
                Ok(())
            }
            _ => Err(Wrong::Form),
        }
    }

    fn spaces(&mut self) {
        let space = |b: &u8| b.is_ascii_whitespace() || *b == b'\x0b';
        let count = self.0.iter().take_while(|b| space(b)).count();
        self.0 = &self.0[count..];
    }
}

/// The time in microseconds; 24:00 and 23:59:60 are the end of the day, and nothing is after it.
#[inline]
fn within_a_day(seconds: i64, fraction: i64) -> Result<i64, Wrong> {
    let time = seconds * 1_000_000 + fraction;
    if time > DAY { Err(Wrong::Field) } else { Ok(time) }
}

/// Days from 2000-01-01 to a date; `year` is as astronomers count, 0 before 1.
#[inline]
fn days(year: i64, month: i64, day: i64) -> Result<i64, Wrong> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let longest = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => return Err(Wrong::Field),
    };
    if day < 1 || day > longest {
        return Err(Wrong::Field);
    }
    // Years that begin in March end with the leap day; 400 of them have 146097 days.
    // (<https://howardhinnant.github.io/date_algorithms.html>, `days_from_civil`)
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    // 730425 days lie between 0000-03-01 and 2000-01-01.
    Ok(era * 146_097 + day_of_era - 730_425)
}
