//! A sink's encoder in the stream: rows through the door, into the form in which they travel.

use std::sync::Arc;

use timely::container::CapacityContainerBuilder;
use timely::dataflow::channels::pact::Pipeline;
use timely::dataflow::operators::generic::OutputBuilder;
use timely::dataflow::operators::generic::builder_rc::OperatorBuilder;
use timely::dataflow::operators::{Concatenate, InputCapability};
use timely::progress::operate::FrontierInterest;

use super::Streams;
use super::context::Site;
use super::input::{named, wake};
use super::second_look::{Held, SecondLook};
use crate::epoch::Epoch;
use crate::figures::NodeMeter;
use crate::origins::Read;
use crate::plan::NodeId;
use crate::record::{At, Change, Lane, Refusal, Reject, Row};
use crate::sink::{Encoder, Part, Sink, SinkId};
use crate::unwind;

/// Encoded bytes that make a chunk of their own, so that none grows without bound.
const CHUNK: usize = 1 << 20;

/// Encodes the rows of `sink` at this worker and adds what comes out to those of its store.
pub(crate) fn encode<'s, T: 'static>(
    site: &Site<'s>,
    node: NodeId,
    id: SinkId,
    sink: &impl Sink<T>,
    streams: Streams<'s, T>,
) {
    let live = Arc::clone(&site.live);
    let this = &live.sinks[usize::from(id.0)];
    let store = this.store;
    let mut builder = OperatorBuilder::new(named(node, "sink"), site.scope);
    let mut rows = builder.new_input(streams.rows, Pipeline);
    let mut spans =
        builder.new_input(site.scope.concatenate(streams.spans.into_values()), Pipeline);
    let mut rejects =
        builder.new_input(site.scope.concatenate(streams.rejects.into_values()), Pipeline);
    for input in 0..3 {
        builder.set_notify_for(input, FrontierInterest::Never);
    }
    let (parts, part_stream) = builder.new_output::<Vec<Part>>();
    let mut parts = OutputBuilder::<_, CapacityContainerBuilder<_>>::from(parts);
    let mut encoder = sink.encoder(&this.shape);
    let address = builder.operator_info().address;
    let wake = wake(site.scope.worker().sync_activator_for(address.to_vec()));
    let watch = live.stores[store].store.watch(&this.shape);
    let meter = live.meter(node);
    let mut refused = SecondLook::new(watch, wake, live.abort.clone());
    builder.build(move |capabilities| {
        drop(capabilities);
        move |_frontiers| {
            if live.abort.is_raised() {
                return; // with what it holds: a fault closes no epoch
            }
            let door = &live.sinks[usize::from(id.0)].door;
            let mut parts = parts.activate();
            // In the order of arrival, which grouping by stamp would not keep. A chunk holds one epoch.
            let mut last: Option<InputCapability<Epoch>> = None;
            rows.for_each(|capability, rows| {
                if let Some(last) = last.take_if(|last| last.least() != capability.least()) {
                    parts.session(&last).give_iterator(taken(&mut *encoder, id, &meter));
                }
                for row in rows.drain(..) {
                    if live.abort.is_raised() {
                        return;
                    }
                    let Row { at, change } = row;
                    if !door.admits(&at) {
                        continue;
                    }
                    let Err(refusal) = encoded(&mut *encoder, at, &change) else {
                        if encoder.buffered() >= CHUNK {
                            parts.session(&capability).give_iterator(taken(
                                &mut *encoder,
                                id,
                                &meter,
                            ));
                        }
                        continue;
                    };
                    if refused.may_help(&refusal)
                        && let Some(capability) = capability.retain_least(0)
                    {
                        refused.hold(Held { capability, at, change, refusal });
                        continue;
                    }
                    let Some(reject) = live.refuse_for(Some(id), Reject { at, refusal }) else {
                        return;
                    };
                    parts.session(&capability).give(Part::Reject(id, reject));
                }
                last = Some(capability);
            });
            if let Some(last) = last {
                parts.session(&last).give_iterator(taken(&mut *encoder, id, &meter));
            }
            rejects.for_each(|capability, rejects| {
                let admitted = rejects.drain(..).filter(|reject| door.admits(&reject.at));
                parts
                    .session(&capability)
                    .give_iterator(admitted.map(|reject| Part::Reject(id, reject)));
            });
            spans.for_each(|capability, read| {
                let read = read.drain(..).filter_map(|read| match read {
                    Read::Span(span) => door.clip(span).map(|span| Part::Span(id, span)),
                    Read::Origins(origins) => Some(Part::Origins(id, origins)),
                    Read::Again(lane, offset) => {
                        let Lane { source, partition } = lane;
                        let at = At { source, partition, offset, ordinal: 0 };
                        door.admits(&at).then_some(Part::Again(id, lane, offset))
                    }
                });
                parts.session(&capability).give_iterator(read);
            });
            let looked = match refused.turn() {
                Ok(looked) => looked,
                Err(error) => return live.abort.raise(error),
            };
            let changed = !looked.is_empty() && encoder.renew();
            for Held { capability, at, change, refusal } in looked {
                let again =
                    if changed { encoded(&mut *encoder, at, &change) } else { Err(refusal) };
                match again {
                    Ok(()) => {
                        parts.session(&capability).give_iterator(taken(&mut *encoder, id, &meter))
                    }
                    Err(refusal) => {
                        let reject = live.refuse_for(Some(id), Reject { at, refusal });
                        let Some(reject) = reject else { return };
                        parts.session(&capability).give(Part::Reject(id, reject));
                    }
                }
            }
        }
    });
    site.parts.borrow_mut().entry(store).or_default().push(part_stream);
}

/// Encodes a row. What it is made of is a user's code too.
fn encoded<T>(encoder: &mut dyn Encoder<T>, at: At, change: &Change<T>) -> Result<(), Refusal> {
    unwind::catch(|| encoder.encode(at, change))
        .unwrap_or_else(|reason| Err(Refusal::new("encode", reason)))
}

/// What was encoded since the last time, as a part.
fn taken<T>(
    encoder: &mut dyn Encoder<T>,
    id: SinkId,
    meter: &NodeMeter,
) -> impl Iterator<Item = Part> + use<T> {
    let chunk = encoder.take().inspect(|chunk| meter.passed(chunk.rows));
    chunk.map(|chunk| Part::Rows(id, chunk)).into_iter()
}
