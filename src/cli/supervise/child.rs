//! One process of the run, as a child.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child as Process, ChildStdin, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::leash::{NOW, STOP, VARIABLE};
use crate::error::{Error, Result};

/// How long what a child said last may take to be passed on.
const WORDS: Duration = Duration::from_secs(1);
/// How long one may take to end where the supervisor itself fails.
const END: Duration = Duration::from_secs(5);

/// What a child is told.
#[derive(Clone, Copy)]
pub(super) enum Word {
    /// End in good order.
    Stop,
    /// End at once.
    Now,
}

pub(super) struct Child {
    process: usize,
    child: Process,
    /// Held open: its end is the end of the child.
    leash: Option<ChildStdin>,
    ended: bool,
    /// They pass on what the child says.
    pipes: Vec<JoinHandle<()>>,
}

impl Child {
    /// Starts `process`, which is the `place`-th of this host.
    pub fn start(process: usize, place: usize, labelled: bool) -> Result<Self> {
        let cannot = |error: io::Error| {
            Error::internal(format!("process {process} cannot be started ({error})")).because(error)
        };
        let mut args = std::env::args_os();
        let called = args.next();
        let mut command = Command::new(std::env::current_exe().map_err(cannot)?);
        if let Some(called) = called {
            std::os::unix::process::CommandExt::arg0(&mut command, called);
        }
        command.args(args).env(VARIABLE, format!("{process} {place}"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(cannot)?;
        let label = if labelled { format!("[{process}] ") } else { String::new() };
        let leash = child.stdin.take();
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let mut pipes = Vec::new();
        if let Some(out) = out {
            pipes.push(pass_on(out, io::stdout, label.clone()).map_err(cannot)?);
        }
        if let Some(err) = err {
            pipes.push(pass_on(err, io::stderr, label).map_err(cannot)?);
        }
        tracing::debug!(process, pid = child.id(), "started");
        Ok(Child { process, child, leash, ended: false, pipes })
    }

    /// Its exit code, once: when it has ended. A signal's number is added to 128, as shells do.
    pub fn ended(&mut self) -> Option<u8> {
        if self.ended {
            return None;
        }
        let status = self.child.try_wait().ok().flatten()?;
        self.ended = true;
        // What it said last comes before what is said of its end.
        // Where nobody reads it, that is not waited for.
        let until = Instant::now() + WORDS;
        while Instant::now() < until && !self.pipes.iter().all(JoinHandle::is_finished) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1);
        let process = self.process;
        match status.signal() {
            None => tracing::info!("process {process} ended with exit code {code}"),
            Some(signal) => tracing::warn!("process {process} was ended by signal {signal}"),
        }
        Some(u8::try_from(code).unwrap_or(1))
    }

    pub fn tell(&mut self, word: Word) {
        let line = match word {
            Word::Stop => STOP,
            Word::Now => NOW,
        };
        if let Some(leash) = &mut self.leash {
            // One that has ended hears nothing.
            let _ = writeln!(leash, "{line}").and_then(|()| leash.flush());
        }
    }

    pub fn kill(&mut self) {
        if !self.ended {
            tracing::warn!("process {} does not end; killed", self.process);
            let _ = self.child.kill();
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Where the supervisor itself fails.
        drop(self.leash.take());
        let until = Instant::now() + END;
        while self.ended().is_none() && !self.ended {
            if Instant::now() >= until {
                let _ = self.child.kill().and_then(|()| self.child.wait());
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Copies lines as they are, each whole and behind `label`.
fn pass_on<W: Write + 'static>(
    from: impl Read + Send + 'static,
    to: fn() -> W,
    label: String,
) -> io::Result<JoinHandle<()>> {
    let copy = move || {
        let mut lines = BufReader::new(from);
        let mut line = label.clone().into_bytes();
        while let Ok(read) = lines.read_until(b'\n', &mut line) {
            if read == 0 {
                break;
            }
            // Read on also where they cannot be written any more: the child must not end of that.
            let _ = to().write_all(&line).and_then(|()| to().flush());
            line.truncate(label.len());
        }
    };
    std::thread::Builder::new().name("tidegate:pass-on".into()).spawn(copy)
}
