//! What the processes of a run tell each other beside timely: that they live, and why they end.
//!
//! Timely says nothing of a process that was frozen or cut off, and of one that died only that a socket
//! broke. So each two processes have a second connection. A thread of its own says once a second that
//! this process lives, whatever its workers do: a worker in a long closure is not dead. Another thread
//! for each peer listens. The first loss or fault that it hears of ends the run here too, with a sentence
//! that names the process, and is passed on, so that all processes say the same.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Kind, Result};
use crate::run::Abort;

/// How often a process says that it lives.
const BEAT: Duration = Duration::from_secs(1);
/// How long one that ends waits for the others to have heard why.
const PARTING: Duration = Duration::from_secs(1);
/// Longest word in bytes.
const LONGEST: usize = 64 << 10;

/// How many runs of this program watch others at the moment.
static WATCHING: AtomicUsize = AtomicUsize::new(0);
/// Where a panic finds them.
static WATCHES: Mutex<Vec<Arc<Shared>>> = Mutex::new(Vec::new());

/// One word on the wire: a length of four bytes, then JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Word {
    /// The process lives.
    Beat,
    /// It has ended in good order; its silence from now on means nothing.
    Done,
    /// Why the run ends.
    Ended(Ending),
}

/// What ended the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Ending {
    /// The process that it began with.
    process: usize,
    /// Whether another run took over.
    fenced: bool,
    /// What is said of it, after its index and its address.
    what: String,
}

/// This process among the others; ends with the run.
pub(crate) struct Watch {
    shared: Arc<Shared>,
    /// Its end ends the beats.
    beats: Option<Sender<()>>,
}

struct Shared {
    process: usize,
    addresses: Vec<String>,
    /// The writing halves, without those of processes that can be told nothing more.
    peers: Vec<Mutex<Option<TcpStream>>>,
    patience: Duration,
    state: Mutex<State>,
    /// A peer left.
    left: Condvar,
}

#[derive(Default)]
struct State {
    /// What a loss ends, once the run has begun.
    abort: Option<Abort>,
    /// What ends the run.
    ending: Option<Ending>,
    /// This process has ended, well or not: others may come and go.
    over: bool,
    /// Peers that still have their connection.
    listening: usize,
}

impl Watch {
    pub(crate) fn start(
        process: usize,
        addresses: Vec<String>,
        peers: Vec<Option<TcpStream>>,
        patience: Duration,
    ) -> Result<Self> {
        let cannot = |error: io::Error| {
            Error::internal("the other processes cannot be watched").because(error)
        };
        let mut ears = Vec::new();
        for (peer, stream) in peers.iter().enumerate() {
            if let Some(stream) = stream {
                ears.push((peer, stream.try_clone().map_err(cannot)?));
            }
        }
        let shared = Arc::new(Shared {
            process,
            addresses,
            peers: peers.into_iter().map(Mutex::new).collect(),
            patience,
            state: Mutex::new(State { listening: ears.len(), ..State::default() }),
            left: Condvar::new(),
        });
        let (beats, over) = bounded::<()>(0);
        if !ears.is_empty() {
            let own = Arc::clone(&shared);
            spawn("beat", move || {
                while over.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout) {
                    own.tell(&Word::Beat);
                }
            })
            .map_err(cannot)?;
            lock(&WATCHES).push(Arc::clone(&shared));
            WATCHING.fetch_add(1, Ordering::SeqCst);
        }
        let watch = Watch { shared: Arc::clone(&shared), beats: Some(beats) };
        for (peer, stream) in ears {
            let own = Arc::clone(&shared);
            spawn(&format!("watch-{peer}"), move || {
                own.listen(peer, &stream);
                lock(&own.state).listening -= 1;
                own.left.notify_all();
            })
            .map_err(cannot)?;
        }
        Ok(watch)
    }

    /// The run has begun: from now on the loss of a process ends it, also one of a moment ago.
    pub(crate) fn guard(&self, abort: &Abort) {
        let mut state = lock(&self.shared.state);
        state.abort = Some(abort.clone());
        if let Some(ending) = &state.ending {
            abort.raise(self.shared.error(ending));
        }
    }

    /// Tells the others how the run ended here, and waits a moment until they know.
    pub(crate) fn close<T>(mut self, ended: &Result<T>) {
        drop(self.beats.take());
        match ended {
            Ok(_) => self.shared.done(),
            Err(error) => self.shared.failed(error.kind(), &error.to_string()),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.beats.take());
        lock(&self.shared.state).over = true;
        self.shared.hang_up(Shutdown::Both);
        let mut watches = lock(&WATCHES);
        if let Some(at) = watches.iter().position(|other| Arc::ptr_eq(other, &self.shared)) {
            watches.swap_remove(at);
            WATCHING.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Whether losses of processes are found and named by a watch at the moment.
pub(crate) fn is_watching() -> bool {
    WATCHING.load(Ordering::SeqCst) > 0
}

/// For a panic that ends the program: tells the other processes why, if that can be done at once.
pub(crate) fn last_words(kind: Kind, sentence: &str) {
    if let Ok(watches) = WATCHES.try_lock() {
        for shared in watches.iter() {
            shared.failed(kind, sentence);
        }
    }
}

impl Shared {
    /// Hears what a peer says until it leaves or is lost.
    fn listen(&self, peer: usize, mut stream: &TcpStream) {
        let mut heard = Instant::now();
        let mut done = false;
        let mut held = Vec::new();
        let mut bytes = [0; 4096];
        loop {
            // A frozen process that goes on again first reads what came meanwhile.
            let left = self.patience.saturating_sub(heard.elapsed()).max(Duration::from_millis(10));
            let read = stream.set_read_timeout(Some(left)).and_then(|()| stream.read(&mut bytes));
            match read {
                Ok(read) if read > 0 => {
                    heard = Instant::now();
                    held.extend_from_slice(&bytes[..read]);
                    while let Some(word) = next(&mut held) {
                        match word {
                            Ok(Word::Beat) => {}
                            Ok(Word::Done) => done = true,
                            Ok(Word::Ended(ending)) => self.ended(ending),
                            Err(()) => {
                                return self.lose(peer, "sent a word that cannot be read".into());
                            }
                        }
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_late(&error) => {
                    let patience = self.patience;
                    if done || !self.is_begun() {
                        // Before the run has begun, the start has limits of its own.
                        heard = Instant::now();
                    } else if heard.elapsed() >= patience {
                        return self.lose(peer, format!("showed no sign of life for {patience:?}"));
                    }
                }
                // Its end, or a reset.
                _ => {
                    if !done {
                        self.lose(peer, "was lost".into());
                    }
                    return;
                }
            }
        }
    }

    fn is_begun(&self) -> bool {
        lock(&self.state).abort.is_some()
    }

    fn lose(&self, process: usize, what: String) {
        let what = format!("{what}; restart all of them together");
        self.ended(Ending { process, fenced: false, what });
    }

    /// Something ends the run: the first that does is raised here, and passed on.
    fn ended(&self, ending: Ending) {
        {
            let mut state = lock(&self.state);
            if state.over || state.ending.is_some() {
                return;
            }
            state.ending = Some(ending.clone());
            match &state.abort {
                Some(abort) => abort.raise(self.error(&ending)),
                None => return, // the start has words of its own
            }
        }
        self.tell(&Word::Ended(ending.clone()));
        let error = self.error(&ending);
        super::panic::end_at_last(error.kind(), error.to_string());
    }

    /// What this process says of an ending.
    fn error(&self, ending: &Ending) -> Error {
        let Ending { process, fenced, what } = ending;
        let kind = if *fenced { Kind::Fenced } else { Kind::Peer };
        let address = self.addresses.get(*process).map_or("?", String::as_str);
        Error::new(kind, format!("process {process} at {address} {what}")).retryable(!fenced)
    }

    fn done(&self) {
        lock(&self.state).over = true;
        self.tell(&Word::Done);
        self.part();
    }

    fn failed(&self, kind: Kind, sentence: &str) {
        let known = {
            let mut state = lock(&self.state);
            state.over = true;
            state.ending.is_some()
        };
        // What others know already, or what was passed on when it was heard, is not said again; that
        // another run took over is worth more than a loss.
        if !known || kind == Kind::Fenced {
            let what = match kind {
                // It may hold what the record held, which is for this process's log alone.
                Kind::Refused => "ended: a record was refused there, and that stops the run".into(),
                _ => format!("ended: {}", cut(sentence)),
            };
            let process = self.process;
            self.tell(&Word::Ended(Ending { process, fenced: kind == Kind::Fenced, what }));
        }
        self.part();
    }

    /// Says a word to all that can still be told something.
    fn tell(&self, word: &Word) {
        let Ok(body) = serde_json::to_vec(word) else { return };
        let mut frame = (body.len() as u32).to_be_bytes().to_vec();
        frame.extend(body);
        for peer in &self.peers {
            let mut peer = lock(peer);
            if let Some(stream) = &mut *peer
                && stream.write_all(&frame).is_err()
            {
                // Perhaps half a word; whether the peer is lost, its ear finds out.
                *peer = None;
            }
        }
    }

    /// Leaves, once the others have heard the last word: to close with unread bytes could lose it.
    fn part(&self) {
        self.hang_up(Shutdown::Write);
        let deadline = Instant::now() + PARTING;
        let mut state = lock(&self.state);
        while state.listening > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.left.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn hang_up(&self, how: Shutdown) {
        for peer in &self.peers {
            if let Some(stream) = &*lock(peer) {
                let _ = stream.shutdown(how);
            }
        }
    }
}

/// Takes the next whole word off `held`; an error where it is none.
fn next(held: &mut Vec<u8>) -> Option<Result<Word, ()>> {
    let length = u32::from_be_bytes(*held.first_chunk::<4>()?) as usize;
    if length > LONGEST {
        return Some(Err(()));
    }
    let word = serde_json::from_slice(held.get(4..4 + length)?).map_err(drop);
    held.drain(..4 + length);
    Some(word)
}

/// The beginning of a sentence that would make a word too long.
fn cut(sentence: &str) -> String {
    sentence.chars().take(4000).collect()
}

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(format!("tidegate:{name}")).spawn(body).map(drop)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (one, listener.accept().unwrap().0)
    }

    fn addresses() -> Vec<String> {
        ["a:1", "b:1", "c:1"].map(str::to_owned).to_vec()
    }

    /// Three processes that watch each other.
    fn three() -> [Watch; 3] {
        let ((a, b), (c, d), (e, f)) = (pair(), pair(), pair());
        let patience = Duration::from_secs(3);
        let watch = |process, peers| Watch::start(process, addresses(), peers, patience).unwrap();
        [
            watch(0, vec![None, Some(a), Some(c)]),
            watch(1, vec![Some(b), None, Some(e)]),
            watch(2, vec![Some(d), Some(f), None]),
        ]
    }

    fn raised(abort: &Abort) -> Error {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !abort.is_raised() {
            assert!(Instant::now() < deadline, "nothing was raised");
            std::thread::sleep(Duration::from_millis(5));
        }
        abort.take().unwrap()
    }

    fn guarded(watches: &[Watch; 3]) -> [Abort; 3] {
        let aborts: [Abort; 3] = Default::default();
        watches.iter().zip(&aborts).for_each(|(watch, abort)| watch.guard(abort));
        aborts
    }

    #[test]
    fn all_say_why_one_ended() {
        let watches = three();
        let aborts = guarded(&watches);
        let [zero, one, two] = watches;
        one.close(&Err::<(), _>(Error::sink("table `x` is gone")));
        for abort in [&aborts[0], &aborts[2]] {
            let error = raised(abort);
            assert_eq!(error.kind(), Kind::Peer);
            assert_eq!(error.to_string(), "process 1 at b:1 ended: table `x` is gone");
        }
        drop((zero, two));
    }

    #[test]
    fn that_another_run_took_over_is_so_for_all() {
        let watches = three();
        let aborts = guarded(&watches);
        let [zero, one, two] = watches;
        zero.close(&Err::<(), _>(Error::new(Kind::Fenced, "taken over")));
        for abort in &aborts[1..] {
            assert_eq!(raised(abort).kind(), Kind::Fenced);
        }
        drop((one, two));
    }

    #[test]
    fn a_refused_record_is_for_its_own_log() {
        let watches = three();
        let aborts = guarded(&watches);
        let [zero, one, two] = watches;
        one.close(&Err::<(), _>(Error::new(Kind::Refused, "`t[0]@1`: {\"card\":\"4111\"}")));
        assert!(!raised(&aborts[0]).to_string().contains("4111"));
        drop((zero, two));
    }

    #[test]
    fn a_process_that_vanishes_is_named_by_all() {
        let watches = three();
        let aborts = guarded(&watches);
        let [zero, one, two] = watches;
        drop(two);
        for abort in &aborts[..2] {
            let sentence = "process 2 at c:1 was lost; restart all of them together";
            assert_eq!(raised(abort).to_string(), sentence);
        }
        drop((zero, one));
    }

    #[test]
    fn a_good_end_is_no_loss() {
        let watches = three();
        let aborts = guarded(&watches);
        std::thread::scope(|scope| {
            for watch in watches {
                scope.spawn(move || watch.close(&Ok(())));
            }
        });
        assert!(aborts.iter().all(|abort| !abort.is_raised()));
    }

    #[test]
    fn a_silent_process_is_named_and_a_beating_one_is_not() {
        // Process 2 accepts and says nothing, as one that was frozen.
        let ((a, b), (c, silent)) = (pair(), pair());
        let patience = Duration::from_secs(3);
        let zero = Watch::start(0, addresses(), vec![None, Some(a), Some(c)], patience).unwrap();
        let one = Watch::start(1, addresses(), vec![Some(b), None, None], patience).unwrap();
        let (abort, other) = (Abort::default(), Abort::default());
        zero.guard(&abort);
        one.guard(&other);
        let started = Instant::now();
        let sentence =
            "process 2 at c:1 showed no sign of life for 3s; restart all of them together";
        assert_eq!(raised(&abort).to_string(), sentence);
        assert!(started.elapsed() > Duration::from_secs(2), "it was given its time");
        assert_eq!(raised(&other).to_string(), sentence);
        drop((one, silent));
    }

    #[test]
    fn a_loss_during_the_start_counts_once_the_run_begins() {
        let ((a, b), abort) = (pair(), Abort::default());
        let zero =
            Watch::start(0, addresses(), vec![None, Some(a)], Duration::from_secs(3)).unwrap();
        drop(b);
        std::thread::sleep(Duration::from_millis(50));
        assert!(!abort.is_raised());
        zero.guard(&abort);
        assert_eq!(raised(&abort).kind(), Kind::Peer);
    }

    #[test]
    fn a_word_may_come_in_pieces_and_a_huge_one_is_none() {
        let body = serde_json::to_vec(&Word::Beat).unwrap();
        let mut held = (body.len() as u32).to_be_bytes().to_vec();
        assert_eq!(next(&mut held), None);
        held.extend(&body);
        assert_eq!(next(&mut held), Some(Ok(Word::Beat)));
        assert!(held.is_empty());
        held.extend(u32::MAX.to_be_bytes());
        assert_eq!(next(&mut held), Some(Err(())));
    }
}
