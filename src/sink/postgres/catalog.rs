//! What the catalog says of a target table, and whether rows can go there.

use std::fmt::Write;
use std::sync::Arc;

use tokio_postgres::error::SqlState;

use super::address::Address;
use super::connect::Session;
use super::encode;
use super::ident::{TableName, quote, quote_all};
use super::judgement;
use super::retry::Fault;
use super::table::{Column, Table};
use super::target::Spec;
use crate::error::Error;

/// A target that was found to be fit: the shape of its sink.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Prepared {
    /// The table.
    pub table: Arc<Table>,
    /// Whether rows go through a staging table even where there is no key: COPY refuses views and
    /// tables with row-level security, and a trigger may refuse it.
    pub staged: bool,
    /// Whether some table of the database has a constraint or a trigger that can be deferred to the
    /// commit.
    pub deferrable: bool,
}

/// When a target is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// Before the run: every field has its column.
    First,
    /// While it lasts: a field whose column is gone refuses the records that carry it, not the run.
    Again,
    /// The same within an open transaction, which a question that is refused must not abort.
    Within,
}

/// Reads the target's shape and checks it against `spec`. All that is wrong about columns is said in
/// one sentence.
pub(super) async fn read(
    session: &Session,
    address: &Address,
    spec: &Spec,
    look: Look,
) -> Result<Prepared, Fault> {
    let relation = relation(session, address, &spec.table).await?;
    let mut details = columns(session, relation.oid).await?;
    let name = format!("{}.{}", relation.schema, relation.name);
    let judges_null = judges_null(session, &relation).await?;
    declare(&name, &mut details, spec)?;
    let columns: Vec<Column> = details.iter().map(|detail| detail.column.clone()).collect();
    let key = check_columns(session, &relation, &name, &columns, judges_null, spec, look).await?;
    for (index, detail) in (0_u16..).zip(&details) {
        let named = spec.fields.as_ref().is_none_or(|fields| fields.contains(&detail.column.name));
        if (named && spec.fields.is_some()) || key.contains(&index) {
            encode::supported(&detail.column).map_err(|why| unfit(&name, &detail.column, &why))?;
        }
    }
    let judgement = judgement::of(session, &relation, &key, &columns).await?;
    let staged = relation.kind == "v" || relation.row_security || judgement.may_not_begin;
    check_privileges(session, &relation, &name, !key.is_empty(), staged).await?;
    let arbiter = match (key.is_empty(), relation.kind.as_str()) {
        (true, "v") => {
            check_view(session, &relation, &name, false).await?;
            false
        }
        (false, "v") => {
            check_view(session, &relation, &name, true).await?;
            view_arbiter(session, &relation, &key, &columns, look).await?
        }
        (true, _) => false,
        (false, _) => {
            check_unique(session, &relation, &name, &key, &details).await?;
            true
        }
    };
    let server_keys = key.iter().any(|at| !details[usize::from(*at)].equal_bytes());
    let table = Table {
        schema: relation.schema,
        name: relation.name,
        columns,
        key,
        delete_when: spec.delete_when.clone(),
        server_keys,
        judges_null,
        judged: judgement.judged,
        rivals: judgement.rivals,
        entangled: judgement.entangled,
        arbiter,
        ignore_extra: spec.ignore_extra,
        insert_only: spec.insert_only,
    };
    Ok(Prepared { table: Arc::new(table), staged, deferrable: deferrable(session).await? })
}

fn unfit(table: &str, column: &Column, why: &str) -> Fault {
    wrong_column(table, column, why).into()
}

fn wrong_column(table: &str, column: &Column, why: &str) -> Error {
    let Column { name, type_name, .. } = column;
    Error::config(format!("column `{name}` ({type_name}) of `{table}`: {why}"))
}

/// A table or view.
pub(super) struct Relation {
    pub oid: u32,
    schema: String,
    name: String,
    /// As `pg_class.relkind` has it.
    kind: String,
    /// Whether policies hold for the session's role.
    pub row_security: bool,
}

impl Relation {
    /// Whether it is an ordinary or a partitioned table.
    pub fn is_table(&self) -> bool {
        ["r", "p"].contains(&self.kind.as_str())
    }
}

async fn relation(
    session: &Session,
    address: &Address,
    name: &TableName,
) -> Result<Relation, Fault> {
    let sql = "select c.oid, n.nspname::text, c.relname::text, c.relkind::text,
                      row_security_active(c.oid)
                 from pg_catalog.pg_class c
                 join pg_catalog.pg_namespace n on n.oid = c.relnamespace
                where c.relname = $2
                  and case when $1::text is null then pg_catalog.pg_table_is_visible(c.oid)
                           else n.nspname = $1 end";
    let found = session.within(session.client.query_opt(sql, &[&name.schema, &name.name])).await?;
    let shown = match &name.schema {
        Some(schema) => format!("{schema}.{}", name.name),
        None => name.name.clone(),
    };
    let Some(row) = found else {
        let mut sentence = format!("table `{shown}` does not exist in `{}`", address.identity);
        let alike = "select format('%I.%I', n.nspname, c.relname) from pg_catalog.pg_class c
                       join pg_catalog.pg_namespace n on n.oid = c.relnamespace
                      where lower(c.relname) = lower($1) and c.relkind in ('r', 'p', 'f', 'v')
                        and ($2::text is null or lower(n.nspname) = lower($2))
                      order by 1 limit 3";
        let alike =
            session.within(session.client.query(alike, &[&name.name, &name.schema])).await?;
        if alike.is_empty() {
            sentence.push_str("; create it first");
        } else {
            let alike: Vec<String> =
                alike.iter().map(|row| format!("`{}`", row.get::<_, String>(0))).collect();
            let _ = write!(sentence, "; there is {}", alike.join(", "));
        }
        return Err(Error::config(sentence).into());
    };
    let relation = Relation {
        oid: row.get(0),
        schema: row.get(1),
        name: row.get(2),
        kind: row.get(3),
        row_security: row.get(4),
    };
    if !["r", "p", "f", "v"].contains(&relation.kind.as_str()) {
        return Err(Error::config(format!("`{shown}` is neither a table nor a view")).into());
    }
    Ok(relation)
}

/// A column, and what only this module asks of it.
struct Detail {
    column: Column,
    number: i16,
    deterministic: bool,
    /// The type itself, where [`Column::oid`] is that of its binary form.
    base: u32,
    is_enum: bool,
}

impl Detail {
    /// Whether two values are equal exactly where what is written of them is.
    fn equal_bytes(&self) -> bool {
        let own = self.base == self.column.oid || self.is_enum;
        own && self.deterministic && encode::equal_bytes(&self.column)
    }
}

/// The columns that can be written, in order. A domain is followed down to its base type; what any
/// step of it demands or gives counts.
async fn columns(session: &Session, table: u32) -> Result<Vec<Detail>, Fault> {
    // Types whose receive function is that of `text` or of enums travel as the text that they are.
    let sql = "select a.attname::text,
                      case when receive.prosrc in ('textrecv', 'enum_recv') then 25::oid
                           else base.oid end,
                      pg_catalog.format_type(a.atttypid, a.atttypmod),
                      base.typmod, a.attnotnull or base.not_null,
                      a.atthasdef or a.attidentity <> '' or base.has_default,
                      a.attnum, a.attidentity = 'a', coalesce(l.collisdeterministic, true),
                      base.oid, base.typtype = 'e',
                      case when base.typtype <> 'p'
                           then format('%I.%s', n.nspname, '\"' || replace(t.typname, '\"', '\"\"') || '\"')
                      end,
                      case when t.typcategory = 'A' and t.typelem <> 0 then t.typelem end
                 from pg_catalog.pg_attribute a
                 cross join lateral (
                   with recursive step as (
                     select t.oid, t.typtype, t.typbasetype, a.atttypmod as typmod,
                            t.typtype = 'd' and t.typnotnull as not_null,
                            t.typtype = 'd' and t.typdefault is not null as has_default
                       from pg_catalog.pg_type t where t.oid = a.atttypid
                     union all
                     select t.oid, t.typtype, t.typbasetype,
                            case when step.typmod = -1 then d.typtypmod else step.typmod end,
                            step.not_null or t.typtype = 'd' and t.typnotnull,
                            step.has_default
                       from step
                       join pg_catalog.pg_type d on d.oid = step.oid
                       join pg_catalog.pg_type t on t.oid = step.typbasetype
                      where step.typtype = 'd')
                   select * from step where typtype <> 'd') base
                 join pg_catalog.pg_type t on t.oid = base.oid
                 join pg_catalog.pg_namespace n on n.oid = t.typnamespace
                 left join pg_catalog.pg_proc receive on receive.oid = t.typreceive
                 left join pg_catalog.pg_collation l on l.oid = a.attcollation
                where a.attrelid = $1 and a.attnum > 0 and not a.attisdropped
                  and a.attgenerated = ''
                order by a.attnum";
    let rows = session.within(session.client.query(sql, &[&table])).await?;
    Ok(rows
        .iter()
        .map(|row| {
            let oid = row.get(1);
            let text: Option<String> = row.get(11);
            Detail {
                column: Column {
                    name: row.get(0),
                    oid,
                    type_name: row.get(2),
                    typmod: row.get(3),
                    not_null: row.get(4),
                    has_default: row.get(5),
                    text: text.filter(|_| !encode::is_binary(oid)),
                    element: row.get(12),
                    always: row.get(7),
                    unit: None,
                    zone: None,
                },
                number: row.get(6),
                deterministic: row.get(8),
                base: row.get(9),
                is_enum: row.get(10),
            }
        })
        .collect())
}

/// Sets the units and zones that the dataflow declares.
fn declare(table: &str, details: &mut [Detail], spec: &Spec) -> Result<(), Error> {
    let find = |details: &mut [Detail], name: &str, what: &str| {
        let index = details.iter().position(|detail| detail.column.name == name);
        index.ok_or_else(|| {
            Error::config(format!(
                "table `{table}` has no column `{name}`, for which {what} is declared"
            ))
        })
    };
    for detail in details.iter_mut() {
        detail.column.unit = spec.default_unit.filter(|_| encode::takes_unit(&detail.column));
        detail.column.zone = spec.default_zone.filter(|_| encode::takes_zone(&detail.column));
    }
    for (name, unit) in &spec.units {
        let column = &mut details[find(details, name, "a unit")?].column;
        if !encode::takes_unit(column) {
            let why = "no unit can be declared for it: it is no date, time or timestamp";
            return Err(wrong_column(table, column, why));
        }
        column.unit = Some(*unit);
    }
    for (name, zone) in &spec.zones {
        let column = &mut details[find(details, name, "a time zone")?].column;
        if !encode::takes_zone(column) {
            let why = "no time zone can be declared for it: it is no timestamptz";
            return Err(wrong_column(table, column, why));
        }
        column.zone = Some(*zone);
    }
    Ok(())
}

/// Whether columns that must not be null can be judged before the server sees the row.
async fn judges_null(session: &Session, relation: &Relation) -> Result<bool, Fault> {
    if !relation.is_table() {
        return Ok(false);
    }
    // Of the type's bits 1 is "for each row", 2 is "before", 4 is "insert", 16 is "update". A partition
    // may have triggers of its own.
    let sql = "select not exists (
                 select from pg_catalog.pg_trigger g
                  where (g.tgrelid = $1 or g.tgrelid in (
                           select relid from pg_catalog.pg_partition_tree($1::oid::regclass)))
                    and not g.tgisinternal and g.tgenabled <> 'D'
                    and g.tgtype & 3 = 3 and g.tgtype & 20 <> 0)
               and not exists (select from pg_catalog.pg_rewrite w where w.ev_class = $1)";
    Ok(session.within(session.client.query_one(sql, &[&relation.oid])).await?.get(0))
}

/// Whether anything in the database can wait for the commit to be checked.
async fn deferrable(session: &Session) -> Result<bool, Fault> {
    let sql = "select exists (
                 select from pg_catalog.pg_constraint c
                   join pg_catalog.pg_namespace n on n.oid = c.connamespace
                  where c.condeferrable and n.nspname not in ('pg_catalog', 'information_schema'))
               or exists (
                 select from pg_catalog.pg_trigger g where g.tgdeferrable)";
    Ok(session.within(session.client.query_one(sql, &[])).await?.get(0))
}

/// The key's columns by index; or everything that does not fit, in one sentence.
async fn check_columns(
    session: &Session,
    relation: &Relation,
    table: &str,
    columns: &[Column],
    judges_null: bool,
    spec: &Spec,
    look: Look,
) -> Result<Vec<u16>, Fault> {
    let index = |name: &str| columns.iter().position(|column| column.name == name);
    let key: Vec<Option<usize>> = spec.key.iter().map(|name| index(name)).collect();
    let mut missing: Vec<&str> = Vec::new();
    missing
        .extend(spec.key.iter().zip(&key).filter(|(_, at)| at.is_none()).map(|(name, _)| &**name));
    let mut unnamed: Vec<&str> = Vec::new();
    let mut keyless: Vec<&str> = Vec::new();
    if let Some(fields) = &spec.fields {
        // The field that says "delete" need not be stored.
        let marker = spec.delete_when.as_ref().map(|(field, _)| field);
        let absent = fields.iter().filter(|name| index(name).is_none() && Some(*name) != marker);
        let may_lack = spec.ignore_extra || look != Look::First;
        missing.extend(absent.filter(|_| !may_lack).map(String::as_str));
        let needed =
            columns.iter().filter(|column| judges_null && column.not_null && !column.has_default);
        unnamed.extend(
            needed.filter(|column| !fields.contains(&column.name)).map(|column| &*column.name),
        );
        keyless.extend(spec.key.iter().filter(|name| !fields.contains(name)).map(String::as_str));
    }
    missing.sort_unstable();
    missing.dedup();
    unnamed.retain(|name| !keyless.contains(name));
    let list = |names: &[&str]| -> String {
        names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    };
    let mut wrong = Vec::new();
    if !missing.is_empty() {
        let has: Vec<&str> = columns.iter().map(|column| &*column.name).collect();
        wrong.push(format!("it has no column {} (it has {})", list(&missing), list(&has)));
        let computed = "select attname::text from pg_catalog.pg_attribute
                         where attrelid = $1 and attgenerated <> '' and attname = any($2::text[])
                         order by attnum";
        let rows =
            session.within(session.client.query(computed, &[&relation.oid, &missing])).await?;
        if !rows.is_empty() {
            let computed: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
            wrong.push(format!("{} cannot be written: the server computes it", list(&computed)));
        }
    }
    if !unnamed.is_empty() {
        let what = "must not be null, have no default, and no field of the rows is called so";
        wrong.push(format!("{} {what}", list(&unnamed)));
    }
    if !keyless.is_empty() {
        wrong.push(format!("no field of the rows is called {}, as the key is", list(&keyless)));
    }
    if !wrong.is_empty() {
        return Err(Error::config(format!("table `{table}`: {}", wrong.join("; "))).into());
    }
    let number = |at| u16::try_from(at).expect("a table has at most 1600 columns");
    Ok(key.into_iter().flatten().map(number).collect())
}

async fn check_privileges(
    session: &Session,
    relation: &Relation,
    name: &str,
    keyed: bool,
    staged: bool,
) -> Result<(), Fault> {
    let needed: &[&str] = match (keyed, staged) {
        (true, _) => &["insert", "update", "select"],
        (false, true) => &["insert", "select"],
        (false, false) => &["insert"],
    };
    let sql = "select needed, current_user::text from unnest($2::text[]) as needed
                where not has_any_column_privilege($1::oid, needed)";
    let lacks = session.within(session.client.query(sql, &[&relation.oid, &needed])).await?;
    let Some(first) = lacks.first() else {
        return Ok(());
    };
    let role: String = first.get(1);
    let lacks: Vec<String> = lacks.iter().map(|row| row.get(0)).collect();
    let lacks = lacks.join(", ");
    Err(Error::config(format!(
        "role `{role}` may not {lacks} on `{name}`: `grant {lacks} on {}.{} to {}`",
        quote(&relation.schema),
        quote(&relation.name),
        quote(&role)
    ))
    .into())
}

/// Whether rows can be put into a view: a simple one, or one with triggers or rules instead.
async fn check_view(
    session: &Session,
    relation: &Relation,
    name: &str,
    keyed: bool,
) -> Result<(), Fault> {
    let sql = "select pg_catalog.pg_relation_is_updatable($1::oid::regclass, true)";
    let events: i32 = session.within(session.client.query_one(sql, &[&relation.oid])).await?.get(0);
    // As the server numbers them: update 2, insert 3.
    let lacks: Vec<&str> = [("insert", 1 << 3, true), ("update", 1 << 2, keyed)]
        .iter()
        .filter(|(_, event, needed)| *needed && events & event == 0)
        .map(|(what, ..)| *what)
        .collect();
    if lacks.is_empty() {
        return Ok(());
    }
    let lacks = lacks.join(" or ");
    Err(Error::config(format!(
        "view `{name}` takes no {lacks}: give it a trigger `instead of {lacks}`"
    ))
    .into())
}

/// Whether ON CONFLICT finds the key of a view: the server looks through a simple one, and says so when
/// it plans.
async fn view_arbiter(
    session: &Session,
    relation: &Relation,
    key: &[u16],
    columns: &[Column],
    look: Look,
) -> Result<bool, Fault> {
    let view = format!("{}.{}", quote(&relation.schema), quote(&relation.name));
    let key = quote_all(key.iter().map(|at| &*columns[usize::from(*at)].name));
    let sql = format!(
        "explain insert into {view} ({key}) overriding system value select {key} from {view}
          where false on conflict ({key}) do nothing"
    );
    if look == Look::Within {
        session.batch("savepoint asked").await?;
    }
    let plan = match session.within(session.client.query(&sql, &[])).await {
        Ok(plan) => plan,
        // No unique index fits, or triggers take the inserts.
        Err(fault) if fault.code() == Some(&SqlState::INVALID_COLUMN_REFERENCE) => {
            if look == Look::Within {
                session.batch("rollback to asked").await?;
            }
            return Ok(false);
        }
        Err(fault) => return Err(fault),
    };
    // That a constraint can be deferred it says only when a row comes.
    let plan: Vec<&str> = plan.iter().map(|line| line.get(0)).collect();
    let sql = "select not exists (
                 select from pg_catalog.pg_index i join pg_catalog.pg_class c on c.oid = i.indexrelid
                  where not i.indimmediate and exists (
                    select from unnest($1::text[]) line
                     where line like '%Conflict Arbiter Indexes:%' and strpos(line, c.relname) > 0))";
    Ok(session.within(session.client.query_one(sql, &[&plan])).await?.get(0))
}

/// Whether ON CONFLICT finds the key: a unique index over exactly its columns that is valid, whole,
/// and checked at once.
async fn check_unique(
    session: &Session,
    relation: &Relation,
    name: &str,
    key: &[u16],
    details: &[Detail],
) -> Result<(), Fault> {
    if relation.kind == "f" {
        return Err(Error::config(format!(
            "table `{name}` is a foreign table, which cannot have a key: append to it instead"
        ))
        .into());
    }
    let sql = "select i.indkey::int2[], i.indnkeyatts, c.relname::text, i.indisvalid,
                      i.indimmediate, i.indpred is not null, i.indexprs is not null
                 from pg_catalog.pg_index i
                 join pg_catalog.pg_class c on c.oid = i.indexrelid
                where i.indrelid = $1 and i.indisunique";
    let rows = session.within(session.client.query(sql, &[&relation.oid])).await?;
    let mut wanted: Vec<i16> = key.iter().map(|at| details[usize::from(*at)].number).collect();
    wanted.sort_unstable();
    let mut almost = Vec::new();
    for row in &rows {
        let mut numbers: Vec<i16> = row.get(0);
        numbers.truncate(usize::try_from(row.get::<_, i16>(1)).unwrap_or(0));
        numbers.sort_unstable();
        if numbers != wanted {
            continue;
        }
        let flaws = [
            (!row.get::<_, bool>(3), "not valid"),
            (!row.get::<_, bool>(4), "deferrable"),
            (row.get(5), "partial"),
            (row.get(6), "on an expression"),
        ];
        match flaws.iter().find(|(flawed, _)| *flawed) {
            None => return Ok(()),
            Some((_, flaw)) => almost.push(format!("`{}` is {flaw}", row.get::<_, String>(2))),
        }
    }
    let columns = quote_all(key.iter().map(|at| &*details[usize::from(*at)].column.name));
    let mut sentence = format!(
        "table `{name}` has no unique index over exactly its key; `create unique index on {}.{} \
         ({columns})`",
        quote(&relation.schema),
        quote(&relation.name),
    );
    if !almost.is_empty() {
        let _ = write!(sentence, " ({})", almost.join(", "));
    }
    Err(Error::config(sentence).into())
}
