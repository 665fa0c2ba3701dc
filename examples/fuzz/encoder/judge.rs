//! Compares what became of a row with what was expected.

use std::collections::BTreeMap;

use super::expect::Expect;

/// What was seen so far.
#[derive(Default)]
pub struct Tally {
    pub rows: u64,
    pub written: u64,
    pub refused: u64,
    /// Documented deviations from the server, and how often.
    pub deviations: BTreeMap<String, u64>,
    /// Codes that differ within a class: ours, and the server's.
    pub codes: BTreeMap<String, u64>,
}

/// What the sink made of a row.
#[derive(Clone, Debug)]
pub enum Ours {
    /// Whether all fields read as the twin's do, where the twin has the row.
    Written(bool),
    Refused(String),
    /// Neither written nor refused.
    Lost,
}

/// What the server made of it, where it was asked.
#[derive(Clone, Debug)]
pub enum Theirs {
    Written,
    Refused(String),
    NotAsked,
}

impl Tally {
    /// What is wrong, if anything is.
    pub fn judge(&mut self, expected: &Expect, ours: &Ours, theirs: &Theirs) -> Option<String> {
        self.rows += 1;
        let code = match ours {
            Ours::Lost => return Some("lost: neither written nor refused".to_owned()),
            Ours::Written(_) => {
                self.written += 1;
                None
            }
            Ours::Refused(code) => {
                self.refused += 1;
                Some(code.as_str())
            }
        };
        match (expected, code, theirs) {
            (Expect::Refused(wanted), Some(code), _) => self.classes(code, wanted),
            (Expect::Refused(wanted), None, _) => {
                Some(format!("written, not refused with {wanted}"))
            }
            (Expect::Near(_, why), None, Theirs::Written) => {
                if matches!(ours, Ours::Written(false)) {
                    *self.deviations.entry((*why).to_owned()).or_default() += 1;
                }
                None
            }
            (_, None, Theirs::Written) => {
                matches!(ours, Ours::Written(false)).then(|| "written as another value".to_owned())
            }
            (_, None, Theirs::Refused(theirs)) => {
                Some(format!("written, which the server refuses with {theirs}"))
            }
            // Refused before the server could find something else.
            (Expect::Or(_, allowed, why), Some(code), _) if allowed.contains(code) => {
                *self.deviations.entry((*why).to_owned()).or_default() += 1;
                None
            }
            (_, Some(code), Theirs::Written) => {
                Some(format!("refused with {code}, which the server takes"))
            }
            (_, Some(code), Theirs::Refused(theirs)) => self.classes(code, theirs),
            (_, _, Theirs::NotAsked) => Some("the server was not asked".to_owned()),
        }
    }

    fn classes(&mut self, ours: &str, theirs: &str) -> Option<String> {
        if ours != theirs {
            *self.codes.entry(format!("{ours} for {theirs}")).or_default() += 1;
        }
        let same = ours.get(..2) == theirs.get(..2);
        (!same).then(|| format!("refused with {ours}, where {theirs} is due"))
    }
}
