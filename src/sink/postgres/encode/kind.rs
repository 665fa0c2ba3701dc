//! Which column types can be written, and which can be keys.

use jiff::tz::TimeZone;

use crate::sink::postgres::table::Column;
use crate::sink::postgres::unit::Unit;

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
    /// Goes as its text, which the server reads.
    Cast,
    /// The same for an array.
    Array,
    /// The same for an array of `json` or `jsonb`, whose elements are JSON.
    JsonArray,
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
    /// The kind of the column's type.
    pub fn of(column: &Column) -> Kind {
        if let Some((_, kind, _)) = KINDS.iter().find(|(oid, ..)| *oid == column.oid) {
            return *kind;
        }
        match (&column.text, column.element.map(is_json)) {
            (None, _) => Kind::Unsupported,
            (_, None) => Kind::Cast,
            (_, Some(false)) => Kind::Array,
            (_, Some(true)) => Kind::JsonArray,
        }
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
    /// What numbers count, in a time column where it is declared.
    pub unit: Option<Unit>,
    /// Where texts without an offset belong, in a `timestamptz` where it is declared.
    pub zone: Option<&'static TimeZone>,
}

impl Cell {
    /// A cell that takes any scalar as text.
    pub const TEXT: Cell =
        Cell { kind: Kind::Text, typmod: -1, not_null: true, unit: None, zone: None };

    /// The cell of `column`, which refuses null where `not_null` says so.
    pub fn of(column: &Column, not_null: bool) -> Cell {
        let kind = Kind::of(column);
        // The modifier of a type that is cast is the server's to apply.
        let typmod = if column.text.is_some() { -1 } else { column.typmod };
        Cell { kind, typmod, not_null, unit: column.unit, zone: column.zone }
    }

    /// Whether values go through as JSON, whatever their shape.
    #[inline]
    pub fn is_json(self) -> bool {
        matches!(self.kind, Kind::Json | Kind::Jsonb)
    }
}

fn is_json(oid: u32) -> bool {
    matches!(oid, 114 | 3802)
}

/// Whether the binary form of the type with this OID is written here.
pub(crate) fn is_binary(oid: u32) -> bool {
    KINDS.iter().any(|(known, ..)| *known == oid)
}

/// Whether a unit can be declared for the numbers in `column`.
pub(crate) fn takes_unit(column: &Column) -> bool {
    matches!(Kind::of(column), Kind::Date | Kind::Time | Kind::Timestamp | Kind::Timestamptz)
}

/// Whether a time zone can be declared for the texts in `column`.
pub(crate) fn takes_zone(column: &Column) -> bool {
    Kind::of(column) == Kind::Timestamptz
}

/// Whether values of `column` can be written, or the reason why not.
pub(crate) fn supported(column: &Column) -> Result<(), String> {
    if Kind::of(column) != Kind::Unsupported {
        return Ok(());
    }
    Err("no text can be read as its type, so nothing can be written to it".to_owned())
}

/// Whether two values of `column`, which has a binary form of its own and no odd collation, are equal
/// for the server exactly where their bytes are.
///
/// Not so for `numeric` (1.5 = 1.50), floats (0 = -0), `char` (trailing spaces), `jsonb` (2 = 2.0), nor
/// where a modifier that is hidden in a domain rounds or cuts on the server, after we compared.
pub(crate) fn equal_bytes(column: &Column) -> bool {
    use Kind::*;
    let spelled = match Kind::of(column) {
        Bool | Int2 | Int4 | Int8 | Text | Name | Uuid | Bytea | Date => return true,
        Varchar => "character varying",
        Time => "time",
        Timestamp | Timestamptz => "timestamp",
        _ => return false,
    };
    column.typmod >= 0 || column.type_name.starts_with(spelled)
}
