//! Writes what the server refuses in part: under savepoints, so that each refused row costs itself and
//! nothing else, and all that is taken commits in one transaction.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::address::Address;
use super::arrived::{RowId, Units};
use super::batch::Tuples;
use super::catalog::{self, Look};
use super::connect::Session;
use super::isolate::{Bisection, Trial};
use super::load::{Loader, Mark, Refused, Way};
use super::retry::Fault;
use super::work::{TableWork, of_table};
use crate::error::Error;
use crate::figures::StoreMeter;
use crate::record::Refusal;

/// Units that are tried at once where refusals are to be expected: a refusal costs no more than so many
/// units over again, and a savepoint each costs little beside them.
const RUN: usize = 8192;

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
    meter: &'a StoreMeter,
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
    /// Units of several rows that may be taken whole once others are there.
    waiting: Vec<usize>,
    /// The unit of each row, where rows are tried for themselves.
    unit_of: Vec<u32>,
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
        meter: &'a StoreMeter,
    ) -> Self {
        Careful { session, loader, address, hold: Hold::None, limit, raised, meter }
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
        loop {
            let mut progress = false;
            for (table, found) in tables.iter_mut().zip(&mut found) {
                progress |= self.again(table, found).await?;
            }
            if progress {
                continue;
            }
            // What none of the others makes room for is taken apart, table by table.
            let waiting =
                tables.iter_mut().zip(&mut found).find(|(_, found)| !found.waiting.is_empty());
            let Some((table, found)) = waiting else { break };
            for unit in std::mem::take(&mut found.waiting) {
                self.apart(table, rows_of(table, unit).to_vec(), found).await?;
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
        let items: Vec<Item> = match &table.units {
            // A value may move from key to key and on: only their own order tells whether it is free.
            Some(units) if by_rows(table) => {
                found.unit_of = units.of_rows(table.rows.len());
                let in_unit = |row: &RowId| found.unit_of[*row as usize] != u32::MAX;
                (0..table.rows.len()).filter(in_unit).map(Item::Row).collect()
            }
            Some(units) => units.by_arrival().into_iter().map(Item::Unit).collect(),
            None => Vec::new(),
        };
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
                    self.meter.bisected();
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
                _ if refused.fault.blames_neighbours() => {
                    found.waiting.push(unit);
                    return Ok(());
                }
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

    /// Tries once more what may be taken now: units that wait, and refused rows of which no later row
    /// of their key was taken; whether any is taken now.
    async fn again(&mut self, table: &mut TableWork, found: &mut Found) -> Result<bool, Fault> {
        let waiting = std::mem::take(&mut found.waiting);
        let open = std::mem::take(&mut found.open);
        let mut progress = false;
        if !waiting.is_empty() {
            let items: Vec<Item> = waiting.iter().map(|unit| Item::Unit(*unit)).collect();
            self.bisect(table, &items, found).await?;
            progress = found.waiting.len() < waiting.len();
        }
        if open.is_empty() {
            return Ok(progress);
        }
        if found.unit_of.is_empty() {
            let units = table.units.as_ref();
            found.unit_of = units.map(|units| units.of_rows(table.rows.len())).unwrap_or_default();
        }
        let no_later = |row: &RowId| {
            let Some(unit) = found.unit_of.get(*row as usize) else { return false };
            let rows = rows_of(table, *unit as usize).iter();
            rows.rev().take_while(|later| *later > row).all(|row| table.refused.contains_key(row))
        };
        let items: Vec<RowId> = open.into_iter().filter(no_later).collect();
        let before = items.iter().filter_map(|row| table.refused.remove(row)).count();
        let items: Vec<Item> = items.into_iter().map(Item::Row).collect();
        let still = table.refused.len();
        self.bisect(table, &items, found).await?;
        Ok(progress || table.refused.len() - still < before)
    }

    /// Writes `items` under a savepoint, without rows that are refused already; what was refused if any
    /// was.
    async fn trial(
        &mut self,
        table: &TableWork,
        items: &[Item],
        found: &mut Found,
    ) -> Result<Option<Refused>, Fault> {
        let Gathered { units, items } = gather(table, items, &found.unit_of);
        let ordered = by_rows(table);
        let batch = table.batch(units.iter(), ordered);
        if batch.is_empty() {
            return Ok(None);
        }
        let mark = self.savepoint();
        let (session, live) = (self.session, &table.live);
        let loaded = self.loader.load(session, table.sink, live, &batch, Way::Merged).await;
        if matches!(loaded, Ok(false)) && !ordered && units.has_several() {
            self.take_back(&mark).await?;
            let why = Error::internal("a trigger dropped rows of several of one key");
            return Ok(Some(Fault::Final(why).into()));
        }
        let ended = self.ended(mark, loaded).await?;
        // A row that a trigger dropped says nothing of what becomes of others.
        found.taken |= matches!(ended, Ok(true));
        Ok(ended.err().map(|refused| Refused {
            unit: refused.unit.and_then(|unit| items.get(unit).copied()),
            ..refused
        }))
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

    pub(super) fn savepoint(&mut self) -> Mark {
        match self.hold {
            Hold::None => self.session.ahead("savepoint tried"),
            Hold::Clean => {}
            Hold::Kept => self.session.ahead("release tried; savepoint tried"),
        }
        self.hold = Hold::Clean;
        self.loader.mark()
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
                if self.session.is_out_of_step()
                    || !(fault.is_refusal() || self.raised && fault.is_raised()) =>
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
            catalog::read(self.session, self.address, &table.live.spec, Look::Within).await?;
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
            let mark = self.savepoint();
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
        let mark = self.savepoint();
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

/// Whether rows are tried for themselves, not by units: those of different keys depend on each other.
fn by_rows(table: &TableWork) -> bool {
    let table = &table.live.newest().1.table;
    !table.key.is_empty() && table.is_ordered()
}

/// What is tried at once.
struct Gathered {
    units: Units,
    /// The item that each unit stands for; of rows of one key, the last.
    items: Vec<usize>,
}

/// The rows of `items` that are not refused, those of one key together.
fn gather(table: &TableWork, items: &[Item], unit_of: &[u32]) -> Gathered {
    let open = |row: &RowId| !table.refused.contains_key(row);
    let mut gathered = Gathered { units: Units::default(), items: Vec::new() };
    // In the order in which the last of each unit comes; its rows in theirs.
    let mut rows: Vec<(usize, RowId)> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        match item {
            Item::Row(row) => rows.push((index, *row)),
            Item::Unit(unit) => {
                gathered.units.push(rows_of(table, *unit).iter().copied().filter(open));
                gathered.items.push(index);
            }
        }
    }
    let unit = |row: RowId| unit_of.get(row as usize).copied().unwrap_or(row);
    let mut last = HashMap::new();
    for (index, row) in &rows {
        last.insert(unit(*row), *index);
    }
    rows.retain(|(_, row)| open(row));
    rows.sort_unstable_by_key(|(_, row)| (last[&unit(*row)], *row));
    for same in rows.chunk_by(|a, b| unit(a.1) == unit(b.1)) {
        gathered.units.push(same.iter().map(|(_, row)| *row));
        gathered.items.push(last[&unit(same[0].1)]);
    }
    gathered
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
