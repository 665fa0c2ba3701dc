//! Why a value is refused, as serde needs an error to be.

use std::fmt;

use serde::ser;

use crate::record::Refusal;

/// The SQLSTATEs that the server would give.
pub(super) mod sqlstate {
    pub const TOO_LONG: &str = "22001";
    pub const OUT_OF_RANGE: &str = "22003";
    pub const DATETIME_FORMAT: &str = "22007";
    pub const DATETIME_OVERFLOW: &str = "22008";
    pub const ZONE_DISPLACEMENT: &str = "22009";
    pub const CHARACTER: &str = "22021";
    pub const TEXT_REPRESENTATION: &str = "22P02";
    pub const UNTRANSLATABLE: &str = "22P05";
    pub const NOT_NULL: &str = "23502";
    pub const DUPLICATE_COLUMN: &str = "42701";
    pub const UNDEFINED_COLUMN: &str = "42703";
    pub const MISMATCH: &str = "42804";
    pub const NAME_TOO_LONG: &str = "42622";
    pub const LIMIT_EXCEEDED: &str = "54000";
}

/// A refusal on its way out of a `Serialize` implementation; a pointer wide.
#[derive(Debug)]
pub(super) struct Fault(pub Box<Refusal>);

impl Fault {
    /// A refusal for `reason`, with the SQLSTATE that the server would give.
    #[cold]
    pub fn new(sqlstate: &str, reason: impl Into<String>) -> Self {
        Fault(Box::new(Refusal::new("encode", reason).sqlstate(sqlstate)))
    }

    /// A text that is no value of `type_name`.
    #[cold]
    pub fn syntax(text: &str, type_name: &str) -> Self {
        let reason = format!("{} is no {type_name}", quoted(text));
        Fault::new(sqlstate::TEXT_REPRESENTATION, reason)
    }

    /// A value outside of the range of `type_name`.
    #[cold]
    pub fn range(value: impl fmt::Display, type_name: &str) -> Self {
        let reason = format!("{} is out of range for {type_name}", quoted(&value.to_string()));
        Fault::new(sqlstate::OUT_OF_RANGE, reason)
    }

    /// Names the column at fault, unless one is named already.
    #[cold]
    pub fn column(mut self, column: &str) -> Self {
        self.0.column.get_or_insert_with(|| column.to_owned());
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.reason)
    }
}

impl std::error::Error for Fault {}

impl ser::Error for Fault {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Fault(Box::new(Refusal::new("encode", message.to_string())))
    }
}

/// `text` in backticks, cut where it is long.
pub(super) fn quoted(text: &str) -> String {
    const LONGEST: usize = 80;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("`{}..`", &text[..end]),
        None => format!("`{text}`"),
    }
}
