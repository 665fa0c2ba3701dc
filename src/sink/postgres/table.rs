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
    /// The quoted name of its type without a modifier, where values travel as text and the server
    /// reads them.
    pub text: Option<String>,
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
    /// Whether the server is to say which keys are equal, since equal ones may differ in their bytes.
    pub server_keys: bool,
    /// Whether ON CONFLICT finds the key: not so for a view with triggers in the place of its changes.
    pub arbiter: bool,
    /// Whether a row that is there stays as it is.
    pub insert_only: bool,
}
