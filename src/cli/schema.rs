//! `tidegate schema`

use clap::Args;

use super::output::print;
use crate::error::Result;

#[derive(Args)]
pub(super) struct SchemaArgs {
    /// The schema that holds the bookkeeping tables.
    #[arg(long, value_name = "NAME", default_value = "tidegate")]
    name: String,
}

pub(super) fn schema(args: &SchemaArgs) -> Result<()> {
    print(crate::sink::postgres::schema_sql(&args.name))
}
