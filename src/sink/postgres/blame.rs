//! Finds the column that the server means where it names none: a text that is no value of a type.

use super::arrived::RowId;
use super::careful::Careful;
use super::load::Refused;
use super::retry::Fault;
use super::work::TableWork;

impl Careful<'_> {
    /// The only column whose text is refused in the same way when it is assigned alone. The server names
    /// none where a cast fails, and casts are made only for what travels as text.
    pub(super) async fn blame(
        &mut self,
        table: &TableWork,
        row: RowId,
        fault: &Fault,
    ) -> Result<Option<String>, Fault> {
        let Some(code) = fault.code().filter(|code| code.code().starts_with("22")) else {
            return Ok(None);
        };
        if fault.column().is_some() {
            return Ok(None);
        }
        let batch = table.batch([row].chunks(1), true);
        let mut blamed = None;
        for tuples in batch.tuples() {
            let old = table.live.at(tuples.version);
            for index in &tuples.columns {
                let column = &old.table.columns[usize::from(*index)];
                if column.text.is_none() {
                    continue;
                }
                let (sink, live) = (table.sink, &table.live);
                let mark = self.savepoint();
                let made =
                    self.loader.prepare_alone(self.session, sink, live, tuples, *index).await;
                // The column may be gone by now.
                let Ok(alone) = self.ended(mark, made.map_err(Refused::from)).await? else {
                    continue;
                };
                let mark = self.savepoint();
                let tried = self.loader.try_alone(self.session, live, tuples, &alone).await;
                let refused = self.ended(mark, tried).await?.err();
                if refused.is_some_and(|refused| refused.fault.code() == Some(code)) {
                    if blamed.is_some() {
                        return Ok(None);
                    }
                    blamed = Some(column.name.clone());
                }
            }
        }
        Ok(blamed)
    }
}
