//! Routing: each row to one of several streams.

use std::sync::Arc;

use timely::container::CapacityContainerBuilder;
use timely::dataflow::StreamVec;
use timely::dataflow::channels::pact::Pipeline;
use timely::dataflow::operators::generic::OutputBuilder;
use timely::dataflow::operators::generic::builder_rc::OperatorBuilder;

use super::context::Site;
use super::input::named;
use crate::epoch::Epoch;
use crate::plan::NodeId;
use crate::record::{Change, Refusal, Reject, Row};
use crate::unwind;

/// The routed streams, and that of the rejects.
pub(crate) type Routed<'s, T> = (Vec<StreamVec<'s, Epoch, Row<T>>>, StreamVec<'s, Epoch, Reject>);

/// Routes rows to `parts` streams.
pub(crate) fn partition<'s, T: 'static>(
    site: &Site<'s>,
    node: NodeId,
    stream: StreamVec<'s, Epoch, Row<T>>,
    parts: usize,
    route: impl Fn(&T) -> usize + 'static,
) -> Routed<'s, T> {
    let mut builder = OperatorBuilder::new(named(node, "partition"), site.scope);
    let mut input = builder.new_input(stream, Pipeline);
    let (mut outputs, streams): (Vec<_>, Vec<_>) = (0..parts)
        .map(|_| {
            let (output, stream) = builder.new_output::<Vec<Row<T>>>();
            (OutputBuilder::<_, CapacityContainerBuilder<_>>::from(output), stream)
        })
        .unzip();
    let (rejects, reject_stream) = builder.new_output::<Vec<Reject>>();
    let mut rejects = OutputBuilder::<_, CapacityContainerBuilder<_>>::from(rejects);
    let live = Arc::clone(&site.live);
    let meter = live.meter(node);
    builder.build(move |capabilities| {
        drop(capabilities);
        let mut routed: Vec<Vec<Row<T>>> = (0..parts).map(|_| Vec::new()).collect();
        move |_frontiers| {
            input.for_each(|capability, data| {
                for row in data.drain(..) {
                    if live.abort.is_raised() {
                        return;
                    }
                    let to = match &row.change {
                        Change::Put(value) => unwind::catch(|| route(value)),
                        Change::Delete(key) => {
                            for part in &mut routed {
                                part.push(Row { at: row.at, change: Change::Delete(key.clone()) });
                            }
                            continue;
                        }
                    };
                    let reason = match to {
                        Ok(to) if to < parts => {
                            routed[to].push(row);
                            continue;
                        }
                        Ok(to) => format!("routed to {to}, but there are {parts} frames, from 0"),
                        Err(reason) => reason,
                    };
                    let refusal = Refusal::new("partition", reason);
                    let reject = Reject { at: row.at, refusal };
                    let Some(reject) = live.refuse(reject) else { return };
                    rejects.activate().session(&capability).give(reject);
                }
                for (part, output) in routed.iter_mut().zip(&mut outputs) {
                    if !part.is_empty() {
                        meter.passed(part.len());
                        output.activate().session(&capability).give_container(part);
                        part.clear();
                    }
                }
            });
        }
    });
    (streams, reject_stream)
}
