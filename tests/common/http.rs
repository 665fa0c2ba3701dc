//! Asks a run for what it shows.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::eventually;

/// What a run answers.
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

/// Asks once; `None` where nobody answers.
pub fn ask(address: &str, method: &str, path: &str, header: &str) -> Option<Answer> {
    let mut stream = TcpStream::connect(address).ok()?;
    let request =
        format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{header}\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Answer { status, head: head.to_lowercase(), body: body.to_owned() })
}

/// Waits until `/readyz` answers with `status` and words that hold `part`; gives them.
pub fn until_ready(address: &str, status: u16, part: &str, limit: Duration) -> String {
    let mut last = None;
    let found = eventually(limit, || {
        let Answer { status: found, body, .. } = ask(address, "GET", "/readyz", "")?;
        last = Some(format!("{found} {body}"));
        (found == status && body.contains(part)).then_some(body)
    });
    found.unwrap_or_else(|| panic!("never {status} with `{part}`; the last was {last:?}"))
}

/// Asks for a page that must be there.
pub fn get(address: &str, path: &str) -> Answer {
    ask(address, "GET", path, "").expect("the run answers")
}
