//! Writes what the server refuses in part: under savepoints, so that each refused row costs itself and
//! nothing else, and all that is taken commits in one transaction.

use std::collections::{BTreeMap, BTreeSet};

use super::address::Address;
use super::arrived::{RowId, Units};
use super::batch::Tuples;
use super::catalog::{self, Look};
use super::connect::Session;
use super::isolate::{Bisection, Trial};
use super::load::{Loader, Mark, Refused};
use super::retry::Fault;
use super::work::{TableWork, of_table};
use crate::error::Error;
use crate::record::Refusal;

/// Units that are tried at once where refusals are to be expected: a refusal costs no more than so many
/// units over again, and a savepoint each costs little beside them.
const RUN: usize = 4096;

/// An attempt to write tables row by row, where need be.
pub(super) struct Careful<'a> {
    pub session: &'a Session,
    pub loader: &'a mut Loader,
    pub address: &'a Address,
    /// The savepoint, from the first trial on: each message to the server costs a round trip.
    hold: Hold,
    /// Whether a source has passed its limit of refused records, so that the rest need not be tried.
    limit: &'a Limit<'a>,
    /// Whether what a trigger raises refuses the row under any code.
    raised: bool,
}

/// Asks for a table's sources.
pub(super) type Limit<'a> = dyn Fn(&TableWork) -> Result<(), Error> + 'a;

/// How many refusals lie between two such questions.
const LIMIT_EVERY: usize = 64;

/// What was done since the savepoint.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hold {
    /// There is none yet.
    None,
    /// Nothing, or all of it was taken back.
    Clean,
    /// Something that stays.
    Kept,
}

/// What became of one table.
#[derive(Default)]
pub(super) struct Found {
    /// Whether the server took any row.
    taken: bool,
    /// Refused rows that may be taken once others are there.
    open: BTreeSet<RowId>,
    /// The first fault that blames the statement rather than a row.
    statement: Option<Fault>,
    /// Whether the table's shape was read again.
    renewed: bool,
}

/// One thing to try: a unit whole, or a row of one.
#[derive(Clone, Copy)]
enum Item {
    Unit(usize),
    Row(RowId),
}

impl<'a> Careful<'a> {
    /// An attempt in the open transaction of `session`.
    pub fn new(
        session: &'a Session,
        loader: &'a mut Loader,
        address: &'a Address,
        limit: &'a Limit<'a>,
        raised: bool,
    ) -> Self {
        Careful { session, loader, address, hold: Hold::None, limit, raised }
    }

    /// Writes all tables, within the open transaction. What is refused is noted in them.
    pub async fn write(&mut self, tables: &mut [TableWork]) -> Result<(), Fault> {
        self.loader.emptying = true;
        let done = self.passes(tables).await;
        self.loader.emptying = false;
        done
    }

    async fn passes(&mut self, tables: &mut [TableWork]) -> Result<(), Fault> {
        let mut found = Vec::new();
        for table in tables.iter_mut() {
            table.begin();
            found.push(self.table(table).await?);
        }
        // A parent may have come after its child, in this table or another.
        let mut progress = true;
        while progress {
            progress = false;
            for (table, found) in tables.iter_mut().zip(&mut found) {
                progress |= self.again(table, found).await?;
            }
        }
        for (table, found) in tables.iter().zip(found) {
            if let Some(fault) = found.statement
                && !found.taken
            {
                // It refuses whatever it is given: a fault of the table, not of its rows.
                return Err(of_table(table, fault));
            }
        }
        Ok(())
    }

    async fn table(&mut self, table: &mut TableWork) -> Result<Found, Fault> {
        let mut found = Found::default();
        if table.units.is_none() {
            self.rank(table, &mut found).await?;
        }
        self.vanished(table);
        let units = table.units.take().unwrap_or_default();
        let items: Vec<Item> = units.by_arrival().into_iter().map(Item::Unit).collect();
        table.units = Some(units);
        self.bisect(table, &items, &mut found).await?;
        Ok(found)
    }

    /// Tries `items`, in halves where they are refused together.
    async fn bisect(
        &mut self,
        table: &mut TableWork,
        items: &[Item],
        found: &mut Found,
    ) -> Result<(), Fault> {
        let mut bisection = Bisection::new(items.len(), RUN);
        while let Some(run) = bisection.next() {
            let trial = match self.trial(table, &items[run.clone()], found).await? {
                None => Trial::Taken,
                Some(refused) => {
                    if self.renew(table, found).await? {
                        self.vanished(table);
                        continue;
                    }
                    if run.len() == 1 {
                        self.single(table, items[run.start], refused, found).await?;
                        bisection.note(Trial::Refused(None));
                        continue;
                    }
                    Trial::Refused(refused.unit)
                }
            };
            bisection.note(trial);
        }
        Ok(())
    }

    /// What was refused alone: a row is, of a unit each row is tried for itself.
    async fn single(
        &mut self,
        table: &mut TableWork,
        item: Item,
        refused: Refused,
        found: &mut Found,
    ) -> Result<(), Fault> {
        let row = match item {
            Item::Row(row) => row,
            Item::Unit(unit) => match rows_of(table, unit) {
                [row] => *row,
                rows => return self.apart(table, rows.to_vec(), found).await,
            },
        };
        self.refuse(table, row, refused.fault, found).await
    }

    /// Applies the rows of a unit one by one, so that a refused one gives way to the one before it.
    async fn apart(
        &mut self,
        table: &mut TableWork,
        rows: Vec<RowId>,
        found: &mut Found,
    ) -> Result<(), Fault> {
        for row in rows {
            if table.refused.contains_key(&row) {
                continue;
            }
            if let Some(refused) = self.trial(table, &[Item::Row(row)], found).await? {
                self.refuse(table, row, refused.fault, found).await?;
            }
        }
        Ok(())
    }

    /// Tries refused rows once more, those of which no later row of their key was taken; whether any
    /// is taken now.
    async fn again(&mut self, table: &mut TableWork, found: &mut Found) -> Result<bool, Fault> {
        let open = std::mem::take(&mut found.open);
        if open.is_empty() {
            return Ok(false);
        }
        let mut later = BTreeMap::new();
        for unit in table.units.iter().flat_map(Units::iter) {
            let last = unit.iter().rev().find(|row| !table.refused.contains_key(row));
            for row in unit.iter().filter(|row| open.contains(row)) {
                later.insert(*row, last.is_some_and(|last| last > row));
            }
        }
        let open: Vec<RowId> =
            open.into_iter().filter(|row| later.get(row) == Some(&false)).collect();
        let before: Vec<_> = open.iter().filter_map(|row| table.refused.remove(row)).collect();
        let items: Vec<Item> = open.iter().map(|row| Item::Row(*row)).collect();
        let still = table.refused.len();
        self.bisect(table, &items, found).await?;
        Ok(table.refused.len() - still < before.len())
    }

    /// Writes `items` under a savepoint, without rows that are refused already; what was refused if any
    /// was.
    async fn trial(
        &mut self,
        table: &TableWork,
        items: &[Item],
        found: &mut Found,
    ) -> Result<Option<Refused>, Fault> {
        let rows = items.iter().map(|item| match item {
            Item::Unit(unit) => rows_of(table, *unit),
            Item::Row(row) => std::slice::from_ref(row),
        });
        let batch = if table.refused.is_empty() {
            table.batch(rows)
        } else {
            let open = |row: &&RowId| !table.refused.contains_key(row);
            let left: Vec<Vec<RowId>> =
                rows.map(|rows| rows.iter().filter(open).copied().collect()).collect();
            // An empty one keeps its place, which a hint counts by.
            table.batch(left.iter().map(Vec::as_slice))
        };
        let Some(batch) = batch else {
            let why = Error::internal("rows of one key were encoded for different shapes");
            return Ok(Some(Refused { fault: Fault::Final(why), unit: None }));
        };
        if batch.deletes.is_empty() && batch.puts.is_empty() {
            return Ok(None);
        }
        let mark = self.savepoint().await?;
        let loaded = self.loader.load(self.session, table.sink, &table.live, &batch).await;
        let several =
            |item: &Item| matches!(item, Item::Unit(unit) if rows_of(table, *unit).len() > 1);
        if matches!(loaded, Ok(false)) && items.iter().any(several) {
            self.take_back(&mark).await?;
            let why = Error::internal("a trigger dropped rows of several of one key");
            return Ok(Some(Fault::Final(why).into()));
        }
        let ended = self.ended(mark, loaded).await?;
        // A row that a trigger dropped says nothing of what becomes of others.
        found.taken |= matches!(ended, Ok(true));
        Ok(ended.err())
    }

    /// Notes a row that was refused alone, with the column at fault.
    async fn refuse(
        &mut self,
        table: &mut TableWork,
        row: RowId,
        fault: Fault,
        found: &mut Found,
    ) -> Result<(), Fault> {
        let column = self.blame(table, row, &fault).await?;
        note(table, row, fault, found);
        if table.refused.len().is_multiple_of(LIMIT_EVERY) {
            (self.limit)(table)?;
        }
        if let Some(refusal) = table.refused.get_mut(&row) {
            refusal.column = refusal.column.take().or(column);
        }
        Ok(())
    }

    pub(super) async fn savepoint(&mut self) -> Result<Mark, Fault> {
        match self.hold {
            Hold::None => self.session.batch("savepoint tried").await?,
            Hold::Clean => {}
            Hold::Kept => self.session.batch("release tried; savepoint tried").await?,
        }
        self.hold = Hold::Clean;
        Ok(self.loader.mark())
    }

    async fn take_back(&mut self, mark: &Mark) -> Result<(), Fault> {
        self.session.batch("rollback to tried").await?;
        self.hold = Hold::Clean;
        self.loader.rolled_back_to(mark);
        Ok(())
    }

    /// Keeps what was done since the savepoint, or takes it back where it was refused.
    pub(super) async fn ended<T>(
        &mut self,
        mark: Mark,
        done: Result<T, Refused>,
    ) -> Result<Result<T, Refused>, Fault> {
        match done {
            Ok(value) => {
                self.hold = Hold::Kept;
                Ok(Ok(value))
            }
            Err(Refused { fault, .. })
                if !(fault.is_refusal() || self.raised && fault.is_raised()) =>
            {
                Err(fault)
            }
            Err(refused) => {
                self.take_back(&mark).await?;
                Ok(Err(refused))
            }
        }
    }

    /// Reads the table's shape again, once an attempt; whether it has changed.
    async fn renew(&mut self, table: &TableWork, found: &mut Found) -> Result<bool, Fault> {
        if std::mem::replace(&mut found.renewed, true) {
            return Ok(false);
        }
        let prepared =
            catalog::read(self.session, self.address, &table.live.spec, Look::Again).await?;
        Ok(table.live.publish(prepared))
    }

    /// Refuses rows that name a column which the table has no longer.
    fn vanished(&self, table: &mut TableWork) {
        let (newest, prepared) = table.live.newest();
        let has = |name: &str| prepared.table.columns.iter().any(|column| column.name == name);
        for row in 0..table.rows.len() {
            let version = table.rows.version(row);
            if version == newest || table.rows.is_delete(row) || table.refused.contains_key(&row) {
                continue;
            }
            let old = table.live.at(version);
            let columns = table.rows.columns(row).iter();
            let names = columns.map(|column| &old.table.columns[usize::from(*column)].name);
            let Some(gone) = names.into_iter().find(|name| !has(name)) else { continue };
            let reason = format!(
                "column `{gone}` is no longer in table `{}.{}`",
                prepared.table.schema, prepared.table.name
            );
            let refusal = Refusal::new("write", reason).column(gone).sqlstate("42703");
            table.refused.insert(row, refusal);
        }
    }

    /// Has the server say which keys are equal; rows whose keys it does not take are refused.
    pub async fn rank(&mut self, table: &mut TableWork, found: &mut Found) -> Result<(), Fault> {
        let all: Vec<RowId> = (0..table.rows.len()).collect();
        let mut bad = BTreeMap::new();
        let mut bisection = Bisection::new(all.len(), usize::MAX);
        while let Some(run) = bisection.next() {
            let keys = numbered(table, &all[run.clone()]);
            let mark = self.savepoint().await?;
            let ranks = self.loader.ranks(self.session, table.sink, &table.live, &keys).await;
            match self.ended(mark, ranks).await? {
                Ok(ranks) if run.len() == all.len() => {
                    table.units = Some(grouped(ranks));
                    return Ok(());
                }
                Ok(_) => bisection.note(Trial::Taken),
                Err(refused) => {
                    if self.renew(table, found).await? {
                        continue;
                    }
                    if run.len() == 1 {
                        bad.insert(all[run.start], refused.fault);
                    }
                    bisection.note(Trial::Refused(refused.unit))
                }
            };
        }
        let good: Vec<RowId> = all.into_iter().filter(|row| !bad.contains_key(row)).collect();
        for (row, fault) in bad {
            self.refuse(table, row, fault, found).await?;
        }
        let mark = self.savepoint().await?;
        let ranked = ranked(self.session, self.loader, table, &good).await;
        table.units = Some(self.ended(mark, ranked).await?.map_err(|refused| refused.fault)?);
        Ok(())
    }
}

/// The rows of `good` by the ranks of their keys.
pub(super) async fn ranked(
    session: &Session,
    loader: &mut Loader,
    table: &TableWork,
    good: &[RowId],
) -> Result<Units, Refused> {
    if good.is_empty() {
        return Ok(Units::default());
    }
    let keys = numbered(table, good);
    let ranks = loader.ranks(session, table.sink, &table.live, &keys).await?;
    Ok(grouped(ranks))
}

/// Rows, by number, with equal ranks together.
fn grouped(ranks: Vec<(i64, i64)>) -> Units {
    Units::by_group(ranks.into_iter().map(|(row, rank)| (rank, row as RowId)).collect())
}

/// The keys of `rows`, each behind its number, as tuples.
fn numbered(table: &TableWork, rows: &[RowId]) -> Vec<Tuples> {
    let mut all: BTreeMap<usize, (Vec<u8>, Vec<u32>)> = BTreeMap::new();
    let fields = 1 + table.live.newest().1.table.key.len();
    let count = u16::try_from(fields).expect("a table has at most 1600 columns").to_be_bytes();
    for (unit, row) in (0..).zip(rows) {
        let (bytes, units) = all.entry(table.rows.version(*row)).or_default();
        bytes.extend_from_slice(&count);
        bytes.extend_from_slice(&8_i32.to_be_bytes());
        bytes.extend_from_slice(&i64::from(*row).to_be_bytes());
        bytes.extend_from_slice(table.rows.key(*row));
        units.push(unit);
    }
    all.into_iter()
        .map(|(version, (bytes, units))| Tuples {
            version,
            columns: Vec::new(),
            pieces: vec![bytes.into()],
            units,
        })
        .collect()
}

fn rows_of(table: &TableWork, unit: usize) -> &[RowId] {
    table.units.as_ref().map_or(&[], |units| units.get(unit))
}

/// Notes a refused row.
fn note(table: &mut TableWork, row: RowId, fault: Fault, found: &mut Found) {
    table.refused.insert(row, fault.refusal());
    if fault.blames_neighbours() {
        found.open.insert(row);
    }
    if !fault.blames_row() {
        found.statement.get_or_insert(fault);
    }
}
