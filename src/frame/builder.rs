//! Collects what a dataflow function says: in plan mode the plan alone, in build mode the operators too.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::Lineage;
use super::context::Site;
use crate::error::{Error, Result};
use crate::plan::{Node, NodeId, Plan, SinkPlan, SourcePlan};
use crate::record::SourceId;
use crate::sink::{Sink, SinkId};
use crate::source::{Settings, Source};

/// How the members of a family of parameters are called together.
pub(crate) fn member(family: &str) -> String {
    format!("{family}.<name>")
}

/// The same function runs on it twice (contract of plan mode): first without a site, then at every
/// worker with one, where it does no I/O and must name the same nodes.
pub(crate) struct Builder<'s> {
    plan: RefCell<Plan>,
    failed: RefCell<Option<Error>>,
    settings: Settings,
    params: BTreeMap<String, String>,
    site: Option<Site<'s>>,
}

impl<'s> Builder<'s> {
    pub(crate) fn plan(settings: Settings, params: BTreeMap<String, String>) -> Self {
        Builder {
            plan: RefCell::default(),
            failed: RefCell::default(),
            settings,
            params,
            site: None,
        }
    }

    pub(crate) fn build(site: Site<'s>) -> Self {
        Builder {
            plan: RefCell::default(),
            failed: RefCell::default(),
            settings: site.live.settings.clone(),
            params: site.live.params.clone(),
            site: Some(site),
        }
    }

    /// Where to build; `None` in plan mode.
    pub(crate) fn site(&self) -> Option<&Site<'s>> {
        self.site.as_ref()
    }

    /// A named parameter.
    pub(crate) fn param(&self, name: &str) -> Option<&str> {
        let value = self.params.get(name);
        self.plan.borrow_mut().params.insert(name.to_owned(), value.cloned());
        value.map(String::as_str)
    }

    /// The named parameters of a family, by what stands behind its dot.
    pub(crate) fn params(&self, family: &str) -> BTreeMap<String, String> {
        let mut given = BTreeMap::new();
        let asked = &mut self.plan.borrow_mut().params;
        asked.entry(member(family)).or_insert(None);
        for (name, value) in &self.params {
            let rest = name.strip_prefix(family).and_then(|rest| rest.strip_prefix('.'));
            if let Some(rest) = rest {
                asked.insert(name.clone(), Some(value.clone()));
                given.insert(rest.to_owned(), value.clone());
            }
        }
        given
    }

    /// Keeps the first error of a call that has no way to return one.
    pub(crate) fn fail(&self, error: Error) {
        self.failed.borrow_mut().get_or_insert(error);
    }

    /// Adds a node.
    pub(crate) fn node(&self, kind: &'static str, label: &str, inputs: &[NodeId]) -> NodeId {
        let nodes = &mut self.plan.borrow_mut().nodes;
        nodes.push(Node { kind, label: label.to_owned(), inputs: inputs.to_vec() });
        NodeId(u32::try_from(nodes.len() - 1).expect("a dataflow has fewer than 2^32 nodes"))
    }

    /// Adds a source.
    pub(crate) fn source<S: Source>(&self, source: &S) -> (NodeId, SourceId) {
        let name = source.name();
        let node = self.node("source", &name, &[]);
        let mut plan = self.plan.borrow_mut();
        let id = SourceId(u16::try_from(plan.sources.len()).expect("fewer than 2^16 sources"));
        match source.catalog(&self.settings) {
            Ok(catalog) => {
                plan.sources.push(SourcePlan {
                    id,
                    name,
                    policy: source.policy(),
                    limit: source.reject_limit(),
                    catalog,
                });
            }
            Err(error) => self.fail(error),
        }
        (node, id)
    }

    /// Adds a sink; `None` where it is not as it must be.
    pub(crate) fn sink<T>(
        &self,
        sink: &impl Sink<T>,
        input: NodeId,
        lineage: &Lineage,
    ) -> Option<(NodeId, SinkId)> {
        let target = match sink.target() {
            Ok(target) => target,
            Err(error) => {
                self.fail(error);
                return None;
            }
        };
        let node = self.node("sink", &target.name, &[input]);
        let mut plan = self.plan.borrow_mut();
        let id = SinkId(u16::try_from(plan.sinks.len()).expect("fewer than 2^16 sinks"));
        let Lineage { sources, fan_out } = lineage.clone();
        plan.sinks.push(SinkPlan { id, target, sources, fan_out });
        Some((node, id))
    }

    /// The plan, once the function has returned.
    pub(crate) fn take(&self) -> Result<Plan> {
        match self.failed.take() {
            Some(error) => Err(error),
            None => Ok(self.plan.take()),
        }
    }
}
