//! Which column types can be written, and which can be keys.

use crate::sink::postgres::table::Column;

/// A column type, by how its values are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    Int2,
    Int4,
    Int8,
    Float4,
    Float8,
    Numeric,
    Text,
    Varchar,
    Bpchar,
    Name,
    Bytea,
    Uuid,
    Date,
    Time,
    Timestamp,
    Timestamptz,
    Json,
    Jsonb,
    Unsupported,
}

/// All of them, with their OIDs (`pg_type.dat` of the server's source) and names.
const KINDS: [(u32, Kind, &str); 19] = [
    (16, Kind::Bool, "boolean"),
    (21, Kind::Int2, "smallint"),
    (23, Kind::Int4, "integer"),
    (20, Kind::Int8, "bigint"),
    (700, Kind::Float4, "real"),
    (701, Kind::Float8, "double precision"),
    (1700, Kind::Numeric, "numeric"),
    (25, Kind::Text, "text"),
    (1043, Kind::Varchar, "varchar"),
    (1042, Kind::Bpchar, "char"),
    (19, Kind::Name, "name"),
    (17, Kind::Bytea, "bytea"),
    (2950, Kind::Uuid, "uuid"),
    (1082, Kind::Date, "date"),
    (1083, Kind::Time, "time"),
    (1114, Kind::Timestamp, "timestamp"),
    (1184, Kind::Timestamptz, "timestamptz"),
    (114, Kind::Json, "json"),
    (3802, Kind::Jsonb, "jsonb"),
];

impl Kind {
    /// The kind of the type with this OID.
    pub fn of(oid: u32) -> Kind {
        KINDS.iter().find(|(o, ..)| *o == oid).map_or(Kind::Unsupported, |(_, kind, _)| *kind)
    }

    /// Its name, for people.
    pub fn name(self) -> &'static str {
        KINDS.iter().find(|(_, k, _)| *k == self).map_or("this type", |(.., name)| *name)
    }
}

/// What a value's writer needs to know of its column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    /// Its type.
    pub kind: Kind,
    /// Its type modifier, -1 for none.
    pub typmod: i32,
    /// Whether NULL is refused: by the column, or because it is a key.
    pub not_null: bool,
}

impl Cell {
    /// A cell that takes any scalar as text.
    pub const TEXT: Cell = Cell { kind: Kind::Text, typmod: -1, not_null: true };

    /// The cell of `column`.
    pub fn of(column: &Column, key: bool) -> Cell {
        let kind = Kind::of(column.oid);
        Cell { kind, typmod: column.typmod, not_null: column.not_null || key }
    }

    /// Whether values go through as JSON, whatever their shape.
    #[inline]
    pub fn is_json(self) -> bool {
        matches!(self.kind, Kind::Json | Kind::Jsonb)
    }
}

/// Whether values of `column` can be written, or the reason why not.
pub(crate) fn supported(column: &Column) -> Result<(), String> {
    if Kind::of(column.oid) != Kind::Unsupported {
        return Ok(());
    }
    Err(format!(
        "column `{}` is of type `{}`, which is not supported; supported are {}",
        column.name,
        column.type_name,
        list(&KINDS.map(|(.., name)| name)),
    ))
}

/// Whether `column` can be a key, or the reason why not.
///
/// A key's bytes decide which rows supersede each other, so two values must have equal bytes exactly
/// where the server calls them equal: not so for `numeric` (1.5 = 1.50), floats (0 = -0), `char`
/// (trailing spaces).
pub(crate) fn key_supported(column: &Column) -> Result<(), String> {
    use Kind::*;
    const KEYS: [Kind; 12] =
        [Bool, Int2, Int4, Int8, Text, Varchar, Uuid, Bytea, Date, Time, Timestamp, Timestamptz];
    supported(column)?;
    let kind = Kind::of(column.oid);
    if !KEYS.contains(&kind) {
        return Err(format!(
            "column `{}` of type `{}` cannot be a key: equal values of it may differ in their bytes; \
             keys can be {}",
            column.name,
            column.type_name,
            list(&KEYS.map(Kind::name)),
        ));
    }
    // A modifier hidden in a domain rounds or cuts on the server, after we compared.
    let spelled = match kind {
        Varchar => "character varying",
        Time => "time",
        Timestamp | Timestamptz => "timestamp",
        _ => return Ok(()),
    };
    if column.typmod < 0 && !column.type_name.starts_with(spelled) {
        return Err(format!(
            "column `{}` of type `{}` cannot be a key: a domain over `{}` may round or cut its values",
            column.name,
            column.type_name,
            kind.name(),
        ));
    }
    Ok(())
}

fn list(names: &[&str]) -> String {
    let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}
