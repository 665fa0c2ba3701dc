//! A target table as the catalog describes it.

/// A column that can be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    /// Its exact name, unquoted.
    pub name: String,
    /// The OID of its type; for a domain, of the type beneath.
    pub oid: u32,
    /// The type as `format_type` prints it, for people.
    pub type_name: String,
    /// The type modifier, -1 for none: for `numeric(p,s)`, `((p << 16) | s) + 4`.
    pub typmod: i32,
    /// Whether NULL is refused.
    pub not_null: bool,
    /// Whether the server fills it in where a row does not name it (a default or an identity).
    pub has_default: bool,
}

/// The table.
#[derive(Clone, Debug, PartialEq, Eq)]
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
}
