//! The program: its dataflows, handed to the command line.

use std::process::ExitCode;

#[path = "../dataflows/mod.rs"]
mod dataflows;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tidegate::cli::main(dataflows::all())
}
