//! What is printed.

use std::fmt::{self, Display};
use std::io::{BufWriter, ErrorKind, Stdout, Write};

use crate::error::{Error, Result};

/// Prints `text` and a line's end to standard output. Whoever closed it needs no more of it.
pub(super) fn print(text: impl Display) -> Result<()> {
    let text = text.to_string();
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{}", text.trim_end()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Error::internal(format!("standard output cannot be written: {error}")))
        }
        _ => Ok(()),
    }
}

/// Prints lines, many of them, until whoever reads them has enough.
pub(super) struct Lines {
    out: BufWriter<Stdout>,
    closed: bool,
}

impl Lines {
    pub(super) fn new() -> Self {
        Lines { out: BufWriter::new(std::io::stdout()), closed: false }
    }

    /// Whether nobody reads them any more.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Prints a line; an error also where nobody reads it any more.
    pub(super) fn print(&mut self, line: &str) -> Result<()> {
        let written = writeln!(self.out, "{line}");
        self.written(written)
    }

    /// Prints what is left.
    pub(super) fn finish(mut self) -> Result<()> {
        let flushed = self.out.flush();
        let closed = |this: &Self| this.closed;
        self.written(flushed).or_else(|error| if closed(&self) { Ok(()) } else { Err(error) })
    }

    fn written(&mut self, written: std::io::Result<()>) -> Result<()> {
        written.map_err(|error| {
            self.closed |= error.kind() == ErrorKind::BrokenPipe;
            Error::internal(format!("standard output cannot be written: {error}"))
        })
    }
}

/// Prints an error to standard error, as one line.
pub(super) fn complain(error: &Error) {
    let sentence = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    // Nothing is left to do where even this fails.
    let _ = writeln!(std::io::stderr(), "error: {sentence}");
}

/// Rows under a header, in columns: numbers to the right, all else to the left.
pub(super) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new<const N: usize>(header: [&str; N]) -> Self {
        Table { rows: vec![header.map(str::to_owned).to_vec()] }
    }

    pub(super) fn row<const N: usize>(&mut self, row: [String; N]) {
        self.rows.push(row.to_vec());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows[0].len();
        let width = |column: usize| {
            self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
        };
        let numeric = |column: usize| {
            self.rows
                .iter()
                .skip(1)
                .all(|row| row[column] == "-" || row[column].parse::<f64>().is_ok())
        };
        let columns: Vec<_> = (0..columns).map(|column| (width(column), numeric(column))).collect();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, (width, numeric)) in row.iter().zip(&columns) {
                line += "  ";
                line +=
                    &if *numeric { format!("{cell:>width$}") } else { format!("{cell:<width$}") };
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_to_the_right() {
        let mut table = Table::new(["topic", "lag"]);
        table.row(["orders".into(), "7".into()]);
        table.row(["a".into(), "1000".into()]);
        assert_eq!(table.to_string(), "  topic    lag\n  orders     7\n  a       1000\n");
    }
}
