//! Refused records by what went wrong, whatever values their reasons name.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Display;

use super::{RejectFigures, RejectKind, pattern};

/// The most groups; what is of none of them is counted together.
const MOST: usize = 200;

/// Groups of refused records.
#[derive(Default)]
pub(super) struct Groups {
    groups: BTreeMap<Kind, (u64, String)>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    sink: String,
    step: String,
    reason: String,
    sqlstate: Option<String>,
    column: Option<String>,
}

impl Groups {
    pub(super) fn add(&mut self, sink: &str, example: &dyn Display, reject: RejectKind<'_>) {
        let mut kind = Kind {
            sink: sink.to_owned(),
            step: reject.step.to_owned(),
            reason: pattern(reject.reason),
            sqlstate: reject.sqlstate.map(str::to_owned),
            column: reject.column.map(str::to_owned),
        };
        if self.groups.len() >= MOST && !self.groups.contains_key(&kind) {
            kind = Kind {
                step: "any".to_owned(),
                reason: "other reasons".to_owned(),
                sqlstate: None,
                column: None,
                ..kind
            };
        }
        self.groups.entry(kind).or_insert_with(|| (0, example.to_string())).0 += 1;
    }

    /// The largest first.
    pub(super) fn figures(&self) -> Vec<RejectFigures> {
        let figures = self.groups.iter().map(|(kind, (count, example))| RejectFigures {
            sink: kind.sink.clone(),
            step: kind.step.clone(),
            reason: kind.reason.clone(),
            sqlstate: kind.sqlstate.clone(),
            column: kind.column.clone(),
            count: *count,
            example: example.clone(),
        });
        let mut figures: Vec<_> = figures.collect();
        figures.sort_by_key(|group| Reverse(group.count));
        figures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_refused_is_grouped_without_its_values_and_never_without_bound() {
        let mut groups = Groups::default();
        fn of(reason: &str) -> RejectKind<'_> {
            RejectKind { step: "write", reason, sqlstate: Some("22P02"), column: None }
        }
        for offset in 0..3 {
            let reason = format!("`secret {offset}` is no number");
            groups.add("orders", &format_args!("orders[0]@{offset}"), of(&reason));
        }
        let figures = groups.figures();
        assert_eq!(figures.len(), 1);
        assert_eq!((figures[0].count, figures[0].example.as_str()), (3, "orders[0]@0"));
        assert!(!figures[0].reason.contains("secret"), "{}", figures[0].reason);
        for word in 0..2 * MOST {
            let letters: String = format!("{word:04}").bytes().map(|b| (b + 49) as char).collect();
            groups.add("orders", &"orders[0]@9", of(&letters));
        }
        let figures = groups.figures();
        assert_eq!(figures.len(), MOST + 1);
        assert_eq!(figures.iter().map(|group| group.count).sum::<u64>(), 3 + 2 * MOST as u64);
        assert_eq!(figures[0].reason, "other reasons");
    }
}
