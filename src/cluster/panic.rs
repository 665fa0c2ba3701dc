//! What a panic means to the program: its end, unless it came from a user's closure.
//!
//! Timely lets the other threads of a process run on for ever when one panics, with a frontier that
//! never moves again. So the program ends at the first panic, before anything unwinds. A panic of
//! timely's communication threads is how timely says that a socket broke: another process is lost. Which
//! one, and why, timely does not say; where the processes watch each other, they do, and end the run.

use std::io::Write;
use std::panic::PanicHookInfo;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::cluster::watch;
use crate::error::Kind;
use crate::unwind;

/// Whether the program is ending; the first reason decides the exit code.
static ENDING: AtomicBool = AtomicBool::new(false);
/// Whether this program ends at panics.
static INSTALLED: AtomicBool = AtomicBool::new(false);
/// How long a run that lost a process may take to end in its own way.
const AT_LAST: Duration = Duration::from_secs(15);
/// How long it may take to tell the other processes of a panic, and to end.
const LAST_WORDS: Duration = Duration::from_secs(4);

/// Makes any panic outside users' closures end the program, with one line on standard error.
///
/// The exit code is that of [`Kind::Peer`] for a panic inside timely's communication, else that of
/// [`Kind::Internal`]. For the program's `main`; a library must not do this to its user.
pub fn install_panic_hook() {
    INSTALLED.store(true, Ordering::SeqCst);
    std::panic::set_hook(Box::new(|info| {
        if unwind::is_expected() {
            return;
        }
        let (kind, sentence) = verdict(info);
        if kind == Kind::Peer && watch::is_watching() {
            // Not by this thread, which must not unwind either: whoever watches knows more, and ends the
            // run. Nothing is written meanwhile that the lost process had a part in.
            std::thread::sleep(AT_LAST);
        } else {
            // The thread that panicked may hold what they need.
            abort_after(LAST_WORDS);
            watch::last_words(kind, &sentence);
        }
        end(kind.exit_code(), Some(&sentence));
    }));
}

/// Aborts the program, should it not have ended by then.
fn abort_after(limit: Duration) {
    let _ = std::thread::Builder::new().name("tidegate:end".to_owned()).spawn(move || {
        std::thread::sleep(limit);
        std::process::abort();
    });
}

/// Ends the program, with this code unless it is already ending with another.
///
/// Exit handlers of C libraries run while other threads live; should one of them hang, the program
/// aborts after two seconds. A panic from now on changes nothing.
pub fn exit(code: u8) -> ! {
    end(code, None)
}

/// Ends the program should the run not have ended by itself after a while: what it waits for, a database
/// perhaps, may be cut off as well.
pub(crate) fn end_at_last(kind: Kind, sentence: String) {
    if INSTALLED.load(Ordering::SeqCst) {
        let _ = std::thread::Builder::new().name("tidegate:at-last".to_owned()).spawn(move || {
            std::thread::sleep(AT_LAST);
            end(kind.exit_code(), Some(&sentence));
        });
    }
}

fn end(code: u8, sentence: Option<&str>) -> ! {
    if ENDING.swap(true, Ordering::SeqCst) {
        loop {
            std::thread::park();
        }
    }
    // Started first: standard error may be a pipe that nobody reads.
    abort_after(Duration::from_secs(2));
    if let Some(sentence) = sentence {
        // Not `eprintln!`, which panics where standard error is closed.
        let _ = writeln!(std::io::stderr(), "error: {sentence}");
    }
    std::process::exit(i32::from(code))
}

fn verdict(info: &PanicHookInfo<'_>) -> (Kind, String) {
    let location = info.location();
    let file = location.map_or("", |location| location.file());
    if file.contains("timely_communication") {
        let sentence = "lost a process of the cluster; restart all of them together";
        return (Kind::Peer, sentence.to_owned());
    }
    let mut sentence =
        unwind::message(info.payload()).split_whitespace().collect::<Vec<_>>().join(" ");
    if let (Some(location), Some(name)) = (location, Path::new(file).file_name()) {
        let (name, line) = (name.to_string_lossy(), location.line());
        sentence.push_str(&format!(" (internal error at {name}:{line})"));
    }
    (Kind::Internal, sentence)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Output};

    use super::*;
    use crate::unwind::catch;

    const CASE: &str = "TIDEGATE_TEST_PANIC";

    /// Runs `child` below in a process of its own.
    fn run(case: &str) -> Output {
        let name = concat!(module_path!(), "::child").split_once("::").unwrap().1;
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--ignored", "--nocapture"])
            .env(CASE, case)
            .env("RUST_BACKTRACE", "1")
            .output()
            .unwrap()
    }

    #[test]
    #[ignore = "the child of the tests below"]
    fn child() {
        let Ok(case) = std::env::var(CASE) else { return };
        install_panic_hook();
        let thread = std::thread::spawn(move || match case.as_str() {
            "plain" => panic!("the door\n  is open"),
            "caught" => assert!(catch(|| panic!("a user's mistake")).is_err()),
            "after" => {
                let _ = catch(|| panic!("a user's mistake"));
                panic!("ours");
            }
            "peer" => lose_a_peer(),
            "exit" => exit(6),
            other => unreachable!("{other}"),
        });
        let _ = thread.join();
    }

    fn lose_a_peer() {
        use timely::communication::Hooks;
        use timely::communication::allocator::zero_copy::initialize::initialize_networking_from_sockets;
        use timely::communication::allocator::{AllocatorBuilder, ProcessBuilder};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let here = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let hooks = Hooks::default();
        let local = ProcessBuilder::new_typed_vector(1, hooks.refill.clone(), None);
        let sockets = vec![None, Some(here)];
        let (tcp, guard) = initialize_networking_from_sockets(local, sockets, 0, 1, hooks).unwrap();
        let builders = tcp.into_iter().map(AllocatorBuilder::Tcp).collect();
        let config = timely::WorkerConfig::default();
        let guards = timely::execute::execute_from(builders, Box::new(guard), config, |worker| {
            worker.dataflow::<u64, _, _>(|scope| {
                use timely::dataflow::operators::{Exchange, ToStream};
                (0..10u64).to_stream(scope).container::<Vec<_>>().exchange(|x| *x);
            });
        });
        drop(listener);
        drop(guards.unwrap().join());
    }

    fn stderr(output: &Output) -> String {
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    #[test]
    fn a_panic_ends_the_program_in_one_line() {
        let output = run("plain");
        assert_eq!(output.status.code(), Some(1));
        let text = stderr(&output);
        let line = text.strip_prefix("error: the door is open (internal error at panic.rs:");
        assert!(line.is_some_and(|rest| rest.ends_with(")\n")), "{text}");
        assert_eq!(text.lines().count(), 1);
    }

    #[test]
    fn a_panic_of_a_user_is_silent_and_survived() {
        let output = run("caught");
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_eq!(stderr(&output), "");
        let output = run("after");
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).starts_with("error: ours ("), "{}", stderr(&output));
    }

    #[test]
    fn a_lost_process_has_its_own_exit_code() {
        let output = run("peer");
        assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
        let sentence = "error: lost a process of the cluster; restart all of them together\n";
        assert_eq!(stderr(&output), sentence);
    }

    #[test]
    fn an_exit_from_any_thread_keeps_its_code() {
        assert_eq!(run("exit").status.code(), Some(6));
    }
}
