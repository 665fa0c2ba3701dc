//! Rejects by what went wrong, whatever values their reasons name.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use super::{place, seconds};
use crate::cli::output::Table;
use crate::figures::{line, pattern};
use crate::sink::StoredReject;

/// The most groups; what is of none of them is counted together.
const MOST: usize = 200;

/// Groups of rejects.
#[derive(Default)]
pub(super) struct Groups {
    groups: BTreeMap<Kind, Group>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    stage: String,
    column: Option<String>,
    sqlstate: Option<String>,
    pattern: String,
}

struct Group {
    count: u64,
    first: String,
    last: String,
    since: std::time::SystemTime,
    example: String,
}

impl Groups {
    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    pub(super) fn add(&mut self, reject: &StoredReject) {
        let mut kind = Kind {
            stage: reject.stage.clone(),
            column: reject.column.clone(),
            sqlstate: reject.sqlstate.clone(),
            pattern: pattern(&reject.reason),
        };
        if self.groups.len() >= MOST && !self.groups.contains_key(&kind) {
            kind = Kind {
                stage: "any".into(),
                column: None,
                sqlstate: None,
                pattern: "other reasons".into(),
            };
        }
        let group = self.groups.entry(kind).or_insert_with(|| Group {
            count: 0,
            first: place(reject),
            last: String::new(),
            since: reject.at,
            example: line(&reject.reason),
        });
        group.count += 1;
        group.last = place(reject);
    }
}

impl Display for Groups {
    /// The largest first, each with an example beneath the table.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut groups: Vec<_> = self.groups.iter().collect();
        groups.sort_by_key(|(_, group)| std::cmp::Reverse(group.count));
        let mut table = Table::new([
            "count", "stage", "column", "sqlstate", "since", "first", "last", "reason",
        ]);
        let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
        for (kind, group) in &groups {
            table.row([
                group.count.to_string(),
                kind.stage.clone(),
                or_none(&kind.column),
                or_none(&kind.sqlstate),
                seconds(group.since),
                group.first.clone(),
                group.last.clone(),
                kind.pattern.clone(),
            ]);
        }
        write!(f, "{table}")?;
        for (kind, group) in groups {
            if kind.pattern != group.example {
                writeln!(f, "  {}: {}", group.first, group.example)?;
            }
        }
        Ok(())
    }
}
