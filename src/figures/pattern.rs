//! Reasons without the values that tell one record from another, so that those of one kind are equal.

/// A reason on one line, as long as a line may be.
pub(crate) fn line(reason: &str) -> String {
    const LONGEST: usize = 160;
    let line = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// What quoted words name, rather than being a value, by the word in front of them.
const NAMING: [&str; 16] = [
    "column",
    "columns",
    "relation",
    "constraint",
    "table",
    "view",
    "type",
    "domain",
    "index",
    "function",
    "trigger",
    "schema",
    "sequence",
    "field",
    "parameter",
    "enum",
];

/// A reason without the values that it names, so that reasons of one kind are equal: of the first line
/// the numbers become `N` and what stands in quotes or behind `=` and `contains` in brackets `…`, but for
/// the names of columns, constraints and the like.
pub(crate) fn pattern(reason: &str) -> String {
    let reason = line(reason.lines().next().unwrap_or_default());
    let mut pattern = String::with_capacity(reason.len());
    let mut rest = reason.as_str();
    while let Some(c) = rest.chars().next() {
        let before = pattern.trim_end();
        let length = match c {
            '"' | '`' => rest[1..].find(c).map(|end| end + 2),
            '(' if before.ends_with('=') || before.ends_with("contains") => closing(rest),
            _ => None,
        };
        if let Some(length) = length {
            let names = !before.ends_with(':')
                && before.rsplit(' ').next().is_some_and(|word| {
                    NAMING.contains(&word.trim_matches(|c: char| !c.is_alphanumeric()))
                });
            match (c, names) {
                ('(', _) => pattern.push_str("(…)"),
                (_, true) => pattern.push_str(&rest[..length]),
                (_, false) => pattern.extend([c, '…', c]),
            }
            rest = &rest[length..];
            continue;
        }
        let word = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        if c.is_ascii_digit() && !(pattern.ends_with("UTF-") || pattern.ends_with("RFC ")) {
            let end = number(rest);
            if pattern.ends_with('-')
                && !pattern[..pattern.len() - 1].ends_with(char::is_alphanumeric)
            {
                pattern.pop();
            }
            pattern.push('N');
            rest = &rest[end..];
        } else {
            let end = word.max(c.len_utf8());
            pattern.push_str(&rest[..end]);
            rest = &rest[end..];
        }
    }
    pattern
}

/// How long the bracket is that `text` begins with; all of it where it is not closed.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at + 1);
        }
    }
    Some(text.len())
}

/// How long the number, date or time is that `text` begins with.
fn number(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut end = 0;
    while let Some(byte) = bytes.get(end) {
        let joins = |byte: &u8| b".:+-".contains(byte);
        let goes_on = byte.is_ascii_alphanumeric()
            || joins(byte) && bytes.get(end + 1).is_some_and(u8::is_ascii_digit);
        if !goes_on {
            break;
        }
        end += 1;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_of_one_kind_have_one_pattern() {
        for (reason, expected) in [
            (
                "invalid input syntax for type integer: \"12x\"",
                "invalid input syntax for type integer: \"…\"",
            ),
            (
                "new row for relation \"t\" violates check constraint \"t_n_check\" (Failing row \
                 contains (1, -5, (a)))",
                "new row for relation \"t\" violates check constraint \"t_n_check\" (Failing row \
                 contains (…))",
            ),
            (
                "duplicate key value violates unique constraint \"u\" (Key (id)=(5) already exists)",
                "duplicate key value violates unique constraint \"u\" (Key (id)=(…) already exists)",
            ),
            ("value 999 is out of range for int4", "value N is out of range for int4"),
            ("-5.25 at 2026-01-31T12:00:00Z", "N at N"),
            ("column `n`: `x` is no number", "column `n`: `…` is no number"),
            ("a quote \" alone", "a quote \" alone"),
            ("expected value at line 1 column 7\n\n\tmore", "expected value at line N column N"),
            ("ein Größenwert größer 7", "ein Größenwert größer N"),
        ] {
            assert_eq!(pattern(reason), expected);
        }
    }
}
