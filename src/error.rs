//! One opaque error: what failed, where, and what to do, in one sentence.

use std::error::Error as StdError;
use std::fmt;

/// A `Result` whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What an [`Error`] is about. Each kind ends the program with an exit code of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A broken invariant of Tidegate itself (exit code 1).
    Internal,
    /// The command line is wrong (exit code 2).
    Usage,
    /// A dataflow, parameter, table or column is not as it must be (exit code 3).
    Config,
    /// The source failed: broker, topic, position (exit code 4).
    Source,
    /// The sink failed: database, table, transaction (exit code 5).
    Sink,
    /// Another run of the same pipeline took over; nothing more was written (exit code 6).
    Fenced,
    /// Another process of the cluster was lost (exit code 7).
    Peer,
    /// A record was refused and its source's policy is to stop (exit code 8).
    Refused,
    /// The log and what is stored do not agree (exit code 9).
    Differs,
    /// A stored position and the log do not fit together (exit code 10).
    Position,
}

impl Kind {
    /// All kinds, in the order of their exit codes.
    pub const ALL: [Kind; 10] = [
        Kind::Internal,
        Kind::Usage,
        Kind::Config,
        Kind::Source,
        Kind::Sink,
        Kind::Fenced,
        Kind::Peer,
        Kind::Refused,
        Kind::Differs,
        Kind::Position,
    ];

    /// The exit code of a program that ends with an error of this kind.
    ///
    /// ```
    /// assert_eq!(tidegate::Kind::Fenced.exit_code(), 6);
    /// ```
    pub fn exit_code(self) -> u8 {
        match self {
            Kind::Internal => 1,
            Kind::Usage => 2,
            Kind::Config => 3,
            Kind::Source => 4,
            Kind::Sink => 5,
            Kind::Fenced => 6,
            Kind::Peer => 7,
            Kind::Refused => 8,
            Kind::Differs => 9,
            Kind::Position => 10,
        }
    }

    /// Whether a supervisor should start a program again that ended with an error of this kind: what
    /// it is about may pass by itself. The others need a person, and a run that was fenced has been
    /// replaced.
    ///
    /// ```
    /// use tidegate::Kind;
    /// assert!(Kind::Peer.is_worth_a_restart() && !Kind::Fenced.is_worth_a_restart());
    /// ```
    pub fn is_worth_a_restart(self) -> bool {
        matches!(self, Kind::Internal | Kind::Source | Kind::Sink | Kind::Peer)
    }
}

/// What went wrong, in one sentence without a secret; [`Error::kind`] says whose fault it is.
///
/// ```
/// use tidegate::{Error, Kind};
/// let error = Error::new(Kind::Config, "topic `orders` does not exist; create it first");
/// assert_eq!(error.kind(), Kind::Config);
/// assert!(!error.is_retryable());
/// ```
pub struct Error(Box<Inner>);

struct Inner {
    kind: Kind,
    message: String,
    retryable: bool,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error of `kind` with its sentence: lower case, no full stop, values in backticks.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Error(Box::new(Inner { kind, message: message.into(), retryable: false, source: None }))
    }

    /// An error in what the user configured.
    pub fn config(message: impl Into<String>) -> Self {
        Self::new(Kind::Config, message)
    }

    /// An error of the source.
    pub fn source(message: impl Into<String>) -> Self {
        Self::new(Kind::Source, message)
    }

    /// A stored position that the log does not fit.
    pub fn position(message: impl Into<String>) -> Self {
        Self::new(Kind::Position, message)
    }

    /// An error of the sink.
    pub fn sink(message: impl Into<String>) -> Self {
        Self::new(Kind::Sink, message)
    }

    /// A broken invariant.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(Kind::Internal, message)
    }

    /// Keeps the error underneath, for [`std::error::Error::source`]; it is not printed.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Marks the error as one that goes away by itself: the same call may succeed later.
    #[must_use]
    pub fn retryable(mut self, retryable: bool) -> Self {
        self.0.retryable = retryable;
        self
    }

    /// Puts `place` in front of the sentence: `place: sentence`.
    #[must_use]
    pub fn at(mut self, place: impl fmt::Display) -> Self {
        self.0.message = format!("{place}: {}", self.0.message);
        self
    }

    /// Whose fault it is.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        self.0.retryable
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("message", &self.0.message)
            .field("source", &self.0.source)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}
