//! What the server makes of a table's rows beyond their types, by what the catalog says.

use super::catalog::Relation;
use super::connect::Session;
use super::retry::Fault;
use super::table::Column;

/// What the server makes of rows beyond their types: see the fields of `Table` of these names.
pub(super) struct Judgement {
    pub judged: bool,
    pub rivals: bool,
    pub entangled: bool,
    /// Whether a trigger may refuse a COPY before it reads a row, which the client library does not
    /// survive: see [`Session::is_out_of_step`].
    pub may_not_begin: bool,
}

/// Asks the catalog.
pub(super) async fn of(
    session: &Session,
    relation: &Relation,
    key: &[u16],
    columns: &[Column],
) -> Result<Judgement, Fault> {
    // Every row of a key has the same key: what holds of its columns alone is the same for all. An index
    // refuses values that are too long for it, an expression may fail.
    let sql = "with recursive part as (
                 select $1::oid as oid
                 union select relid from pg_catalog.pg_partition_tree($1::oid::regclass)),
               held as (
                 select i.*, attr.attlen, attr.attname <> all ($2::text[]) as beside,
                        place <= i.indnkeyatts as compared
                   from part join pg_catalog.pg_index i on i.indrelid = part.oid
                   cross join unnest(i.indkey::int2[]) with ordinality as k (number, place)
                   left join pg_catalog.pg_attribute attr
                     on attr.attrelid = i.indrelid and attr.attnum = k.number and k.number > 0),
               rival as (
                 select exists (
                   select from held where (indisunique or indisexclusion)
                      and (indisexclusion or indexprs is not null or beside and compared)) as found),
               reached as (
                 select c.confrelid as oid from part
                   join pg_catalog.pg_constraint c on c.conrelid = part.oid and c.contype = 'f'
                 union
                 select c.confrelid from reached
                   join pg_catalog.pg_constraint c on c.conrelid = reached.oid and c.contype = 'f'),
               entangled as (
                 select exists (select from part join reached on reached.oid = part.oid)
                     or exists (select from part join pg_catalog.pg_trigger g on g.tgrelid = part.oid
                                 where not g.tgisinternal and g.tgenabled <> 'D')
                     or exists (select from part join pg_catalog.pg_rewrite w on w.ev_class = part.oid)
                     as found)
               select rival.found or entangled.found
                   or exists (select from held where indexprs is not null or indpred is not null
                                 or beside and attlen < 0)
                   or exists (select from part join pg_catalog.pg_constraint c on c.conrelid = part.oid
                               where c.contype in ('c', 'f', 'x', 't'))
                   or exists (select from part
                                join pg_catalog.pg_attribute a on a.attrelid = part.oid
                                join pg_catalog.pg_type t on t.oid = a.atttypid
                                left join pg_catalog.pg_type e on e.oid = t.typelem
                               where a.attnum > 0 and not a.attisdropped
                                 and (a.attgenerated <> '' or t.typtype not in ('b', 'e', 'r', 'm')
                                      or e.typtype not in ('b', 'e', 'r', 'm'))),
                      rival.found, entangled.found,
                      exists (select from pg_catalog.pg_trigger g
                               where g.tgrelid = $1 and not g.tgisinternal and g.tgenabled <> 'D'
                                 and g.tgtype & 7 = 6)
                 from rival, entangled";
    let key: Vec<&str> = key.iter().map(|at| &*columns[usize::from(*at)].name).collect();
    let row = session.within(session.client.query_one(sql, &[&relation.oid, &key])).await?;
    let is_table = relation.is_table();
    let texts = columns.iter().any(|column| column.text.is_some());
    // An identity that is always generated keeps its first value, as a key does.
    let keeps = columns.iter().any(|column| column.always && !key.contains(&&*column.name));
    let judged = row.get::<_, bool>(0) || texts || !is_table || relation.row_security;
    let entangled = row.get::<_, bool>(2) || !is_table || keeps;
    let (rivals, may_not_begin) = (row.get(1), row.get(3));
    Ok(Judgement { judged: judged || keeps, rivals, entangled, may_not_begin })
}
