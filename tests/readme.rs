//! The README tells the truth: its examples compile, and its lists are those of the code.

use std::process::Command;

const README: &str = include_str!("../README.md");

/// Text without the white space and trailing commas in which formatting differs.
fn squeezed(text: &str) -> String {
    let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    text.replace(",}", "}").replace(",)", ")").replace(",]", "]")
}

#[test]
fn its_examples_are_compiled() {
    let compiled = squeezed(include_str!("../examples/readme.rs"));
    let blocks: Vec<&str> = README
        .split("```rust\n")
        .skip(1)
        .map(|rest| rest.split_once("```").expect("a block ends").0)
        .collect();
    assert_eq!(blocks.len(), 3, "an example was added or lost");
    for block in blocks {
        for item in block.split("\n\n").filter(|item| !item.starts_with("fn main")) {
            assert!(compiled.contains(&squeezed(item)), "not in examples/readme.rs:\n{item}");
        }
    }
    let entry = r#"tidegate::cli::Entry::new("payments", "card payments by size", payments)"#;
    assert!(README.contains(entry) && compiled.contains(&squeezed(entry)));
}

#[test]
fn it_names_every_command_and_exit_code() {
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate")).arg("--help").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let commands = help.split("Commands:\n").nth(1).unwrap().lines();
    let commands: Vec<_> = commands
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(commands.len() >= 7, "{commands:?}");
    for command in commands {
        assert!(README.contains(&format!("| `tidegate {command}")), "the README lacks {command}");
    }
    let codes = README.split("Exit codes:").nth(1).expect("the README lists exit codes");
    let codes = codes.split("\n\n").next().unwrap();
    for kind in tidegate::Kind::ALL {
        let code = format!("{} ", kind.exit_code());
        assert!(codes.contains(&code), "the README lacks exit code {code}");
    }
}
