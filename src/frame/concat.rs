//! Rows of two frames in one stream, counted.

use timely::container::CapacityContainerBuilder;
use timely::dataflow::StreamVec;
use timely::dataflow::channels::pact::Pipeline;
use timely::dataflow::operators::Concat;
use timely::dataflow::operators::generic::operator::Operator;

use super::context::Site;
use super::input::named;
use crate::epoch::Epoch;
use crate::plan::NodeId;
use crate::record::Row;

/// The rows of both.
pub(crate) fn concat<'s, T: 'static>(
    site: &Site<'s>,
    node: NodeId,
    one: StreamVec<'s, Epoch, Row<T>>,
    two: StreamVec<'s, Epoch, Row<T>>,
) -> StreamVec<'s, Epoch, Row<T>> {
    let meter = site.live.meter(node);
    let name = named(node, "concat");
    one.concat(two).unary::<CapacityContainerBuilder<Vec<_>>, _, _, _>(
        Pipeline,
        &name,
        |_capability, _info| {
            move |input, output| {
                // In the order of arrival, which grouping by stamp would not keep.
                input.for_each(|capability, rows| {
                    meter.passed(rows.len());
                    output.session(&capability).give_container(rows);
                });
            }
        },
    )
}
