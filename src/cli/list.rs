//! `tidegate list`

use super::entry::Entries;
use super::output::{Table, print};
use crate::error::Result;

pub(super) fn list(entries: &Entries) -> Result<()> {
    let mut table = Table::new(["dataflow", "about"]);
    for entry in entries.iter() {
        table.row([entry.name().into(), entry.about().into()]);
    }
    print(table)
}
