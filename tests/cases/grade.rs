//! What is wrong with an outcome.

use std::collections::BTreeMap;
use std::fmt::Debug;

use super::form::{Expected, Rejected};
use super::outcome::{Counters, Outcome, Parked};
use super::produce::Sent;

/// What was produced, and where it ended.
pub struct Given<'a> {
    pub topic: &'a str,
    pub sent: &'a [Sent],
    pub ends: &'a BTreeMap<i32, i64>,
}

/// All objections to an outcome; none where it is as expected.
pub fn grade(expected: &Expected, given: &Given<'_>, outcome: &Outcome) -> Vec<String> {
    let mut wrong = Vec::new();
    if outcome.rows != expected.rows {
        wrong.push(format!("rows: {}\n    not {}", short(&outcome.rows), short(&expected.rows)));
    }
    grade_rejects(expected, given, outcome, &mut wrong);
    grade_slices(given, outcome, &mut wrong);
    wrong
}

fn grade_rejects(
    expected: &Expected,
    given: &Given<'_>,
    outcome: &Outcome,
    wrong: &mut Vec<String>,
) {
    let places = given.sent.iter().map(|sent| (sent.partition, sent.offset));
    let indices: BTreeMap<_, _> = places.zip(0..).collect();
    let mut refused = BTreeMap::<usize, &Parked>::new();
    for parked in &outcome.rejects {
        let place = (parked.partition, parked.offset);
        let Some(index) = indices.get(&place) else {
            wrong.push(format!("a reject of {place:?}, where no message is"));
            continue;
        };
        if refused.insert(*index, parked).is_some() {
            wrong.push(format!("message {index} is rejected twice"));
        }
    }
    let mut missing: BTreeMap<_, _> = expected.rejects.iter().map(|r| (r.index, r)).collect();
    for (index, parked) in refused {
        let said = format!("{:?} {:?} {}", parked.column, parked.sqlstate, parked.reason);
        wrong.extend(altered(given.topic, &given.sent[index], parked).map(|what| {
            format!("the reject of message {index} has another {what} than the message")
        }));
        match missing.remove(&index) {
            None => wrong.push(format!("message {index} is rejected: {said}")),
            Some(wanted) if !is_alike(wanted, parked) => wrong.push(format!(
                "message {index} is rejected with {said}\n    not {:?} {:?}",
                wanted.column, wanted.sqlstate
            )),
            Some(_) => {}
        }
    }
    for Rejected { index, column, sqlstate } in missing.into_values() {
        wrong.push(format!("message {index} is not rejected: {column:?} {sqlstate:?}"));
    }
}

/// Whether a reject names the column at fault, and no other class of error than the server.
fn is_alike(wanted: &Rejected, parked: &Parked) -> bool {
    let class = |code: &str| code.chars().take(2).collect::<String>();
    let column = wanted.column.is_none() || wanted.column == parked.column;
    let code = match (&wanted.sqlstate, &parked.sqlstate) {
        (_, None) => true,
        (Some(wanted), Some(code)) => class(wanted) == class(code),
        // Where no server can be asked, the program may still say which fault of a record it is.
        (None, Some(code)) => ["22", "23"].contains(&class(code).as_str()),
    };
    column && code && !parked.reason.is_empty()
}

/// What of a message its reject does not have as it was sent.
fn altered<'a>(topic: &str, sent: &'a Sent, parked: &'a Parked) -> impl Iterator<Item = &'a str> {
    let timestamp = sent.timestamp_ms.is_none() || sent.timestamp_ms == parked.timestamp_ms;
    let same = [
        ("topic", parked.topic == topic),
        ("key", parked.key == sent.key),
        ("payload", parked.payload == sent.value),
        ("headers", parked.headers == sent.headers),
        ("timestamp", timestamp),
    ];
    same.into_iter().filter(|(_, same)| !same).map(|(what, _)| what)
}

fn grade_slices(given: &Given<'_>, outcome: &Outcome, wrong: &mut Vec<String>) {
    for (partition, end) in given.ends {
        let found = outcome.slices.get(partition).copied().unwrap_or_default();
        let Counters { position, consumed, filtered, written, rejected, collapsed } = found;
        if position != *end {
            wrong.push(format!("partition {partition} stands at {position}, its end is {end}"));
        }
        if consumed != filtered + written + rejected + collapsed {
            wrong.push(format!("partition {partition} does not add up: {found:?}"));
        }
        let sent = given.sent.iter().filter(|sent| sent.partition == *partition);
        let readable = sent.filter(|sent| sent.readable).count();
        if consumed != readable as i64 {
            wrong.push(format!("{consumed} records of partition {partition}, not {readable}"));
        }
        let parked = outcome.rejects.iter().filter(|parked| parked.partition == *partition);
        let parked = parked.count();
        if rejected != parked as i64 {
            wrong.push(format!(
                "{rejected} rejects of partition {partition} are counted, {parked} are stored"
            ));
        }
    }
    if !outcome.slices.keys().eq(given.ends.keys()) {
        let slices = outcome.slices.keys();
        wrong.push(format!("partitions {slices:?} are stored, not {:?}", given.ends.keys()));
    }
}

/// As much of a value as a person reads.
fn short(value: &impl Debug) -> String {
    let text = format!("{value:?}");
    match text.char_indices().nth(2000) {
        Some((at, _)) => format!("{}..", &text[..at]),
        None => text,
    }
}
