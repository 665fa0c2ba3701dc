//! Searches for inputs that are taken wrongly; it ends with 1 where it finds one.
//!
//! `cargo run --example fuzz -- json --seconds 600 [--seed 7]`: the decoder of documents against serde_json.
//! `cargo run --example fuzz -- encoder --seconds 600 [--seed 7]`: tables and values of all types through
//! the sink, against what the server of `DATABASE_URL` makes of the same texts.

#![allow(clippy::print_stdout, reason = "it is a program")]

mod encoder;
mod json;
mod random;

use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let flag = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)?.parse::<u64>().ok()
    };
    let seed = flag("--seed").unwrap_or(1);
    let limit = Duration::from_secs(flag("--seconds").unwrap_or(10));
    match arguments.first().map(String::as_str) {
        Some("json") => json::run(seed, limit),
        Some("encoder") => encoder::run(seed, limit),
        _ => {
            println!("usage: fuzz json|encoder [--seconds NUM] [--seed NUM]");
            ExitCode::from(2)
        }
    }
}
