//! Programs of others that tests use where they are installed.

use std::io::Write;
use std::process::{Command, Stdio};

/// The first of `programs` that there is; says so where there is none.
#[allow(clippy::print_stderr, reason = "whoever reads the tests' output should know")]
pub fn installed<'p>(programs: &[&'p str]) -> Option<&'p str> {
    let runs = |program: &&&str| {
        let version = Command::new(program).arg("--version").stderr(Stdio::null()).output();
        version.is_ok_and(|done| done.status.success())
    };
    let found = programs.iter().find(runs).copied();
    if found.is_none() {
        eprintln!("skipped: none of {programs:?} is installed");
    }
    found
}

/// Has promtool check the form of a scrape, where there is one (Debian's `prometheus`).
pub fn check_scrape(text: &str) {
    let Some(promtool) = installed(&["promtool"]) else { return };
    let mut check = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool starts");
    let written = check.stdin.take().expect("a pipe").write_all(text.as_bytes());
    written.expect("promtool reads");
    let done = check.wait_with_output().expect("promtool ends");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success() && said.is_empty(), "{said}");
}
