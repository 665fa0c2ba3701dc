//! A target table as the catalog describes it.

use jiff::tz::TimeZone;

use super::unit::Unit;

/// A column that can be written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Column {
    /// Its exact name, unquoted.
    pub name: String,
    /// The OID of the type whose binary form its values have: its own; for a domain, of the type
    /// beneath; `text` for enums and for types such as `citext`, whose binary form is their text.
    pub oid: u32,
    /// The type as `format_type` prints it, for people.
    pub type_name: String,
    /// The type modifier, -1 for none: for `numeric(p,s)`, `((p << 16) | s) + 4`.
    pub typmod: i32,
    /// Whether NULL is refused.
    pub not_null: bool,
    /// Whether the server fills it in where a row does not name it (a default or an identity).
    pub has_default: bool,
    /// The quoted name of its base type, where values travel as text and the server casts them: all
    /// types whose binary form is not written here. Without a modifier: the assignment applies it.
    pub text: Option<String>,
    /// The OID of the type of its elements, for an array.
    pub element: Option<u32>,
    /// Whether it is `generated always as identity`: it can be inserted, never updated.
    pub always: bool,
    /// What numbers in it count, if it is a time column and that is declared.
    pub unit: Option<Unit>,
    /// Where texts without an offset belong, if it is a `timestamptz` and that is declared.
    pub zone: Option<&'static TimeZone>,
}

/// The table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    /// Its schema's exact name, unquoted.
    pub schema: String,
    /// Its exact name, unquoted.
    pub name: String,
    /// All columns that can be written, in the table's order; generated ones are left out.
    pub columns: Vec<Column>,
    /// The key columns, as indexes into `columns`, in the order in which the dataflow named them;
    /// empty for an append.
    pub key: Vec<u16>,
    /// A row whose field of this name holds this text (of a string, number or boolean) is a delete.
    pub delete_when: Option<(String, String)>,
    /// Whether equal values of a key column may differ in the bytes that are written here (`numeric`,
    /// `citext`, `char(n)`, everything that travels as text): only the server can tell which rows
    /// have one key.
    pub server_keys: bool,
    /// Whether a column that must not be null refuses a row here: not where a trigger may fill it in,
    /// nor in a view.
    pub judges_null: bool,
    /// Whether the server judges, or changes, rows by more than their encoder knows: a CHECK, a
    /// trigger, a foreign key, a cast from text.
    pub judged: bool,
    /// Whether rows of different keys may exclude each other, by a unique or exclusion constraint
    /// beside the key's.
    pub rivals: bool,
    /// Whether what becomes of one key's row may depend on others' rows, or on the rows that were there in
    /// between: where there are triggers or rules, in views, and where the table refers to itself.
    pub entangled: bool,
    /// Whether `on conflict` finds the key: not in a view with triggers instead of its inserts.
    pub arbiter: bool,
    /// Whether fields without a column are ignored.
    pub ignore_extra: bool,
    /// Whether a row that is there stays as it is.
    pub insert_only: bool,
}

impl Table {
    /// Whether rows of different keys must be put in their order.
    pub fn is_ordered(&self) -> bool {
        self.rivals || self.entangled
    }

    /// Whether values of any of `columns` travel as text.
    pub fn has_texts(&self, columns: &[u16]) -> bool {
        columns.iter().any(|column| self.columns[usize::from(*column)].text.is_some())
    }
}
