//! Processes whose time and memory are counted.

use std::io::Read;
use std::process::{Child as Handle, Command, Stdio};
use std::time::{Duration, Instant};

/// What a process came to.
#[derive(Clone, Debug, Default)]
pub struct Done {
    /// From its start to its end, in seconds.
    pub wall: f64,
    /// How long its work took without what it prepared, as it says, in seconds.
    pub work: f64,
    /// Its user and system time, in seconds.
    pub cpu: f64,
    /// Its greatest resident memory, in MiB.
    pub peak: f64,
    /// How many messages or rows it counted.
    pub count: u64,
}

/// This program as a child that is running.
pub struct Running {
    handle: Handle,
    began: Instant,
    what: String,
}

impl Running {
    /// Starts this program as `child` with `arguments`.
    pub fn start(arguments: &[String]) -> Self {
        let program = std::env::current_exe().expect("this program has a path");
        let mut command = Command::new(program);
        command.arg("child").args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
        let began = Instant::now();
        let handle = command.spawn().expect("the program starts");
        Running { handle, began, what: arguments.join(" ") }
    }

    /// Asks it to end.
    pub fn terminate(&self) {
        signal(self.handle.id(), "-TERM");
    }

    /// Its processor time so far, in seconds.
    pub fn cpu(&self) -> f64 {
        cpu_of(&self.handle.id().to_string())
    }

    /// Its end.
    pub fn wait(mut self, limit: Duration) -> Done {
        let limit = self.began + limit;
        let status = loop {
            match self.handle.try_wait().expect("it is ours") {
                Some(status) => break status,
                None if Instant::now() < limit => std::thread::sleep(Duration::from_millis(1)),
                None => {
                    let _ = self.handle.kill();
                    let _ = self.handle.wait();
                    panic!("`{}` has not ended in time", self.what);
                }
            }
        };
        let wall = self.began.elapsed().as_secs_f64();
        let mut text = String::new();
        let mut out = self.handle.stdout.take().expect("it is piped");
        out.read_to_string(&mut text).expect("it says something");
        assert!(status.success(), "`{}` ended with {status}\n{text}", self.what);
        let line = text.lines().last().unwrap_or_default();
        let figure = |name: &str| figure(line, name);
        let (work, cpu, peak) = (figure("work"), figure("cpu"), figure("peak"));
        Done { wall, work, cpu, peak, count: figure("count") as u64 }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.handle.try_wait(), Ok(None)) {
            let _ = self.handle.kill();
            let _ = self.handle.wait();
        }
    }
}

/// The value of `name=value` in a line.
pub fn figure(line: &str, name: &str) -> f64 {
    let word = line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    word.and_then(|value| value.parse().ok())
        .unwrap_or_else(|| panic!("`{line}` has no number `{name}`"))
}

/// Runs this program as `child` with `arguments` to its end.
pub fn run(arguments: &[String]) -> Done {
    Running::start(arguments).wait(Duration::from_secs(600))
}

/// Words, as arguments.
pub fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Sends a signal to a process of ours.
pub fn signal(process: u32, name: &str) {
    let sent = Command::new("kill").args([name, &process.to_string()]).status();
    assert!(sent.expect("kill is there").success(), "kill {name} {process}");
}

/// The user and system time of a process and all its threads, in seconds.
fn cpu_of(process: &str) -> f64 {
    let path = format!("/proc/{process}/stat");
    let stat = std::fs::read_to_string(&path).expect("Linux tells");
    // Behind the name, which may have spaces: fields 14 and 15 of all, in hundredths of a second.
    let (_, rest) = stat.rsplit_once(") ").expect("a name in parentheses");
    let ticks = |index: usize| -> f64 {
        rest.split(' ').nth(index).and_then(|field| field.parse().ok()).expect("a number")
    };
    (ticks(11) + ticks(12)) / 100.0
}

/// What a child says at its end: what it counted, how long it worked, its time and its memory.
pub fn confess(count: u64, work: Duration) {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak: f64 = peak
        .and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse().ok())
        .expect("a peak in kB");
    let (work, cpu, peak) = (work.as_secs_f64(), cpu_of("self"), peak / 1024.0);
    println!("count={count} work={work:.4} cpu={cpu:.2} peak={peak:.1}");
}
