//! The statements that move rows from a staging table to their own.

use super::ident::{literal, quote, quote_all};
use super::table::{Column, Table};

/// The OID of `interval`.
const INTERVAL: u32 = 1186;

/// The table's name, quoted.
pub(super) fn place(table: &Table) -> String {
    format!("{}.{}", quote(&table.schema), quote(&table.name))
}

/// The names of `indexes`, quoted.
pub(super) fn columns(table: &Table, indexes: &[u16]) -> String {
    quote_all(names(table, indexes))
}

fn names<'a>(table: &'a Table, indexes: &'a [u16]) -> impl Iterator<Item = &'a str> {
    of(table, indexes).map(|column| column.name.as_str())
}

fn of<'a>(table: &'a Table, indexes: &'a [u16]) -> impl Iterator<Item = &'a Column> {
    indexes.iter().map(|index| &table.columns[usize::from(*index)])
}

/// A query whose columns have the types in which `columns` of `encoded` travel. Those of the present
/// shape are taken from the table itself, with their collations.
pub(super) fn typed(table: &Table, encoded: &Table, is_old: bool, columns: &[u16]) -> String {
    let list: Vec<String> = of(encoded, columns).map(|column| travelling(column, is_old)).collect();
    format!("select {} from {}", list.join(", "), place(table))
}

fn travelling(column: &Column, is_old: bool) -> String {
    let name = quote(&column.name);
    match &column.text {
        Some(_) => format!("null::text as {name}"),
        None if is_old => format!("null::{} as {name}", column.type_name),
        None => name,
    }
}

/// A column of a staging table as its own type. What travels as text is read as the type without its
/// modifier, so that the assignment to the column refuses what does not fit; a cast to the whole type
/// would cut it.
fn value(column: &Column, alias: &str) -> String {
    let name = quote(&column.name);
    match &column.text {
        // Of an interval alone the modifier says how the text is read: 5 may be years or seconds.
        Some(_) if column.oid == INTERVAL && column.typmod >= 0 => format!(
            "pg_catalog.interval_in({alias}.{name}::cstring, 0::pg_catalog.oid, {})",
            column.typmod
        ),
        Some(base) => format!("{alias}.{name}::{base}"),
        None => format!("{alias}.{name}"),
    }
}

fn same_key(table: &Table, encoded: &Table, alias: &str) -> String {
    let same: Vec<String> = of(encoded, &encoded.key)
        .map(|column| format!("t.{} = {}", quote(&column.name), value(column, alias)))
        .collect();
    debug_assert_eq!(table.key.len(), encoded.key.len(), "a key keeps its columns");
    same.join(" and ")
}

/// Deletes the rows whose keys are in `staging`.
pub(super) fn delete(table: &Table, encoded: &Table, staging: &str) -> String {
    format!(
        "delete from {} as t using {staging} as gone where {}",
        place(table),
        same_key(table, encoded, "gone")
    )
}

/// The column of a staging table that counts its rows as they come: a table gives its rows in any order.
const ORDER: &str = "\"tidegate order\"";

/// Has a staging table count its rows.
pub(super) fn count_rows(staging: &str) -> String {
    format!("alter table {staging} add column {ORDER} bigint generated always as identity")
}

/// COPY overrides `generated always as identity` by itself; INSERT must be told.
fn insert_from(table: &Table, encoded: &Table, layout: &[u16], staging: &str) -> String {
    let values: Vec<String> = of(encoded, layout).map(|column| value(column, "s")).collect();
    format!(
        "insert into {} ({}) overriding system value select {} from {staging} as s",
        place(table),
        columns(encoded, layout),
        values.join(", "),
    )
}

/// In which order rows are put.
fn order(table: &Table) -> String {
    if table.is_ordered() { format!(" order by s.{ORDER}") } else { String::new() }
}

/// Asks whether rows of these columns can be put, without putting any: no trigger fires. The table stays
/// as it is from then on until the transaction's end.
pub(super) fn probe(table: &Table, layout: &[u16]) -> String {
    let nulls = vec!["null"; layout.len()].join(", ");
    let mut sql = format!(
        "explain insert into {} ({}) overriding system value select {nulls} where false",
        place(table),
        columns(table, layout)
    );
    if !table.key.is_empty() {
        sql.push_str(&format!(" on conflict ({}) do nothing", columns(table, &table.key)));
    }
    sql
}

/// Fails where one of `layout`'s columns is not of the type for which rows were encoded: their bytes would be
/// read as values of another type, most often without a fault. Within the transaction that has the table
/// locked. No server code of rows, so that no row is blamed.
pub(super) fn assert_types(table: &Table, layout: &[u16]) -> String {
    let wanted: Vec<String> = of(table, layout)
        .map(|column| format!("({}, {})", literal(&column.name), literal(&column.type_name)))
        .collect();
    format!(
        "select pg_catalog.quote_ident(c.relname || '_has_other_columns_now')::pg_catalog.regclass
           from pg_catalog.pg_class c
          where c.oid = {}::pg_catalog.regclass and {} <> (
                select count(*) from pg_catalog.pg_attribute a
                 where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
                   and (a.attname::text, pg_catalog.format_type(a.atttypid, a.atttypmod)) in ({}))",
        literal(&place(table)),
        wanted.len(),
        wanted.join(", ")
    )
}

/// Puts the rows of `staging`, each in the place of the row with its key.
pub(super) fn insert(table: &Table, encoded: &Table, layout: &[u16], staging: &str) -> String {
    let mut sql = insert_from(table, encoded, layout, staging) + &order(table);
    if table.key.is_empty() {
        return sql;
    }
    sql.push_str(&format!(" on conflict ({})", columns(table, &table.key)));
    if keeps_existing(table, encoded, layout) {
        sql.push_str(" do nothing");
    } else {
        let others = others(encoded, layout);
        let set: Vec<String> = names(encoded, &others)
            .map(|name| format!("{0} = excluded.{0}", quote(name)))
            .collect();
        sql.push_str(&format!(" do update set {}", set.join(", ")));
    }
    sql
}

/// Whether a row that is there stays as it is when one with its key is put.
pub(super) fn keeps_existing(table: &Table, encoded: &Table, layout: &[u16]) -> bool {
    !table.key.is_empty() && (table.insert_only || others(encoded, layout).is_empty())
}

/// The columns that an update sets: not the key, nor an identity that is always generated.
fn others(table: &Table, layout: &[u16]) -> Vec<u16> {
    let settable =
        |column: &&u16| !table.key.contains(column) && !table.columns[usize::from(**column)].always;
    layout.iter().filter(settable).copied().collect()
}

/// As [`insert`], where the server knows no arbiter: a view with triggers in the place of its changes.
pub(super) fn update_else_insert(
    table: &Table,
    encoded: &Table,
    layout: &[u16],
    staging: &str,
) -> Vec<String> {
    let same = same_key(table, encoded, "s");
    let mut changes = Vec::new();
    if !keeps_existing(table, encoded, layout) {
        let others = others(encoded, layout);
        let set: Vec<String> = of(encoded, &others)
            .map(|column| format!("{} = {}", quote(&column.name), value(column, "s")))
            .collect();
        let place = place(table);
        changes.push(format!(
            "update {place} as t set {} from {staging} as s where {same}",
            set.join(", ")
        ));
    }
    changes.push(format!(
        "{} where not exists (select from {} as t where {same}){}",
        insert_from(table, encoded, layout, staging),
        place(table),
        order(table)
    ));
    changes
}

/// A query with one column of the table.
pub(super) fn column(table: &Table, column: &Column) -> String {
    format!("select {} from {}", quote(&column.name), place(table))
}

/// Brings a column of `staging` into its own type.
pub(super) fn insert_alone(column: &Column, staging: &str, place: &str) -> String {
    format!("insert into {place} select {} from {staging} as s", value(column, "s"))
}

/// A query with the columns by which keys are compared: a number and the key's own types.
pub(super) fn keys(table: &Table) -> String {
    format!("select null::bigint as n, {} from {}", columns(table, &table.key), place(table))
}

/// A query with the columns in which keys travel that cannot be copied into [`keys`].
pub(super) fn raw_keys(table: &Table, encoded: &Table, is_old: bool) -> String {
    let list: Vec<String> =
        of(encoded, &encoded.key).map(|column| travelling(column, is_old)).collect();
    format!("select null::bigint as n, {} from {}", list.join(", "), place(table))
}

/// Brings keys into their own types.
pub(super) fn move_keys(encoded: &Table, raw: &str, place: &str) -> String {
    let values: Vec<String> = of(encoded, &encoded.key).map(|column| value(column, "s")).collect();
    format!(
        "insert into {place} (n, {}) select s.n, {} from {raw} as s",
        columns(encoded, &encoded.key),
        values.join(", ")
    )
}

/// The rank of each key.
pub(super) fn ranks(table: &Table, place: &str) -> String {
    format!("select n, dense_rank() over (order by {}) from {place}", columns(table, &table.key))
}

#[cfg(test)]
mod tests {
    use super::super::testing::table;
    use super::*;

    #[test]
    fn a_table_that_is_all_key_has_nothing_to_update() {
        let table = table("a\"b", &["k", "v"]);
        assert_eq!(
            insert(&table, &table, &[1, 0], "s"),
            "insert into \"public\".\"a\"\"b\" (\"v\", \"k\") overriding system value \
             select s.\"v\", s.\"k\" from s as s on conflict (\"k\", \"v\") do nothing"
        );
        assert!(
            insert(&table, &table, &[0, 1, 2], "s")
                .ends_with("do update set \"n\" = excluded.\"n\"")
        );
        assert_eq!(
            delete(&table, &table, "s"),
            "delete from \"public\".\"a\"\"b\" as t using s as gone \
             where t.\"k\" = gone.\"k\" and t.\"v\" = gone.\"v\""
        );
    }

    #[test]
    fn what_travels_as_text_is_read_without_its_modifier() {
        let mut table = table("t", &["k"]);
        table.columns[1].text = Some("pg_catalog.\"bit\"".into());
        assert_eq!(
            typed(&table, &table, false, &[0, 1]),
            "select \"k\", null::text as \"v\" from \"public\".\"t\""
        );
        let insert = insert(&table, &table, &[0, 1], "s");
        assert!(insert.contains("select s.\"k\", s.\"v\"::pg_catalog.\"bit\" from"), "{insert}");
    }

    #[test]
    fn the_modifier_of_an_interval_says_how_it_is_read() {
        let mut table = table("t", &["k"]);
        table.columns[1].text = Some("pg_catalog.\"interval\"".into());
        table.columns[1].oid = INTERVAL;
        table.columns[1].typmod = -1;
        let plain = insert(&table, &table, &[1], "s");
        assert!(plain.contains("select s.\"v\"::pg_catalog.\"interval\" from"), "{plain}");
        table.columns[1].typmod = 0x04_ffff;
        let years = insert(&table, &table, &[1], "s");
        assert!(
            years.contains("interval_in(s.\"v\"::cstring, 0::pg_catalog.oid, 327679)"),
            "{years}"
        );
    }
}
