//! Operators that look at one row after the other: filter, map, try_map, flat_map, inspect.

use std::fmt::Display;
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
use crate::record::{At, Change, Refusal, Reject, Row};
use crate::unwind;

/// What is done with a container of rows. `refuse` takes what is refused and says whether to go on.
///
/// A closure of the user's may panic in the middle: the row it was called with is refused, and the rows
/// after it go on.
pub(crate) trait Step<T, U> {
    fn step(&self, rows: &mut Vec<Row<T>>, out: &mut Vec<Row<U>>, refuse: &mut Refuse<'_>);
}

/// Takes a refused row; `false` where the run is to end.
pub(crate) type Refuse<'a> = dyn FnMut(At, String) -> bool + 'a;

/// Builds an operator around `step`.
pub(crate) fn each<'s, T: 'static, U: 'static>(
    site: &Site<'s>,
    node: NodeId,
    kind: &'static str,
    stream: StreamVec<'s, Epoch, Row<T>>,
    step: impl Step<T, U> + 'static,
) -> (StreamVec<'s, Epoch, Row<U>>, StreamVec<'s, Epoch, Reject>) {
    let mut builder = OperatorBuilder::new(named(node, kind), site.scope);
    let mut input = builder.new_input(stream, Pipeline);
    let (rows, row_stream) = builder.new_output::<Vec<Row<U>>>();
    let (rejects, reject_stream) = builder.new_output::<Vec<Reject>>();
    let mut rows = OutputBuilder::<_, CapacityContainerBuilder<_>>::from(rows);
    let mut rejects = OutputBuilder::<_, CapacityContainerBuilder<_>>::from(rejects);
    let live = Arc::clone(&site.live);
    let meter = live.meter(node);
    builder.build(move |capabilities| {
        drop(capabilities); // it makes nothing of its own accord
        let mut out = Vec::new();
        let mut refused = Vec::new();
        move |_frontiers| {
            let mut rows = rows.activate();
            let mut rejects = rejects.activate();
            input.for_each(|capability, data| {
                if live.abort.is_raised() {
                    return;
                }
                step.step(data, &mut out, &mut |at, reason| {
                    let refusal = Refusal::new(kind, reason);
                    let reject = live.refuse(Reject { at, refusal });
                    let go_on = reject.is_some();
                    refused.extend(reject);
                    go_on
                });
                if !out.is_empty() {
                    meter.passed(out.len());
                    rows.session(&capability).give_container(&mut out);
                    out.clear();
                }
                if !refused.is_empty() {
                    rejects.session(&capability).give_container(&mut refused);
                    refused.clear();
                }
            });
        }
    });
    (row_stream, reject_stream)
}

pub(crate) struct Filter<F>(pub F);

impl<T, F: Fn(&T) -> bool> Step<T, T> for Filter<F> {
    fn step(&self, rows: &mut Vec<Row<T>>, out: &mut Vec<Row<T>>, refuse: &mut Refuse<'_>) {
        // In place: rows that stay move to the front, which costs nothing where all stay.
        let (mut next, mut kept) = (0, 0);
        while next < rows.len() {
            let panicked = unwind::catch(|| {
                while next < rows.len() {
                    let keep = match &rows[next].change {
                        Change::Put(value) => (self.0)(value),
                        Change::Delete(_) => true,
                    };
                    if keep {
                        rows.swap(kept, next);
                        kept += 1;
                    }
                    next += 1;
                }
            });
            if let Err(reason) = panicked {
                if !refuse(rows[next].at, reason) {
                    return;
                }
                next += 1;
            }
        }
        rows.truncate(kept);
        std::mem::swap(rows, out);
    }
}

/// Feeds rows one by one to `make`, which may panic or refuse.
fn transform<T, U>(
    rows: &mut Vec<Row<T>>,
    out: &mut Vec<Row<U>>,
    refuse: &mut Refuse<'_>,
    make: impl Fn(At, T, &mut Vec<Row<U>>) -> Result<(), String>,
) {
    out.reserve(rows.len());
    let mut rows = rows.drain(..);
    let mut at = None;
    let mut made = 0;
    loop {
        let end = unwind::catch(|| {
            for row in rows.by_ref() {
                at = Some(row.at);
                made = out.len();
                match row.change {
                    Change::Put(value) => make(row.at, value, out)?,
                    Change::Delete(key) => {
                        out.push(Row { at: row.at, change: Change::Delete(key) })
                    }
                }
            }
            Ok(())
        });
        let (Ok(Err(reason)) | Err(reason)) = end else { return };
        out.truncate(made); // a refused record leaves no row behind
        if !refuse(at.expect("a row was at work"), reason) {
            return;
        }
    }
}

fn put<U>(at: At, value: U) -> Row<U> {
    Row { at, change: Change::Put(value) }
}

pub(crate) struct Map<F>(pub F);

impl<T, U, F: Fn(T) -> U> Step<T, U> for Map<F> {
    fn step(&self, rows: &mut Vec<Row<T>>, out: &mut Vec<Row<U>>, refuse: &mut Refuse<'_>) {
        transform(rows, out, refuse, |at, value, out| {
            out.push(put(at, (self.0)(value)));
            Ok(())
        });
    }
}

pub(crate) struct TryMap<F>(pub F);

impl<T, U, E: Display, F: Fn(T) -> Result<U, E>> Step<T, U> for TryMap<F> {
    fn step(&self, rows: &mut Vec<Row<T>>, out: &mut Vec<Row<U>>, refuse: &mut Refuse<'_>) {
        transform(rows, out, refuse, |at, value, out| {
            out.push(put(at, (self.0)(value).map_err(|error| error.to_string())?));
            Ok(())
        });
    }
}

pub(crate) struct FlatMap<F>(pub F);

impl<T, U, I: IntoIterator<Item = U>, F: Fn(T) -> I> Step<T, U> for FlatMap<F> {
    fn step(&self, rows: &mut Vec<Row<T>>, out: &mut Vec<Row<U>>, refuse: &mut Refuse<'_>) {
        transform(rows, out, refuse, |at, value, out| {
            for (ordinal, value) in (self.0)(value).into_iter().enumerate() {
                let ordinal = u32::try_from(ordinal).unwrap_or(u32::MAX);
                out.push(put(At { ordinal: at.ordinal.saturating_add(ordinal), ..at }, value));
            }
            Ok(())
        });
    }
}

pub(crate) struct Inspect<F>(pub F);

impl<T, F: Fn(&T)> Step<T, T> for Inspect<F> {
    fn step(&self, rows: &mut Vec<Row<T>>, out: &mut Vec<Row<T>>, refuse: &mut Refuse<'_>) {
        let look = |value: &T| {
            (self.0)(value);
            true
        };
        Filter(look).step(rows, out, refuse);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Offset, Partition, SourceId};

    fn rows(values: impl IntoIterator<Item = i64>) -> Vec<Row<i64>> {
        let at = |offset| At {
            source: SourceId(0),
            partition: Partition(0),
            offset: Offset(offset),
            ordinal: 0,
        };
        values.into_iter().map(|value| put(at(value), value)).collect()
    }

    fn run<U>(step: &impl Step<i64, U>) -> (Vec<U>, Vec<(i64, String)>) {
        let (mut out, mut refused) = (Vec::new(), Vec::new());
        step.step(&mut rows(0..6), &mut out, &mut |at, reason| {
            refused.push((at.offset.0, reason));
            true
        });
        let value = |row: Row<U>| match row.change {
            Change::Put(value) => value,
            Change::Delete(_) => unreachable!("none were given"),
        };
        (out.into_iter().map(value).collect(), refused)
    }

    #[test]
    fn a_panic_refuses_its_row_and_no_other() {
        let (kept, refused) = run(&Filter(|value: &i64| {
            assert!(*value != 3, "three");
            value % 2 == 1
        }));
        assert_eq!(kept, [1, 5]);
        assert_eq!(refused, [(3, "three".to_owned())]);

        let (made, refused) = run(&Map(|value: i64| {
            assert!(value != 0 && value != 5, "no");
            value * 10
        }));
        assert_eq!(made, [10, 20, 30, 40]);
        assert_eq!(refused.len(), 2);
    }

    #[test]
    fn a_record_refused_half_way_leaves_no_row_behind() {
        let (made, refused) = run(&FlatMap(|value: i64| {
            (0..2).map(move |copy| {
                assert!(!(value == 2 && copy == 1), "half way");
                value
            })
        }));
        assert_eq!(made, [0, 0, 1, 1, 3, 3, 4, 4, 5, 5]);
        assert_eq!(refused, [(2, "half way".to_owned())]);
    }

    #[test]
    fn try_map_refuses_with_its_own_words() {
        let (made, refused) =
            run(&TryMap(|value: i64| if value == 4 { Err("no fours") } else { Ok(value) }));
        assert_eq!(made, [0, 1, 2, 3, 5]);
        assert_eq!(refused, [(4, "no fours".to_owned())]);
    }
}
