//! The rows of `pipelines` and `slices`: every statement that reads or moves them.

use std::collections::BTreeMap;

use tokio_postgres::{Row, SimpleQueryMessage};

use super::connect::Session;
use super::ident::{literal, quote};
use super::load::Loader;
use super::retry::Fault;
use crate::error::{Error, Kind};
use crate::position::{Counters, Moved, Slice, SliceKey};
use crate::record::{Incarnation, Offset, Partition};
use crate::sink::{Generation, SourceContext};

/// Where the bookkeeping of one pipeline stands.
#[derive(Clone, Debug)]
pub(super) struct Ledger {
    schema: String,
    pipeline: String,
}

/// What a slice's row says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub generation: Generation,
    pub seq: i64,
    pub position: Offset,
}

/// A move, and what the slice's row must say before it.
#[derive(Clone, Debug)]
pub(super) struct Move {
    pub moved: Moved,
    /// The number of moves before; `None` for a slice that is not stored yet.
    pub seq: Option<i64>,
}

impl Move {
    /// What the row's `seq` is after the move.
    pub fn next_seq(&self) -> i64 {
        self.seq.unwrap_or(0) + 1
    }
}

/// What the stored rows say of an attempt to move all of some slices.
#[derive(Debug)]
pub(super) enum Verdict {
    /// All were moved.
    Done,
    /// None was moved.
    Undone,
    /// The pipeline is another run's.
    Fenced(Generation),
    /// Something else moved them.
    Torn(Error),
}

impl Verdict {
    /// Compares `stored` with `moves` of the run `mine`.
    pub fn of(
        moves: &[Move],
        stored: &BTreeMap<SliceKey, Stored>,
        mine: Generation,
        pipeline: Option<Generation>,
    ) -> Self {
        let rows = moves.iter().map(|step| stored.get(&step.moved.key));
        let other = rows
            .clone()
            .flatten()
            .map(|row| row.generation)
            .chain(pipeline)
            .find(|generation| *generation != mine);
        if let Some(generation) = other {
            return Verdict::Fenced(generation);
        }
        let before = |step: &Move, row: Option<&Stored>| match (step.seq, row) {
            (Some(seq), Some(row)) => row.seq == seq && row.position == step.moved.from,
            (None, None) => true,
            _ => false,
        };
        let after = |step: &Move, row: Option<&Stored>| {
            row.is_some_and(|row| row.seq == step.next_seq() && row.position == step.moved.upto)
        };
        let pairs = || moves.iter().zip(rows.clone());
        if pairs().all(|(step, row)| after(step, row)) {
            return Verdict::Done;
        }
        match pairs().find(|(step, row)| !before(step, *row)) {
            None => Verdict::Undone,
            Some((step, row)) => {
                let Moved { key, from, upto, .. } = &step.moved;
                Verdict::Torn(match row {
                    Some(row) => Error::sink(format!(
                        "slice {key} stands at {} (move {}), the flush covers [{from}, {upto}) \
                         (after move {})",
                        row.position,
                        row.seq,
                        step.seq.unwrap_or(0)
                    )),
                    // A restart would read all from its beginning, unasked.
                    None => Error::position(format!(
                        "slice {key} is not stored any more, the flush covers [{from}, {upto}): somebody \
                         removed its position, and the next run begins anew; empty its table first"
                    )),
                })
            }
        }
    }
}

/// A list of keys as three arrays, in step.
fn split<'a>(
    keys: impl IntoIterator<Item = &'a SliceKey>,
) -> (Vec<&'a str>, Vec<&'a str>, Vec<i32>) {
    let mut columns = (Vec::new(), Vec::new(), Vec::new());
    for key in keys {
        columns.0.push(key.sink.as_str());
        columns.1.push(key.source.as_str());
        columns.2.push(key.partition.0);
    }
    columns
}

/// Counters as the server keeps them. What a replay takes back wraps around, and comes out negative.
fn signed(count: u64) -> i64 {
    count.cast_signed()
}

/// Counters as arrays, in the order of the columns, in step.
fn counts<'a>(all: impl Iterator<Item = &'a Counters> + Clone) -> [Vec<i64>; 6] {
    let column = |of: fn(&Counters) -> u64| all.clone().map(|c| signed(of(c))).collect();
    [
        column(|c| c.consumed),
        column(|c| c.filtered),
        column(|c| c.written),
        column(|c| c.rejected),
        column(|c| c.collapsed),
        column(|c| c.rows),
    ]
}

/// The ids and places of incarnations, in step.
fn incarnations<'a>(
    all: impl Iterator<Item = Option<&'a Incarnation>>,
) -> (Vec<Option<&'a str>>, Vec<Option<&'a str>>) {
    all.map(|known| {
        let known = known.map(|Incarnation { id, place }| (id.as_deref(), place.as_deref()));
        known.unwrap_or_default()
    })
    .unzip()
}

impl Ledger {
    /// The bookkeeping of `pipeline` in `schema`.
    pub fn new(schema: &str, pipeline: &str) -> Self {
        Ledger { schema: quote(schema), pipeline: pipeline.into() }
    }

    /// The generation, if the pipeline ever ran.
    pub async fn generation(&self, session: &Session) -> Result<Option<Generation>, Fault> {
        let sql = format!("select generation from {}.pipelines where pipeline = $1", self.schema);
        let row = session.within(session.client.query_opt(&sql, &[&self.pipeline])).await?;
        Ok(row.map(|row| Generation(row.get(0))))
    }

    /// Takes the next generation and stamps it on all slices, within the open transaction.
    pub async fn bump(&self, session: &Session) -> Result<Generation, Fault> {
        let sql = format!(
            "insert into {0}.pipelines as p (pipeline, generation) values ($1, 1)
             on conflict (pipeline)
             do update set generation = p.generation + 1, updated_at = now()
             returning generation",
            self.schema
        );
        let row = session.within(session.client.query_one(&sql, &[&self.pipeline])).await?;
        let generation: i64 = row.get(0);
        let sql = format!("update {}.slices set generation = $2 where pipeline = $1", self.schema);
        session.within(session.client.execute(&sql, &[&self.pipeline, &generation])).await?;
        Ok(Generation(generation))
    }

    /// All slices.
    pub async fn slices(&self, session: &Session) -> Result<Vec<Slice>, Fault> {
        let sql = format!(
            "select {SLICE} from {}.slices where pipeline = $1 order by sink, source, partition",
            self.schema
        );
        let rows = session.within(session.client.query(&sql, &[&self.pipeline])).await?;
        Ok(rows.iter().map(slice).collect())
    }

    /// What the moved slices' rows say; with `lock`, once no transaction moves them any more.
    pub async fn stored(
        &self,
        session: &Session,
        moves: &[Move],
        lock: bool,
    ) -> Result<BTreeMap<SliceKey, Stored>, Fault> {
        let (sinks, sources, partitions) = split(moves.iter().map(|step| &step.moved.key));
        let sql = format!(
            "select sink, source, partition, generation, seq, position from {}.slices
              where pipeline = $1
                and (sink, source, partition) in
                    (select * from unnest($2::text[], $3::text[], $4::int4[])){}",
            self.schema,
            if lock { " for update" } else { "" }
        );
        let rows = session
            .within(session.client.query(&sql, &[&self.pipeline, &sinks, &sources, &partitions]))
            .await?;
        Ok(rows
            .iter()
            .map(|row| {
                let stored = Stored {
                    generation: Generation(row.get(3)),
                    seq: row.get(4),
                    position: Offset(row.get(5)),
                };
                (key(row), stored)
            })
            .collect())
    }

    /// Stores new slices, within the open transaction.
    pub async fn insert(
        &self,
        session: &Session,
        generation: Generation,
        slices: &[Slice],
    ) -> Result<(), Fault> {
        let (sinks, sources, partitions) = split(slices.iter().map(|slice| &slice.key));
        let seqs: Vec<i64> = slices.iter().map(|slice| slice.seq).collect();
        let positions: Vec<i64> = slices.iter().map(|slice| slice.position.0).collect();
        let [consumed, filtered, written, rejected, collapsed, rows] =
            counts(slices.iter().map(|slice| &slice.counters));
        let (ids, places) = incarnations(slices.iter().map(|slice| Some(&slice.incarnation)));
        let sql = format!(
            "insert into {}.slices (pipeline, sink, source, partition, generation, seq, position,
                    first, consumed, filtered, written, rejected, collapsed, rows,
                    topic_id, cluster_id)
             select $1, sink, source, partition, $2, seq, position,
                    position, consumed, filtered, written, rejected, collapsed, rows,
                    topic_id, cluster_id
               from unnest($3::text[], $4::text[], $5::int4[], $6::int8[], $7::int8[], $8::int8[],
                           $9::int8[], $10::int8[], $11::int8[], $12::int8[], $13::int8[],
                           $14::text[], $15::text[])
                 as s (sink, source, partition, seq, position,
                       consumed, filtered, written, rejected, collapsed, rows,
                       topic_id, cluster_id)",
            self.schema
        );
        session
            .within(session.client.execute(
                &sql,
                &[
                    &self.pipeline,
                    &generation.0,
                    &sinks,
                    &sources,
                    &partitions,
                    &seqs,
                    &positions,
                    &consumed,
                    &filtered,
                    &written,
                    &rejected,
                    &collapsed,
                    &rows,
                    &ids,
                    &places,
                ],
            ))
            .await?;
        Ok(())
    }

    /// Stores which `source` its slices are of, where that is not known yet, within the open transaction.
    pub async fn identify(
        &self,
        session: &Session,
        source: &str,
        Incarnation { id, place }: &Incarnation,
    ) -> Result<(), Fault> {
        let sql = format!(
            "update {}.slices set topic_id = coalesce(topic_id, $3),
                    cluster_id = coalesce(cluster_id, $4)
              where pipeline = $1 and source = $2",
            self.schema
        );
        session
            .within(session.client.execute(&sql, &[&self.pipeline, &source, &id, &place]))
            .await?;
        Ok(())
    }

    /// Adds the slices that are moved for the first time, if the pipeline is still `generation`'s.
    pub async fn open(
        &self,
        session: &Session,
        generation: Generation,
        sources: &[SourceContext],
        moves: &[Move],
    ) -> Result<(), Fault> {
        let fresh: Vec<&Moved> =
            moves.iter().filter(|step| step.seq.is_none()).map(|step| &step.moved).collect();
        if fresh.is_empty() {
            return Ok(());
        }
        let (sinks, names, partitions) = split(fresh.iter().map(|moved| &moved.key));
        let positions: Vec<i64> = fresh.iter().map(|moved| moved.from.0).collect();
        let (ids, places) = incarnations(fresh.iter().map(|moved| {
            let source = sources.iter().find(|source| source.name == moved.key.source);
            source.map(|source| &source.incarnation)
        }));
        let sql = format!(
            "insert into {0}.slices
                 (pipeline, sink, source, partition, generation, seq, position, first,
                  topic_id, cluster_id)
             select $1, s.sink, s.source, s.partition, $2, 0, s.position, s.position,
                    s.topic_id, s.cluster_id
               from unnest($3::text[], $4::text[], $5::int4[], $6::int8[], $7::text[], $8::text[])
                 as s (sink, source, partition, position, topic_id, cluster_id)
              where exists (select from {0}.pipelines where pipeline = $1 and generation = $2)
             on conflict do nothing",
            self.schema
        );
        session
            .within(session.client.execute(
                &sql,
                &[
                    &self.pipeline,
                    &generation.0,
                    &sinks,
                    &names,
                    &partitions,
                    &positions,
                    &ids,
                    &places,
                ],
            ))
            .await?;
        Ok(())
    }

    /// The compare and set: moves the slices that stand where their moves begin, and counts them.
    pub async fn advance(
        &self,
        session: &Session,
        loader: &mut Loader,
        generation: Generation,
        moves: &[Move],
    ) -> Result<usize, Fault> {
        let (sinks, sources, partitions) = split(moves.iter().map(|step| &step.moved.key));
        let seqs: Vec<i64> = moves.iter().map(|step| step.seq.unwrap_or(0)).collect();
        let from: Vec<i64> = moves.iter().map(|step| step.moved.from.0).collect();
        let upto: Vec<i64> = moves.iter().map(|step| step.moved.upto.0).collect();
        let epochs: Vec<_> = moves.iter().map(|step| step.moved.leader_epoch).collect();
        let [consumed, filtered, written, rejected, collapsed, rows] =
            counts(moves.iter().map(|step| &step.moved.counters));
        let sql = format!(
            "update {}.slices s
                set seq = s.seq + 1, position = m.upto, consumed = s.consumed + m.consumed,
                    filtered = s.filtered + m.filtered, written = s.written + m.written,
                    rejected = s.rejected + m.rejected, collapsed = s.collapsed + m.collapsed,
                    rows = s.rows + m.rows, updated_at = now(),
                    leader_epoch = case when m.upto = m.since then s.leader_epoch else m.leader_epoch end
               from unnest($3::text[], $4::text[], $5::int4[], $6::int8[], $7::int8[], $8::int8[],
                           $9::int8[], $10::int8[], $11::int8[], $12::int8[], $13::int8[],
                           $14::int8[], $15::int4[])
                 as m (sink, source, partition, seq, since, upto,
                       consumed, filtered, written, rejected, collapsed, rows, leader_epoch)
              where s.pipeline = $1 and s.generation = $2 and s.sink = m.sink
                and s.source = m.source and s.partition = m.partition
                and s.seq = m.seq and s.position = m.since",
            self.schema
        );
        let statement = loader.statement(session, sql).await?;
        let moved = session
            .within(session.client.execute(
                &statement,
                &[
                    &self.pipeline,
                    &generation.0,
                    &sinks,
                    &sources,
                    &partitions,
                    &seqs,
                    &from,
                    &upto,
                    &consumed,
                    &filtered,
                    &written,
                    &rejected,
                    &collapsed,
                    &rows,
                    &epochs,
                ],
            ))
            .await?;
        Ok(usize::try_from(moved).unwrap_or(usize::MAX))
    }

    /// COMMIT and the read-back of the moved slices, as one simple query: an answer that shows them
    /// moved cannot come from a transaction that was rolled back.
    pub fn commit_sql(&self, moves: &[Move]) -> String {
        let keys: Vec<String> = moves
            .iter()
            .map(|step| {
                let SliceKey { sink, source, partition } = &step.moved.key;
                format!("({}, {}, {partition})", literal(sink), literal(source))
            })
            .collect();
        format!(
            "commit; select sink, source, partition, generation, seq, position from {}.slices \
             where pipeline = {} and (sink, source, partition) in ({})",
            self.schema,
            literal(&self.pipeline),
            keys.join(", ")
        )
    }

    /// Moves one slice by hand, or drops it, within the open transaction; `false` where there is none.
    /// Its counters no longer tell of all between where it began and where it stands, and of which source it
    /// is, the next run finds out.
    pub async fn reposition(
        &self,
        session: &Session,
        key: &SliceKey,
        position: Option<Offset>,
    ) -> Result<bool, Fault> {
        let of = "where pipeline = $1 and sink = $2 and source = $3 and partition = $4";
        let SliceKey { sink, source, partition } = key;
        let changed = match position {
            Some(position) => {
                let sql = format!(
                    "update {}.slices set seq = seq + 1, position = $5, first = null,
                            topic_id = null, cluster_id = null, leader_epoch = null,
                            updated_at = now() {of}",
                    self.schema
                );
                session
                    .within(
                        session.client.execute(
                            &sql,
                            &[&self.pipeline, sink, source, &partition.0, &position.0],
                        ),
                    )
                    .await?
            }
            None => {
                let sql = format!("delete from {}.slices {of}", self.schema);
                session
                    .within(
                        session.client.execute(&sql, &[&self.pipeline, sink, source, &partition.0]),
                    )
                    .await?
            }
        };
        Ok(changed > 0)
    }

    /// The error of a run that was overtaken.
    pub fn fenced(&self, mine: Generation, theirs: Generation) -> Error {
        Error::new(
            Kind::Fenced,
            format!(
                "pipeline `{}` was taken over by generation {}; this run ({}) wrote nothing more",
                self.pipeline, theirs.0, mine.0
            ),
        )
    }
}

/// The rows that [`Ledger::commit_sql`] read back.
pub(super) fn read_back(answers: &[SimpleQueryMessage]) -> BTreeMap<SliceKey, Stored> {
    let rows = answers.iter().filter_map(|answer| match answer {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    rows.filter_map(|row| {
        let number = |column| row.get(column).and_then(|text: &str| text.parse::<i64>().ok());
        let key = SliceKey {
            sink: row.get(0)?.to_owned(),
            source: row.get(1)?.to_owned(),
            partition: Partition(row.get(2)?.parse().ok()?),
        };
        let stored = Stored {
            generation: Generation(number(3)?),
            seq: number(4)?,
            position: Offset(number(5)?),
        };
        Some((key, stored))
    })
    .collect()
}

fn key(row: &Row) -> SliceKey {
    SliceKey { sink: row.get(0), source: row.get(1), partition: Partition(row.get(2)) }
}

/// The columns that [`slice()`] reads.
pub(super) const SLICE: &str = "\
sink, source, partition, seq, position, consumed, filtered, written, rejected, collapsed, rows, \
topic_id, cluster_id, leader_epoch";

/// A slice from the columns [`SLICE`].
pub(super) fn slice(row: &Row) -> Slice {
    let count = |column: usize| u64::try_from(row.get::<_, i64>(column)).unwrap_or_default();
    Slice {
        key: key(row),
        seq: row.get(3),
        position: Offset(row.get(4)),
        counters: Counters {
            consumed: count(5),
            filtered: count(6),
            written: count(7),
            rejected: count(8),
            collapsed: count(9),
            rows: count(10),
        },
        incarnation: Incarnation { id: row.get(11), place: row.get(12) },
        leader_epoch: row.get(13),
    }
}
