//! Refused records that are kept: read, deleted, counted.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use futures_util::TryStreamExt;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::connect::Session;
use super::ident::quote;
use super::ledger;
use super::retry::Fault;
use super::shape::LiveTable;
use crate::error::{Error, Result};
use crate::origins::Origin;
use crate::record::{Offset, Partition};
use crate::sink::{Audit, AuditedSlice, Selection, StoredReject};

/// How many are deleted in one transaction.
const BATCH: i64 = 5000;

/// How long a table may take to be counted.
pub(super) const COUNT: Duration = Duration::from_secs(3600);

/// What a selection says, with the pipeline as `$1`.
const WHERE: &str = "\
pipeline = $1
 and ($2::text is null or sink = $2)
 and ($3::text is null or topic = $3)
 and ($4::int4 is null or partition = $4)
 and ($5::text is null or position($5 in reason) > 0)
 and ($6::text is null or sqlstate = $6)
 and ($7::text is null or stage = $7)
 and ($8::timestamptz is null or at >= $8)
 and ($9::timestamptz is null or at < $9)
 and ($10::int8 is null or id > $10)
 and ($11::int8 is null or id < $11)";

/// The values of [`WHERE`].
fn values<'a>(pipeline: &'a String, selection: &'a Selection) -> Vec<&'a (dyn ToSql + Sync)> {
    let Selection { sink, topic, partition, reason, sqlstate, stage, .. } = selection;
    let Selection { since, until, after, before, .. } = selection;
    vec![pipeline, sink, topic, partition, reason, sqlstate, stage, since, until, after, before]
}

/// Hands those selected to `each`, in the order of their ids.
pub(super) async fn read(
    session: &Session,
    schema: &str,
    pipeline: &str,
    selection: &Selection,
    each: &mut dyn FnMut(StoredReject) -> Result<()>,
) -> Result<(), Fault> {
    let held = if selection.brief {
        "null::bytea, null::bytea, null::text, null::int8"
    } else {
        "key, payload, headers::text, timestamp_ms"
    };
    let columns = format!(
        "id, sink, topic, partition, \"offset\", ordinal, stage, \"column\", reason, sqlstate, at, {held}"
    );
    let table = format!("{}.rejects", quote(schema));
    let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let (newest, oldest) = (selection.newest.map(count), selection.oldest.map(count));
    let pipeline = pipeline.to_owned();
    let mut values = values(&pipeline, selection);
    let sql = match (&newest, &oldest) {
        (None, None) => format!("select {columns} from {table} where {WHERE} order by id"),
        (None, Some(oldest)) => {
            values.push(oldest);
            format!("select {columns} from {table} where {WHERE} order by id limit $12")
        }
        (Some(newest), _) => {
            values.push(newest);
            format!(
                "select {columns} from {table} where id in
                     (select id from {table} where {WHERE} order by id desc limit $12)
                  order by id"
            )
        }
    };
    // The rows come as they are asked for: what is not read yet stays with the server.
    let rows = session.within(session.client.query_raw(&sql, values)).await?;
    let mut rows = pin!(rows);
    while let Some(row) = session.within(rows.try_next()).await? {
        each(reject(&row)?)?;
    }
    Ok(())
}

fn reject(row: &Row) -> Result<StoredReject> {
    let headers: Option<String> = row.get(13);
    let origin = headers.map(|headers| {
        Ok::<_, Error>(Origin {
            timestamp: row.get(14),
            key: row.get(11),
            value: row.get(12),
            headers: parsed(&headers).ok_or_else(|| {
                let id: i64 = row.get(0);
                Error::sink(format!("the headers of reject {id} are not as they were stored"))
            })?,
        })
    });
    Ok(StoredReject {
        id: row.get(0),
        sink: row.get(1),
        topic: row.get(2),
        partition: Partition(row.get(3)),
        offset: Offset(row.get(4)),
        ordinal: row.get(5),
        origin: origin.transpose()?,
        stage: row.get(6),
        column: row.get(7),
        reason: row.get(8),
        sqlstate: row.get(9),
        at: row.get(10),
    })
}

/// Headers as [`rejects`](super::rejects) writes them.
fn parsed(json: &str) -> Option<Vec<(String, Option<Vec<u8>>)>> {
    let all: Vec<BTreeMap<String, String>> = serde_json::from_str(json).ok()?;
    let header = |mut header: BTreeMap<String, String>| {
        let value = match (header.remove("text"), header.remove("hex")) {
            (Some(text), None) => Some(text.into_bytes()),
            (None, Some(hex)) => Some(bytes(&hex)?),
            (None, None) => None,
            _ => return None,
        };
        Some((header.remove("name")?, value))
    };
    all.into_iter().map(header).collect()
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    if !hex.is_ascii() || !hex.len().is_multiple_of(2) {
        return None;
    }
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).ok()).collect()
}

/// Deletes those selected, a batch a transaction.
pub(super) async fn delete(
    session: &Session,
    schema: &str,
    pipeline: &str,
    selection: &Selection,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<u64, Fault> {
    let sql = format!(
        "with old as (select id from {0}.rejects where {WHERE} order by id limit {BATCH}),
              gone as (delete from {0}.rejects r using old where r.id = old.id returning r.id)
         select (select count(*) from gone), (select max(id) from old)",
        quote(schema)
    );
    let statement = session.within(session.client.prepare(&sql)).await?;
    let pipeline = pipeline.to_owned();
    let mut rest = selection.clone();
    let mut deleted = 0;
    loop {
        let row =
            session.within(session.client.query_one(&statement, &values(&pipeline, &rest))).await?;
        deleted += u64::try_from(row.get::<_, i64>(0)).unwrap_or(0);
        // From here on: what was deleted would be passed over again and again.
        let Some(last) = row.get::<_, Option<i64>>(1) else { return Ok(deleted) };
        rest.after = Some(last);
        if !go_on(deleted) {
            return Ok(deleted);
        }
    }
}

/// Slices, rejects and tables in one snapshot.
pub(super) async fn audit(
    session: &Session,
    schema: &str,
    pipeline: &str,
    sinks: &[(&str, &LiveTable)],
) -> Result<Audit, Fault> {
    session.batch("begin isolation level repeatable read read only").await?;
    let sql = format!(
        "select {}, s.first as begun, (select count(distinct r.\"offset\") from {1}.rejects r
                 where r.pipeline = s.pipeline and r.sink = s.sink and r.topic = s.source
                   and r.partition = s.partition
                   and r.\"offset\" >= coalesce(s.first, 0) and r.\"offset\" < s.position) as refused
           from {1}.slices s where s.pipeline = $1 order by s.sink, s.source, s.partition",
        ledger::SLICE,
        quote(schema)
    );
    let rows = session.within(session.client.query(&sql, &[&pipeline])).await?;
    let slices = rows.iter().map(|row| AuditedSlice {
        slice: ledger::slice(row),
        first: row.get::<_, Option<i64>>("begun").map(Offset),
        rejects: u64::try_from(row.get::<_, i64>("refused")).unwrap_or(0),
    });
    let mut audit = Audit { slices: slices.collect(), ..Audit::default() };
    for (sink, live) in sinks {
        let table = &live.newest().1.table;
        if !table.key.is_empty() || !table.judges_null {
            continue;
        }
        let sql = format!("select count(*) from {}.{}", quote(&table.schema), quote(&table.name));
        let row = session.within(session.client.query_one(&sql, &[])).await?;
        audit.tables.insert((*sink).to_owned(), u64::try_from(row.get::<_, i64>(0)).unwrap_or(0));
    }
    session.batch("commit").await?;
    Ok(audit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back_as_they_were() {
        let json = r#"[{"name":"a"},{"name":"a","text":""},{"hex":"ff00","name":"b"}]"#;
        let (a, b) = ("a".to_owned(), "b".to_owned());
        let expected = vec![(a.clone(), None), (a, Some(vec![])), (b, Some(vec![0xff, 0]))];
        assert_eq!(parsed(json), Some(expected));
        assert_eq!(parsed(r#"[{"name":"a","hex":"f"}]"#), None);
        assert_eq!(parsed(r#"[{"text":"x"}]"#), None);
    }
}
