//! A sink's encoder in the stream: rows through the door, into the form in which they travel.

use std::sync::Arc;

use timely::container::CapacityContainerBuilder;
use timely::dataflow::channels::pact::Pipeline;
use timely::dataflow::operators::Concatenate;
use timely::dataflow::operators::generic::OutputBuilder;
use timely::dataflow::operators::generic::builder_rc::OperatorBuilder;
use timely::progress::operate::FrontierInterest;

use super::Streams;
use super::context::Site;
use crate::record::Reject;
use crate::sink::{Part, Sink, SinkId};

/// Encoded bytes that make a chunk of their own, so that none grows without bound.
const CHUNK: usize = 1 << 20;

/// Encodes the rows of `sink` at this worker and adds what comes out to those of its store.
pub(crate) fn encode<'s, T: 'static>(
    site: &Site<'s>,
    id: SinkId,
    sink: &impl Sink<T>,
    streams: Streams<'s, T>,
) {
    let live = Arc::clone(&site.live);
    let this = &live.sinks[usize::from(id.0)];
    let store = this.store;
    let mut builder = OperatorBuilder::new(format!("Encode {}", this.name), site.scope);
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
    builder.build(move |capabilities| {
        drop(capabilities);
        move |_frontiers| {
            let door = &live.sinks[usize::from(id.0)].door;
            let mut parts = parts.activate();
            rows.for_each_stamp(|capability, containers| {
                let mut session = parts.session(&capability);
                for row in containers.flat_map(|rows| rows.drain(..)) {
                    if live.abort.is_raised() {
                        return;
                    }
                    if !door.admits(&row.at) {
                        continue;
                    }
                    if let Err(refusal) = encoder.encode(row.at, row.change) {
                        let reject = Reject { at: row.at, refusal, key: None, value: None };
                        let Some(reject) = live.refuse_for(Some(id), reject) else { return };
                        session.give(Part::Reject(id, reject));
                    } else if encoder.buffered() >= CHUNK {
                        session
                            .give_iterator(encoder.take().map(|c| Part::Rows(id, c)).into_iter());
                    }
                }
                session.give_iterator(encoder.take().map(|c| Part::Rows(id, c)).into_iter());
            });
            rejects.for_each_stamp(|capability, containers| {
                let admitted = containers
                    .flat_map(|rejects| rejects.drain(..))
                    .filter(|reject| door.admits(&reject.at));
                parts
                    .session(&capability)
                    .give_iterator(admitted.map(|reject| Part::Reject(id, reject)));
            });
            spans.for_each_stamp(|capability, containers| {
                let clipped =
                    containers.flat_map(|spans| spans.drain(..)).filter_map(|span| door.clip(span));
                parts.session(&capability).give_iterator(clipped.map(|span| Part::Span(id, span)));
            });
        }
    });
    site.parts.borrow_mut().entry(store).or_default().push(part_stream);
}
