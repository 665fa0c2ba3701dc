//! Two authenticated connections between each two processes.
//!
//! Process i dials every j < i and accepts from every j > i, in any order of start. Until the mesh is
//! complete its connections are watched: a process that was restarted meanwhile comes again, and its
//! newer connection replaces the older.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, unbounded};

use crate::cluster::address;
use crate::cluster::dial::{Event, Hand, Side};
use crate::cluster::flags::Flags;
use crate::cluster::hello::{Hello, Purpose};
use crate::cluster::limits::Limits;
use crate::cluster::link::Link;
use crate::cluster::message::Message;
use crate::cluster::rate::Rate;
use crate::cluster::watch::Watch;
use crate::error::{Error, Kind, Result};
use crate::run::Stop;

/// Handshakes with callers that may be under way at once; a further caller ends the oldest. A process
/// of the cluster needs milliseconds, so a crowd of silent strangers cannot keep it out.
const CALLERS: usize = 64;

/// How often the loop looks at the listener, and how often at the connections it has.
const TURN: Duration = Duration::from_millis(10);
const WATCH: Duration = Duration::from_millis(200);
/// How often the log says who is missing.
const REPORT: Duration = Duration::from_secs(5);
/// How long a process that ends since another differs tells the others so.
const TELLING: Duration = Duration::from_secs(3);

/// The connections of this process to all others; none for a run of one process.
pub struct Mesh {
    pub(crate) process: usize,
    /// By process; `None` at this one's own place.
    pub(crate) links: Vec<Option<Link>>,
    /// Where each process listens, as this one knows it.
    pub(crate) addresses: Vec<String>,
    pub(crate) launch: String,
    pub(crate) limits: Limits,
}

/// How waiting for the other processes ended.
#[derive(Debug)]
pub enum Joined {
    /// All processes are connected.
    Mesh(Mesh),
    /// The run was asked to stop first; all connections are closed.
    Stopped,
}

impl Mesh {
    /// Connects this process to all others of `flags`, within [`Flags::peer_wait`].
    ///
    /// Strangers and processes with another secret are logged and otherwise ignored. An authenticated
    /// process that disagrees on version, pipeline, `-n` or `-w` is an error that names both values, on
    /// both sides. For one process this does nothing.
    pub fn connect(flags: &Flags, pipeline: &str, stop: &Stop) -> Result<Joined> {
        let addresses = flags.addresses()?;
        let hello = Hello::new(flags, pipeline)?;
        if addresses.is_empty() {
            return Ok(Joined::Mesh(Mesh {
                process: 0,
                links: vec![None],
                addresses,
                launch: hello.launch,
                limits: Limits::default(),
            }));
        }
        let secret = flags.secret(&addresses)?;
        let listener = address::bind(&addresses[flags.process])?;
        listener.set_nonblocking(true).map_err(|error| {
            Error::internal("the listener cannot be made non-blocking").because(error)
        })?;
        let (events, arrivals) = unbounded();
        let hand = Hand {
            hello: Arc::new(hello),
            secret,
            limit: Limits::default().handshake,
            tls: flags.tls()?,
            done: Arc::new(AtomicBool::new(false)),
            events,
        };
        let gathering = Gathering {
            process: flags.process,
            report: flags.report,
            links: addresses.iter().map(|_| None).collect(),
            reasons: addresses.iter().map(|_| None).collect(),
            replaced: addresses.iter().map(|_| HashSet::new()).collect(),
            addresses,
            halves: VecDeque::new(),
            callers: VecDeque::new(),
            tickets: 0,
            warnings: Rate::default(),
            refused: None,
            differs: false,
            listener,
            arrivals,
            hand,
        };
        gathering.run(flags.peer_wait, stop)
    }

    /// The index of this process.
    pub fn process(&self) -> usize {
        self.process
    }

    /// How many processes the run has.
    pub fn processes(&self) -> usize {
        self.links.len()
    }

    /// Begins to show signs of life to the other processes, and to look for theirs.
    pub(crate) fn watch(&mut self, patience: Duration) -> Result<Watch> {
        let peers: Vec<_> =
            self.links.iter_mut().map(|link| link.as_mut().and_then(Link::take_watch)).collect();
        Watch::start(self.process, self.addresses.clone(), peers, patience)
    }
}

impl std::fmt::Debug for Mesh {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mesh")
            .field("process", &self.process)
            .field("processes", &self.links.len())
            .finish_non_exhaustive()
    }
}

/// One of two connections that belong together.
struct Half {
    pair: String,
    purpose: Purpose,
    stream: TcpStream,
}

/// A mesh that is not yet complete.
struct Gathering {
    process: usize,
    report: bool,
    addresses: Vec<String>,
    links: Vec<Option<Link>>,
    /// Why a process that is dialled has not answered yet.
    reasons: Vec<Option<String>>,
    /// Launches that a newer connection replaced.
    replaced: Vec<HashSet<String>>,
    /// Of those that called: connections whose second has not come yet.
    halves: VecDeque<Half>,
    callers: VecDeque<(u64, TcpStream)>,
    tickets: u64,
    warnings: Rate,
    /// Who was refused last, and why.
    refused: Option<String>,
    /// Whether the start ends since processes are not of one run.
    differs: bool,
    listener: TcpListener,
    arrivals: Receiver<Event>,
    hand: Hand,
}

impl Gathering {
    fn run(mut self, wait: Duration, stop: &Stop) -> Result<Joined> {
        let gathered = self.gather(wait, stop);
        if let Err(error) = &gathered
            && self.differs
        {
            self.refuse_all(error, stop);
        }
        gathered
    }

    /// Tells every process why nothing starts: each knows only those that it has met.
    fn refuse_all(&mut self, error: &Error, stop: &Stop) {
        let told = Message::Refused(error.into());
        for mut link in self.links.iter_mut().filter_map(Option::take) {
            // Whoever is still gathering finds the connection closed, and asks again.
            let _ = link.send(&told);
        }
        self.hand.done.store(true, Ordering::SeqCst);
        self.hand.done = Arc::default();
        // What was under way when the reason was found has not told it.
        (self.hand.events, self.arrivals) = unbounded();
        self.hand.hello = Arc::new(self.hand.hello.refusing(error.to_string()));
        let mut left: HashSet<usize> =
            (0..self.links.len()).filter(|process| *process != self.process).collect();
        let until = Instant::now() + TELLING;
        let dialled = (0..self.process).all(|process| self.dial(process).is_ok());
        while dialled && !left.is_empty() && Instant::now() < until && !stop.is_requested() {
            if self.accept().is_err() {
                return;
            }
            if let Ok(Event::Shaken { side, hello, .. }) = self.arrivals.recv_timeout(TURN) {
                self.forget(side);
                left.remove(&hello.process);
            }
        }
    }

    fn gather(&mut self, wait: Duration, stop: &Stop) -> Result<Joined> {
        let started = Instant::now();
        let (mut watched, mut reported) = (started, started);
        for process in 0..self.process {
            self.dial(process)?;
        }
        loop {
            self.accept()?;
            if let Ok(event) = self.arrivals.recv_timeout(TURN) {
                self.take(event)?;
                while let Ok(event) = self.arrivals.try_recv() {
                    self.take(event)?;
                }
            }
            let complete = self.missing().next().is_none();
            if complete || watched.elapsed() >= WATCH {
                watched = Instant::now();
                self.drop_the_dead()?;
            }
            if self.missing().next().is_none() {
                let links = std::mem::take(&mut self.links);
                let launch = self.hand.hello.launch.clone();
                tracing::info!(processes = links.len(), "all processes are connected");
                let (process, limits) = (self.process, Limits::default());
                let addresses = std::mem::take(&mut self.addresses);
                return Ok(Joined::Mesh(Mesh { process, links, addresses, launch, limits }));
            }
            if stop.is_requested() {
                return Ok(Joined::Stopped);
            }
            if started.elapsed() >= wait {
                return Err(self.gave_up(wait));
            }
            if reported.elapsed() >= REPORT {
                reported = Instant::now();
                for process in self.missing() {
                    tracing::info!("waiting for {}", self.describe(process));
                }
            }
        }
    }

    fn dial(&self, process: usize) -> Result<()> {
        let (hand, place) = (self.hand.clone(), self.addresses[process].clone());
        spawn(format!("dial-{process}"), move || hand.dial(process, place))
    }

    fn accept(&mut self) -> Result<()> {
        // Bounded, so that a flood of callers does not keep the loop from its other duties.
        for _ in 0..CALLERS {
            let (stream, from) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => {
                    // The caller went away again, or file descriptors ran out for the moment.
                    self.warn(&format!("a caller could not be accepted: {error}"));
                    return Ok(());
                }
            };
            // Not inherited on Linux, but on other systems.
            let Ok(watch) = stream.set_nonblocking(false).and_then(|()| stream.try_clone()) else {
                continue;
            };
            while self.callers.len() >= CALLERS {
                if let Some((_, oldest)) = self.callers.pop_front() {
                    let _ = oldest.shutdown(Shutdown::Both);
                }
            }
            self.tickets += 1;
            let ticket = self.tickets;
            self.callers.push_back((ticket, watch));
            let hand = self.hand.clone();
            spawn("handshake".to_owned(), move || hand.answer(ticket, from, stream))?;
        }
        Ok(())
    }

    fn take(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Shaken { side, hello, stream, watch } => {
                self.forget(side);
                self.join(side, &hello, stream, watch)
            }
            Event::Absent { process, reason } => {
                self.reasons[process] = Some(reason);
                Ok(())
            }
            Event::Stranger { side, reason } => {
                self.forget(side);
                match side {
                    Side::Dialled { process, at } => {
                        self.warn(&format!(
                            "process {process} at {at} did not shake hands: {reason}"
                        ));
                        self.reasons[process] = Some(reason);
                    }
                    Side::Accepted { from, .. } => {
                        self.warn(&format!("refused {from}: {reason}"));
                        self.refused = Some(format!("{}: {reason}", from.ip()));
                    }
                }
                Ok(())
            }
        }
    }

    /// A process of the cluster is there; it must agree, and be the one that was meant.
    fn join(
        &mut self,
        side: Side,
        hello: &Hello,
        stream: TcpStream,
        watch: Option<TcpStream>,
    ) -> Result<()> {
        let (me, process) = (self.process, hello.process);
        let remote = match side {
            Side::Dialled { at, .. } => at,
            Side::Accepted { from, .. } => from,
        };
        let differs = || self.hand.hello.disagreement(hello);
        if let Some(sentence) = hello.refusal.clone().or_else(differs) {
            self.differs = true;
            return Err(Error::config(sentence));
        }
        if let Side::Dialled { process: meant, .. } = side
            && process != meant
        {
            let address = &self.addresses[meant];
            return Err(Error::config(format!(
                "`{address}` should be process {meant}, but process {process} answers there; give all processes the same hostfile and each its own -p"
            )));
        }
        let dialled = matches!(side, Side::Dialled { .. });
        if process >= self.links.len() || (!dialled && process <= me) {
            return Err(Error::config(format!(
                "{remote} joined process {me} as process {process}, which does not dial it; give all processes the same hostfile and each its own -p"
            )));
        }
        if self.replaced[process].contains(&hello.launch) {
            return Err(two(process, remote));
        }
        let both = match watch {
            Some(watch) => Some((stream, watch)),
            None => self.complete(hello, stream),
        };
        let Some((stream, watch)) = both else { return Ok(()) };
        let address = self.addresses[process].clone();
        let link = Link::new(process, address, hello.launch.clone(), stream);
        let link = match link.and_then(|link| link.with_watch(watch)) {
            Ok(link) => link,
            Err(error) => {
                self.warn(&format!("process {process} at {remote} went away: {error}"));
                return if dialled { self.dial(process) } else { Ok(()) };
            }
        };
        if let Some(older) = self.links[process].replace(link)
            && older.launch != hello.launch
        {
            tracing::warn!(
                "process {process} came again from {remote}; its newer connection counts"
            );
            self.replaced[process].insert(older.launch);
        }
        self.reasons[process] = None;
        if self.report {
            tracing::info!("connected to process {process} at {remote}");
        } else {
            tracing::debug!("connected to process {process} at {remote}");
        }
        Ok(())
    }

    /// Both connections of a pair, data first, once the second of them is there.
    fn complete(&mut self, hello: &Hello, stream: TcpStream) -> Option<(TcpStream, TcpStream)> {
        let (pair, purpose) = (hello.pair.clone(), hello.purpose);
        let other = |half: &Half| half.pair == pair && half.purpose != purpose;
        let Some(at) = self.halves.iter().position(other) else {
            // Left behind by attempts that failed half way; those of the cluster alone come this far.
            if self.halves.len() > 4 * self.links.len() {
                self.halves.pop_front();
            }
            self.halves.push_back(Half { pair, purpose, stream });
            return None;
        };
        let other = self.halves.remove(at)?.stream;
        Some(match purpose {
            Purpose::Data => (stream, other),
            Purpose::Watch => (other, stream),
        })
    }

    fn drop_the_dead(&mut self) -> Result<()> {
        for process in 0..self.links.len() {
            if self.links[process].as_ref().is_some_and(|link| !link.is_alive()) {
                self.links[process] = None;
                self.reasons[process] = Some("it went away during the start".to_owned());
                tracing::warn!(
                    "process {process} went away during the start; waiting for it again"
                );
                if process < self.process {
                    self.dial(process)?;
                }
            }
        }
        Ok(())
    }

    fn missing(&self) -> impl Iterator<Item = usize> {
        (0..self.links.len())
            .filter(|process| *process != self.process && self.links[*process].is_none())
    }

    fn describe(&self, process: usize) -> String {
        let address = &self.addresses[process];
        match &self.reasons[process] {
            Some(reason) => format!("process {process} at {address} ({reason})"),
            None => format!("process {process} at {address}"),
        }
    }

    fn gave_up(&self, wait: Duration) -> Error {
        let missing: Vec<_> = self.missing().map(|process| self.describe(process)).collect();
        let missing = missing.join(" and ");
        let refused = self.refused.as_ref().map(|who| format!(" (refused was {who})"));
        let refused = refused.unwrap_or_default();
        let sentence = format!(
            "{missing} did not join within {wait:?}{refused}; start all processes with the same flags, or wait longer by --peer-wait"
        );
        Error::new(Kind::Peer, sentence).retryable(true)
    }

    fn forget(&mut self, side: Side) {
        if let Side::Accepted { ticket, .. } = side {
            self.callers.retain(|(other, _)| *other != ticket);
        }
    }

    fn warn(&mut self, sentence: &str) {
        if let Some(held) = self.warnings.pass(Instant::now()) {
            tracing::warn!(held_back = held, "{sentence}");
        }
    }
}

impl Drop for Gathering {
    /// Ends the handshakes that are still under way.
    fn drop(&mut self) {
        self.hand.done.store(true, Ordering::SeqCst);
        for (_, stream) in &self.callers {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn two(process: usize, remote: SocketAddr) -> Error {
    Error::config(format!(
        "two processes run as process {process}, one of them at {remote}; give each its own -p"
    ))
}

fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> Result<()> {
    let spawned = std::thread::Builder::new().name(format!("tidegate:{name}")).spawn(body);
    spawned
        .map(drop)
        .map_err(|error| Error::internal("the system gives no more threads").because(error))
}
