//! What the catalog says of a target table, and whether rows can go there.

use std::fmt::Write;
use std::sync::Arc;

use super::address::Address;
use super::connect::Session;
use super::encode;
use super::ident::{TableName, quote, quote_all};
use super::retry::Fault;
use super::table::{Column, Table};
use super::target::Spec;
use crate::error::Error;

/// A target that was found to be fit: the shape of its sink.
#[derive(Debug, PartialEq)]
pub(super) struct Prepared {
    /// The table.
    pub table: Arc<Table>,
    /// Whether rows go through a staging table even where there is no key: COPY refuses views and
    /// tables with row-level security.
    pub staged: bool,
    /// Whether some constraint of the database may be checked as late as at COMMIT.
    pub deferrable: bool,
}

/// Reads the target's shape and checks it against `spec`. All that is wrong about columns is said in
/// one sentence.
pub(super) async fn read(
    session: &Session,
    address: &Address,
    spec: &Spec,
) -> Result<Prepared, Fault> {
    let relation = relation(session, address, &spec.table).await?;
    let details = columns(session, relation.oid).await?;
    let columns: Vec<Column> = details.iter().map(|detail| detail.column.clone()).collect();
    let name = format!("{}.{}", relation.schema, relation.name);
    let key = check_columns(&name, &columns, spec)?;
    for index in &key {
        let detail = &details[usize::from(*index)];
        if !detail.deterministic {
            return Err(unfit(
                &name,
                &detail.column,
                "as a key: its collation is not deterministic",
            ));
        }
        if let Err(why) = encode::key_supported(&detail.column) {
            return Err(unfit(&name, &detail.column, &format!("as a key: {why}")));
        }
    }
    for detail in &details {
        let named = spec.fields.as_ref().is_some_and(|fields| fields.contains(&detail.column.name));
        let is_key = key.iter().any(|index| details[usize::from(*index)].number == detail.number);
        if !named && !is_key {
            continue;
        }
        if let Err(why) = encode::supported(&detail.column) {
            return Err(unfit(&name, &detail.column, &why));
        }
        if !key.is_empty() && !is_key && detail.always {
            let why = "cannot be updated: it is `generated always as identity`";
            return Err(unfit(&name, &detail.column, why));
        }
    }
    check_privileges(session, &relation, &name, !key.is_empty()).await?;
    if !key.is_empty() {
        check_unique(session, &relation, &name, &key, &details).await?;
    }
    let staged = relation.kind == "v" || relation.row_security;
    let table = Table {
        schema: relation.schema,
        name: relation.name,
        columns,
        key,
        delete_when: spec.delete_when.clone(),
        server_keys: false,
        arbiter: true,
        insert_only: false,
    };
    Ok(Prepared { table: Arc::new(table), staged, deferrable: true })
}

fn unfit(table: &str, column: &Column, why: &str) -> Fault {
    let Column { name, type_name, .. } = column;
    Error::config(format!("column `{name}` ({type_name}) of `{table}`: {why}")).into()
}

struct Relation {
    oid: u32,
    schema: String,
    name: String,
    kind: String,
    row_security: bool,
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
    /// Whether it is `generated always as identity`.
    always: bool,
    deterministic: bool,
}

/// The columns that can be written, in order. A domain is followed down to its base type; what any
/// step of it demands or gives counts.
async fn columns(session: &Session, table: u32) -> Result<Vec<Detail>, Fault> {
    let sql = "select a.attname::text, base.oid, pg_catalog.format_type(a.atttypid, a.atttypmod),
                      base.typmod, a.attnotnull or base.not_null,
                      a.atthasdef or a.attidentity <> '' or base.has_default,
                      a.attnum, a.attidentity = 'a', coalesce(l.collisdeterministic, true)
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
                 left join pg_catalog.pg_collation l on l.oid = a.attcollation
                where a.attrelid = $1 and a.attnum > 0 and not a.attisdropped
                  and a.attgenerated = ''
                order by a.attnum";
    let rows = session.within(session.client.query(sql, &[&table])).await?;
    Ok(rows
        .iter()
        .map(|row| Detail {
            column: Column {
                name: row.get(0),
                oid: row.get(1),
                type_name: row.get(2),
                typmod: row.get(3),
                not_null: row.get(4),
                has_default: row.get(5),
                text: None,
            },
            number: row.get(6),
            always: row.get(7),
            deterministic: row.get(8),
        })
        .collect())
}

/// The key's columns by index; or everything that does not fit, in one sentence.
fn check_columns(table: &str, columns: &[Column], spec: &Spec) -> Result<Vec<u16>, Error> {
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
        missing.extend(absent.map(String::as_str));
        let needed = columns.iter().filter(|column| column.not_null && !column.has_default);
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
    }
    if !unnamed.is_empty() {
        let what = "must not be null, have no default, and no field of the rows is called so";
        wrong.push(format!("{} {what}", list(&unnamed)));
    }
    if !keyless.is_empty() {
        wrong.push(format!("no field of the rows is called {}, as the key is", list(&keyless)));
    }
    if !wrong.is_empty() {
        return Err(Error::config(format!("table `{table}`: {}", wrong.join("; "))));
    }
    let number = |at| u16::try_from(at).expect("a table has at most 1600 columns");
    Ok(key.into_iter().flatten().map(number).collect())
}

async fn check_privileges(
    session: &Session,
    relation: &Relation,
    name: &str,
    keyed: bool,
) -> Result<(), Fault> {
    let staged = relation.kind == "v" || relation.row_security;
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

/// Whether ON CONFLICT finds the key: a unique index over exactly its columns that is valid, whole,
/// and checked at once.
async fn check_unique(
    session: &Session,
    relation: &Relation,
    name: &str,
    key: &[u16],
    details: &[Detail],
) -> Result<(), Fault> {
    match relation.kind.as_str() {
        // The server looks through a simple view; what is beneath it is not ours to read.
        "v" => return Ok(()),
        "f" => {
            return Err(Error::config(format!(
                "table `{name}` is a foreign table, which cannot have a key: append to it instead"
            ))
            .into());
        }
        _ => {}
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
