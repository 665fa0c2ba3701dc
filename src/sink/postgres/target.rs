//! A PostgreSQL table as a dataflow names it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::address::Address;
use super::encoder::TableEncoder;
use super::fields::field_names;
use super::ident::TableName;
use super::shape::LiveTable;
use super::store::PostgresStore;
use super::unit::{self, Unit};
use crate::error::{Error, Result};
use crate::sink::{Encoder, Shape, Sink, Target};

/// A table in PostgreSQL, written by binary COPY; rows and positions share each transaction.
///
/// Without a key rows are appended. With one, a row takes the place of the row with its key, and a
/// tombstone deletes it. Fields of the rows go to the columns of their names; a column that a row
/// does not name has its default, or keeps its value.
///
/// ```
/// use tidegate::sink::Postgres;
/// let sink = Postgres::table("sales.orders").key("order_id");
/// let pairs = Postgres::table(r#""Sales-EU"."Order""#).key(["shop", "number"]);
/// # let _ = (sink, pairs);
/// ```
#[derive(Clone)]
pub struct Postgres {
    table: String,
    key: Vec<String>,
    delete_when: Option<(String, String)>,
    fields: Option<Vec<String>>,
    units: Vec<(String, Unit)>,
    default_unit: Option<Unit>,
    zones: Vec<(String, String)>,
    default_zone: Option<String>,
    ignore_extra: bool,
    insert_only: bool,
    name: Option<String>,
    url: Option<String>,
    schema: String,
    time_limit: Duration,
    retry_for: Duration,
}

/// The names of a key's columns: one, or several.
pub trait KeyColumns {
    /// The names, in the key's order.
    fn into_names(self) -> Vec<String>;
}

impl KeyColumns for &str {
    fn into_names(self) -> Vec<String> {
        vec![self.into()]
    }
}

impl KeyColumns for String {
    fn into_names(self) -> Vec<String> {
        vec![self]
    }
}

impl<S: Into<String>, const N: usize> KeyColumns for [S; N] {
    fn into_names(self) -> Vec<String> {
        self.into_iter().map(Into::into).collect()
    }
}

impl<S: Into<String> + Clone> KeyColumns for &[S] {
    fn into_names(self) -> Vec<String> {
        self.iter().cloned().map(Into::into).collect()
    }
}

impl<S: Into<String>> KeyColumns for Vec<S> {
    fn into_names(self) -> Vec<String> {
        self.into_iter().map(Into::into).collect()
    }
}

/// What the store needs to know of a table before the run.
#[derive(Clone, Debug)]
pub(super) struct Spec {
    pub table: TableName,
    pub key: Vec<String>,
    pub delete_when: Option<(String, String)>,
    /// The names of the rows' fields, where they are known.
    pub fields: Option<Vec<String>>,
    /// What numbers count, per column and for the other time columns.
    pub units: Vec<(String, Unit)>,
    pub default_unit: Option<Unit>,
    /// Where texts without an offset belong, per column and for the other columns.
    pub zones: Vec<(String, &'static TimeZone)>,
    pub default_zone: Option<&'static TimeZone>,
    /// Whether fields without a column are ignored.
    pub ignore_extra: bool,
    /// Whether a row that is there stays as it is.
    pub insert_only: bool,
}

impl Postgres {
    /// The table `name` or `schema.name`, case kept; parts with a dot stand in double quotes. Without
    /// a schema the server's `search_path` decides.
    pub fn table(name: impl Into<String>) -> Self {
        Postgres {
            table: name.into(),
            key: Vec::new(),
            delete_when: None,
            fields: None,
            units: Vec::new(),
            default_unit: None,
            zones: Vec::new(),
            default_zone: None,
            ignore_extra: false,
            insert_only: false,
            name: None,
            url: None,
            schema: "tidegate".into(),
            time_limit: Duration::from_secs(60),
            retry_for: Duration::from_secs(5 * 60),
        }
    }

    /// The columns by which a row is known, over which the table needs a unique index.
    #[must_use]
    pub fn key(mut self, columns: impl KeyColumns) -> Self {
        self.key = columns.into_names();
        self
    }

    /// Rows whose `field` holds this text (of a string, number or boolean) delete their key's row.
    #[must_use]
    pub fn delete_when(mut self, field: impl Into<String>, value: impl Into<String>) -> Self {
        self.delete_when = Some((field.into(), value.into()));
        self
    }

    /// The names of the rows' fields, where their type does not tell them: so they are compared with the
    /// table's columns before the first record.
    #[must_use]
    pub fn fields<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.fields = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// What numbers in the time column `column` count from 1970-01-01 UTC: nothing is guessed, so
    /// without it numbers are refused there. A `date` takes the day of the instant in UTC, a `time` its
    /// time of day, a `timestamp` both.
    ///
    /// ```
    /// use tidegate::sink::Postgres;
    /// use tidegate::sink::postgres::Unit;
    /// let pings = Postgres::table("pings").unit("at", Unit::Milliseconds).default_unit(Unit::Seconds);
    /// # let _ = pings;
    /// ```
    #[must_use]
    pub fn unit(mut self, column: impl Into<String>, unit: Unit) -> Self {
        let column = column.into();
        self.units.retain(|(name, _)| *name != column);
        self.units.push((column, unit));
        self
    }

    /// What numbers count in the time columns that [`Postgres::unit`] does not name.
    #[must_use]
    pub fn default_unit(mut self, unit: Unit) -> Self {
        self.default_unit = Some(unit);
        self
    }

    /// The time zone, by IANA's name, of texts without an offset in the `timestamptz` column `column`;
    /// without it they are refused there. An offset in the text counts more. Of a local time that
    /// happened twice the later is taken, one that was left out is moved on by what was left out, as
    /// the server does.
    ///
    /// ```
    /// use tidegate::sink::Postgres;
    /// let rides = Postgres::table("rides").zone("started", "Europe/Oslo").default_zone("UTC");
    /// # let _ = rides;
    /// ```
    #[must_use]
    pub fn zone(mut self, column: impl Into<String>, zone: impl Into<String>) -> Self {
        let column = column.into();
        self.zones.retain(|(name, _)| *name != column);
        self.zones.push((column, zone.into()));
        self
    }

    /// The time zone of texts without an offset in the columns that [`Postgres::zone`] does not name.
    #[must_use]
    pub fn default_zone(mut self, zone: impl Into<String>) -> Self {
        self.default_zone = Some(zone.into());
        self
    }

    /// Ignores the fields of rows that have no column, which otherwise refuse their row.
    ///
    /// ```
    /// use tidegate::sink::Postgres;
    /// let orders = Postgres::table("orders").key("order_id").ignore_extra_fields();
    /// # let _ = orders;
    /// ```
    #[must_use]
    pub fn ignore_extra_fields(mut self) -> Self {
        self.ignore_extra = true;
        self
    }

    /// Leaves the row that a key has already as it is (`on conflict do nothing`): the first one stays.
    /// Deletes delete.
    #[must_use]
    pub fn insert_only(mut self) -> Self {
        self.insert_only = true;
        self
    }

    /// The name under which positions are stored; the table's unless given. A sink that is renamed
    /// starts anew.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The database, as a URL or as `key=value` pairs, with libpq's options; `DATABASE_URL` of the
    /// environment unless given.
    #[must_use]
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.url = Some(url.into());
        self
    }

    /// The schema in which Tidegate keeps positions; `tidegate` unless given. Tables of one database
    /// share transactions only if they share it.
    #[must_use]
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = schema.into();
        self
    }

    /// How long one statement may take before its connection is given up; 60 s unless given.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = limit;
        self
    }

    /// How long a transaction is repeated while the server is away; 5 minutes unless given.
    #[must_use]
    pub fn retry_for(mut self, limit: Duration) -> Self {
        self.retry_for = limit;
        self
    }

    fn store(&self) -> Result<PostgresStore> {
        let url = match &self.url {
            Some(url) => url.clone(),
            // An empty variable is none.
            None => std::env::var("DATABASE_URL").ok().filter(|url| !url.is_empty()).ok_or_else(
                || {
                    Error::config(format!(
                        "no database for table `{}`: set DATABASE_URL, or give `Postgres::url`",
                        self.table
                    ))
                },
            )?,
        };
        let address = Address::parse(&url).map_err(|e| e.at(format!("table `{}`", self.table)))?;
        if self.schema.is_empty() || self.schema.contains('\0') {
            return Err(Error::config("the bookkeeping schema has no usable name"));
        }
        Ok(PostgresStore::new(address, &self.schema, self.time_limit, self.retry_for))
    }

    fn named_zone(&self, name: &str) -> Result<&'static TimeZone> {
        unit::zone(name).map_err(|error| error.at(format!("table `{}`", self.table)))
    }

    fn spec(&self) -> Result<Spec> {
        let table = TableName::parse(&self.table)?;
        if self.delete_when.is_some() && self.key.is_empty() {
            return Err(Error::config(format!(
                "table `{}`: `delete_when` needs a `key` to delete by",
                self.table
            )));
        }
        let mut key = self.key.clone();
        key.sort_unstable();
        key.dedup();
        if key.len() < self.key.len() {
            return Err(Error::config(format!(
                "table `{}`: its key names a column twice",
                self.table
            )));
        }
        Ok(Spec {
            table,
            key: self.key.clone(),
            delete_when: self.delete_when.clone(),
            fields: None,
            units: self.units.clone(),
            default_unit: self.default_unit,
            zones: self
                .zones
                .iter()
                .map(|(column, name)| Ok((column.clone(), self.named_zone(name)?)))
                .collect::<Result<_>>()?,
            default_zone: self
                .default_zone
                .as_ref()
                .map(|name| self.named_zone(name))
                .transpose()?,
            ignore_extra: self.ignore_extra,
            insert_only: self.insert_only,
        })
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL holds a password.
        f.debug_struct("Postgres")
            .field("table", &self.table)
            .field("key", &self.key)
            .field("name", &self.name)
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

impl<T: Serialize + DeserializeOwned + 'static> Sink<T> for Postgres {
    fn target(&self) -> Result<Target> {
        let store = Arc::new(self.store()?);
        let mut spec = self.spec()?;
        let traced =
            || field_names::<T>().map(|fields| fields.into_iter().map(|f| f.name).collect());
        spec.fields = self.fields.clone().or_else(traced);
        let place = crate::sink::Store::identity(&*store);
        let how = if self.key.is_empty() {
            format!("append to `{}` in `{place}`, exactly once", self.table)
        } else {
            let key = self.key.join("`, `");
            format!("put into `{}` by `{key}` in `{place}`, exactly once", self.table)
        };
        Ok(Target {
            name: self.name.clone().unwrap_or_else(|| self.table.clone()),
            describe: how,
            keyed: !self.key.is_empty(),
            store,
            spec: Arc::new(spec),
        })
    }

    fn encoder(&self, shape: &Shape) -> Box<dyn Encoder<T>> {
        let live = Arc::clone(shape)
            .downcast::<LiveTable>()
            .expect("a sink is handed the shape that its own store prepared");
        Box::new(TableEncoder::new(live))
    }
}
