//! The dataflows that a program offers.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use super::usage;
use crate::engine::{Dataflow, Engine};
use crate::error::{Error, Result};
use crate::pipeline::Pipeline;

/// A dataflow that the command line offers: its name, a line about it, and its function.
///
/// ```
/// use tidegate::cli::Entry;
/// let entry = Entry::new("orders", "orders that were not removed", |_engine| Ok(()));
/// assert_eq!(entry.name(), "orders");
/// ```
#[derive(Clone)]
pub struct Entry {
    name: String,
    about: String,
    dataflow: Dataflow,
}

impl Entry {
    /// `dataflow` under `name`; `about` is what `list` says of it.
    pub fn new(
        name: impl Into<String>,
        about: impl Into<String>,
        dataflow: impl Fn(Engine<'_>) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        Entry { name: name.into(), about: about.into(), dataflow: Arc::new(dataflow) }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is, in one line.
    pub fn about(&self) -> &str {
        &self.about
    }

    /// The dataflow as a pipeline, whose positions are stored under `name`.
    pub(super) fn pipeline(&self, name: &str) -> Pipeline {
        let dataflow = Arc::clone(&self.dataflow);
        Pipeline::new(name, move |engine| dataflow(engine))
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("name", &self.name).finish_non_exhaustive()
    }
}

/// All dataflows of a program, each under a name of its own.
pub(super) struct Entries(Vec<Entry>);

impl Entries {
    pub(super) fn new(entries: Vec<Entry>) -> Result<Self> {
        let mut names = BTreeSet::new();
        match entries.iter().find(|entry| !names.insert(&entry.name)) {
            Some(twice) => Err(Error::config(format!(
                "the program has two dataflows called `{}`; rename one",
                twice.name
            ))),
            None => Ok(Entries(entries)),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.0.iter()
    }

    /// The dataflow called `name`.
    pub(super) fn get(&self, name: &str) -> Result<&Entry> {
        self.0.iter().find(|entry| entry.name == name).ok_or_else(|| {
            let known: Vec<_> = self.0.iter().map(|entry| format!("`{}`", entry.name)).collect();
            match known.as_slice() {
                [] => usage(format!("there is no dataflow `{name}`: this program has none")),
                known => {
                    usage(format!("there is no dataflow `{name}`; there is {}", known.join(", ")))
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str) -> Entry {
        Entry::new(name, "", |_| Ok(()))
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let entries = Entries::new(vec![entry("orders"), entry("payments")]).expect("two names");
        assert_eq!(entries.get("payments").expect("it is there").name(), "payments");
        let error = entries.get("ordres").expect_err("no such name");
        assert_eq!(error.kind().exit_code(), 2);
        assert_eq!(
            error.to_string(),
            "there is no dataflow `ordres`; there is `orders`, `payments`"
        );
    }

    #[test]
    fn two_dataflows_of_one_name_are_refused() {
        let error = Entries::new(vec![entry("orders"), entry("orders")]).err().expect("refused");
        assert!(error.to_string().contains("two dataflows called `orders`"));
    }
}
