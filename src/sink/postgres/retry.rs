//! Which faults go away by themselves, how long to wait for it, and how they read.

use std::error::Error as StdError;
use std::fmt::{self, Write as _};
use std::io::ErrorKind;
use std::time::Duration;

use tokio_postgres::error::{DbError, SqlState};

use crate::error::{Error, Kind};
use crate::record::Refusal;

/// Why a call to the server did not succeed.
#[derive(Debug)]
pub(super) enum Fault {
    /// The server or the client library says so.
    Server(tokio_postgres::Error),
    /// No answer within the time limit.
    Late(Duration),
    /// The run was aborted meanwhile.
    Aborted,
    /// What the server answered was unexpected; the transaction was rolled back.
    RolledBack,
    /// Decided already.
    Final(Error),
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Self {
        Fault::Server(error)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Fault::Final(error)
    }
}

/// What constraints say that other rows may satisfy or violate.
pub(super) const NEIGHBOURS: [&str; 3] = ["23503", "23505", "23P01"];

impl Fault {
    /// The SQLSTATE, where the server gave one.
    pub fn code(&self) -> Option<&SqlState> {
        match self {
            Fault::Server(error) => error.code(),
            _ => None,
        }
    }

    /// What the server said, where it answered at all.
    pub fn db(&self) -> Option<&DbError> {
        match self {
            Fault::Server(error) => error.as_db_error(),
            _ => None,
        }
    }

    /// Whether the server refused what it was given, and would again.
    pub fn is_refusal(&self) -> bool {
        self.db().is_some() && !self.is_retryable()
    }

    /// Whether a trigger or a function of the database's own raised it.
    pub fn is_raised(&self) -> bool {
        self.db().is_some_and(|db| db.routine() == Some("exec_stmt_raise"))
    }

    /// Whether it blames what the rows hold, by its code alone: a fault of the data, of a constraint, of
    /// a trigger that says so, of a limit. Others blame the statement, and so every row, unless some
    /// row of the same flush is taken.
    pub fn blames_row(&self) -> bool {
        let Some(db) = self.db() else { return false };
        // A trigger may raise any words under any code; a policy refuses rows under that of a privilege.
        let policy = db.routine() == Some("ExecWithCheckOptions");
        let code = db.code().code();
        self.is_raised()
            || policy
            || ["22", "23", "2F", "38", "39", "44", "54", "P0"]
                .iter()
                .any(|class| code.starts_with(class))
    }

    /// Whether the row may be refused for its neighbours only: a parent that comes later, a unique value
    /// that is still another's.
    pub fn blames_neighbours(&self) -> bool {
        self.code().is_some_and(|code| NEIGHBOURS.contains(&code.code()))
    }

    /// What is counted as the cause of a repetition: the class of the SQLSTATE, or a word.
    pub fn class(&self) -> &str {
        match self {
            Fault::Server(error) => match error.code() {
                Some(code) => code.code().get(..2).unwrap_or("other"),
                None => "connection",
            },
            Fault::Late(_) => "timeout",
            Fault::RolledBack | Fault::Aborted | Fault::Final(_) => "other",
        }
    }

    /// As anybody may read it: what a function of the database's own says may hold what rows hold.
    pub fn in_public(&self) -> String {
        match self.db() {
            Some(db) if self.is_raised() => {
                format!("a trigger or function says so [SQLSTATE {}]", db.code().code())
            }
            Some(db) => format!("{} [SQLSTATE {}]", db.message(), db.code().code()),
            None => self.to_string(),
        }
    }

    /// The line of a COPY's data at which it failed, from 1. Only the context says it, in the words of
    /// the server's language.
    pub fn copy_line(&self) -> Option<usize> {
        let context = self.db()?.where_()?;
        let copy = context.lines().find(|line| line.starts_with("COPY "))?;
        let (_, number) = copy.rsplit_once(", line ")?;
        let end = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
        number[..end].parse().ok()
    }

    /// The column that the server names, if any; COPY names it in its context only.
    pub fn column(&self) -> Option<String> {
        let db = self.db()?;
        if let Some(column) = db.column() {
            return Some(column.to_owned());
        }
        let copy = db.where_()?.lines().find(|line| line.starts_with("COPY "))?;
        let (_, column) = copy.split_once(", column ")?;
        Some(column.split(": \"").next().unwrap_or(column).to_owned())
    }

    /// As the refusal of the row that it was met with.
    pub fn refusal(&self) -> Refusal {
        let reason = match self.db() {
            Some(db) => {
                let mut reason = db.message().to_owned();
                if let Some(detail) = db.detail() {
                    let _ = write!(reason, " ({})", detail.trim_end_matches('.'));
                }
                reason
            }
            None => self.to_string(),
        };
        let mut refusal = Refusal::new("write", reason);
        refusal.column = self.column();
        refusal.sqlstate = self.code().map(|code| code.code().to_owned());
        refusal
    }

    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Fault::Server(error) => match error.code() {
                Some(code) => is_retryable(code),
                None => error.is_closed() || innermost(error).is::<std::io::Error>(),
            },
            Fault::Late(_) | Fault::RolledBack => true,
            Fault::Aborted => false,
            Fault::Final(error) => error.is_retryable(),
        }
    }

    /// As the program's error: `what: sentence`.
    pub fn during(self, what: impl fmt::Display) -> Error {
        let retryable = self.is_retryable();
        match self {
            Fault::Final(error) => error,
            other => {
                let error = Error::new(Kind::Sink, format!("{what}: {other}")).retryable(retryable);
                match other {
                    Fault::Server(cause) => error.because(cause),
                    _ => error,
                }
            }
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Server(error) => server_sentence(error, f),
            Fault::Late(limit) => write!(f, "no answer within {} s", limit.as_secs_f32()),
            Fault::Aborted => f.write_str("the run was aborted"),
            Fault::RolledBack => f.write_str("the server answered the commit with a rollback"),
            Fault::Final(error) => error.fmt(f),
        }
    }
}

fn server_sentence(error: &tokio_postgres::Error, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Some(db) = error.as_db_error() else {
        // The outermost says "error connecting to server", the innermost why.
        let cause = innermost(error);
        return match cause.downcast_ref::<std::io::Error>().map(std::io::Error::kind) {
            Some(kind @ ErrorKind::ConnectionRefused) => write!(f, "{kind}; is the server up?"),
            _ => write!(f, "{cause}"),
        };
    };
    f.write_str(db.message())?;
    if let Some(detail) = db.detail() {
        write!(f, " ({})", detail.trim_end_matches('.'))?;
    }
    for (what, name) in [("column", db.column()), ("constraint", db.constraint())] {
        if let Some(name) = name {
            write!(f, ", {what} `{name}`")?;
        }
    }
    // COPY names the column in its context line only.
    if let Some(line) = db.where_().and_then(|context| context.lines().next()) {
        write!(f, ", at {line}")?;
    }
    write!(f, " [SQLSTATE {}]", db.code().code())
}

fn innermost<'a>(error: &'a (dyn StdError + 'static)) -> &'a (dyn StdError + 'static) {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner
}

/// Whether a statement that failed with `code` may succeed when repeated. Decided by the code alone:
/// <https://www.postgresql.org/docs/current/errcodes-appendix.html>.
pub(super) fn is_retryable(code: &SqlState) -> bool {
    let code = code.code();
    match code {
        // Of the connection class, but a malformed message: COPY binary says it of a short field.
        "08P01" => false,
        // Cancelled, shut down, crashed, starting up; lock not available; idle for too long.
        "57014" | "57P01" | "57P02" | "57P03" | "57P05" | "55P03" | "25P03" | "25P04" => true,
        // Read only: during a fail-over the old primary may answer once more.
        "25006" => true,
        // The operating system's faults; `58P01` and others are missing files.
        "58000" | "58030" => true,
        _ => ["08", "40", "53"].iter().any(|class| code.starts_with(class)),
    }
}

/// Waits that double from 50 ms to 5 s, each by a random part shorter.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    attempts: u32,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(50);
    const LONGEST: Duration = Duration::from_secs(5);

    /// The next wait: between half of its bound and the bound.
    pub fn next(&mut self) -> Duration {
        let bound = Self::FIRST.saturating_mul(1 << self.attempts.min(16)).min(Self::LONGEST);
        self.attempts += 1;
        // Without randomness the waits are merely equal.
        let random = getrandom::u32().unwrap_or(u32::MAX);
        bound.mul_f64(0.5 + 0.5 * f64::from(random) / f64::from(u32::MAX))
    }

    /// How many waits there were.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_decides_what_is_repeated() {
        for code in ["08006", "40001", "40P01", "53300", "57P01", "57P03", "55P03", "25P03"] {
            assert!(is_retryable(&SqlState::from_code(code)), "{code}");
        }
        for code in ["08P01", "23505", "22001", "42P01", "57P04", "28P01", "XX000"] {
            assert!(!is_retryable(&SqlState::from_code(code)), "{code}");
        }
    }

    #[test]
    fn waits_grow_to_their_bound() {
        let mut backoff = Backoff::default();
        assert!(backoff.next() <= Duration::from_millis(50));
        for _ in 0..40 {
            assert!(backoff.next() <= Backoff::LONGEST);
        }
        assert!(backoff.next() >= Backoff::LONGEST / 2);
    }
}
