//! What a dataflow is before it runs: nodes, sources, sinks, stores.
//!
//! The user's function runs once in plan mode and yields this; `check`, `positions` and the run itself
//! read the same plan. All processes of a cluster compare its digest before they build.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::position::SliceKey;
use crate::record::{Policy, RejectLimit, SourceId};
use crate::sink::{SinkId, Store, Target};
use crate::source::Catalog;

/// The number of a node, in the order in which the dataflow makes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// One step of a dataflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// `source`, `filter`, `map`, ..., `sink`.
    pub kind: &'static str,
    /// The name of a source or sink, else empty.
    pub label: String,
    /// Where its rows come from.
    pub inputs: Vec<NodeId>,
}

/// A source of the plan.
pub struct SourcePlan {
    /// Its number.
    pub id: SourceId,
    /// Its name in stored positions.
    pub name: String,
    /// What happens to its refused records.
    pub policy: Policy,
    /// How many of them a run takes.
    pub limit: RejectLimit,
    /// Its partitions and bounds.
    pub catalog: Box<dyn Catalog>,
}

/// A sink of the plan.
pub struct SinkPlan {
    /// Its number.
    pub id: SinkId,
    /// Its untyped half.
    pub target: Target,
    /// The sources whose records reach it.
    pub sources: BTreeSet<SourceId>,
    /// Whether a record may make several of its rows.
    pub fan_out: bool,
}

/// A store and the sinks that share it.
pub struct StorePlan {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Its sinks.
    pub sinks: Vec<SinkId>,
}

/// The whole dataflow.
#[derive(Default)]
pub struct Plan {
    /// All nodes, each after its inputs.
    pub nodes: Vec<Node>,
    /// All sources.
    pub sources: Vec<SourcePlan>,
    /// All sinks.
    pub sinks: Vec<SinkPlan>,
    /// The parameters that the dataflow asked for, with what it was given for them.
    pub params: BTreeMap<String, Option<String>>,
}

impl Plan {
    /// Refuses a dataflow that cannot run: without a sink, with a source that reaches none, or with
    /// two sources or sinks of one name, since names are what positions are stored under.
    pub fn validate(&self) -> Result<()> {
        if self.sinks.is_empty() {
            return Err(Error::config("the dataflow has no sink; end a chain with `.sink(..)`"));
        }
        let mut names = BTreeSet::new();
        for source in &self.sources {
            if !names.insert(&source.name) {
                return Err(Error::config(format!(
                    "the dataflow reads `{}` twice; read it once and clone the frame",
                    source.name
                )));
            }
            if !self.sinks.iter().any(|sink| sink.sources.contains(&source.id)) {
                return Err(Error::config(format!(
                    "source `{}` reaches no sink; its positions could never move",
                    source.name
                )));
            }
        }
        let mut names = BTreeSet::new();
        for sink in &self.sinks {
            if !names.insert(&sink.target.name) {
                return Err(Error::config(format!(
                    "two sinks are called `{}`; give one another name with `.name(..)`, or `concat` \
                     their frames",
                    sink.target.name
                )));
            }
        }
        Ok(())
    }

    /// The stores in a fixed order (that of their identities), each with its sinks.
    pub fn stores(&self) -> Vec<StorePlan> {
        let mut stores = BTreeMap::<String, StorePlan>::new();
        for sink in &self.sinks {
            stores
                .entry(sink.target.store.identity())
                .or_insert_with(|| StorePlan {
                    store: Arc::clone(&sink.target.store),
                    sinks: Vec::new(),
                })
                .sinks
                .push(sink.id);
        }
        stores.into_values().collect()
    }

    /// A sink by number.
    pub fn sink(&self, id: SinkId) -> &SinkPlan {
        &self.sinks[usize::from(id.0)]
    }

    /// Whether the slice `key` is one of a sink: the sink and the source bear its names, and the source's
    /// records reach the sink. What is stored of a sink or source that the dataflow has no longer, or no
    /// longer together, does not hold the others back.
    pub fn reaches(&self, sink: SinkId, key: &SliceKey) -> bool {
        let sink = self.sink(sink);
        let named = |source: &&SourcePlan| source.name == key.source;
        sink.target.name == key.sink
            && self.sources.iter().find(named).is_some_and(|s| sink.sources.contains(&s.id))
    }

    /// Whether a keyed sink is reached from a source: then the order of its records matters.
    pub fn is_ordered(&self, source: SourceId) -> bool {
        self.sinks.iter().any(|sink| sink.target.keyed && sink.sources.contains(&source))
    }

    /// The plan as text: a line a node.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let inputs: Vec<_> = node.inputs.iter().map(|input| input.0.to_string()).collect();
            let label =
                if node.label.is_empty() { String::new() } else { format!(" `{}`", node.label) };
            let from = if inputs.is_empty() {
                String::new()
            } else {
                format!(" <- {}", inputs.join(", "))
            };
            writeln!(text, "{index:>3} {}{label}{from}", node.kind).expect("a string takes all");
        }
        text
    }

    /// What all processes must agree on, as 16 hex digits.
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(env!("CARGO_PKG_VERSION"));
        hash.update(self.describe());
        for source in &self.sources {
            hash.update(source.catalog.describe());
        }
        for sink in &self.sinks {
            hash.update(&sink.target.describe);
            hash.update(sink.target.store.identity());
        }
        // A closure may hold one, which shows nowhere else.
        hash.update(format!("{:?}", self.params));
        hash.finalize().iter().take(8).fold(String::new(), |mut text, byte| {
            write!(text, "{byte:02x}").expect("a string takes all");
            text
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_tells_parameters_apart_that_show_nowhere_else() {
        let with = |value: Option<&str>| {
            let params = BTreeMap::from([("least".to_owned(), value.map(str::to_owned))]);
            Plan { params, ..Plan::default() }.digest()
        };
        assert_eq!(with(Some("1")), with(Some("1")));
        assert_ne!(with(Some("1")), with(Some("2")));
        assert_ne!(with(Some("1")), with(None));
    }
}
