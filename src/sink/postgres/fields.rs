//! Stand-in: another branch brings the names of a type's fields.

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub name: String,
}

pub(crate) fn field_names<T: serde::de::DeserializeOwned>() -> Option<Vec<Field>> {
    None
}
