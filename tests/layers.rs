//! The two sentences of the structure, and the order of the modules.

use std::fs;
use std::path::{Path, PathBuf};

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    assert!(!found.is_empty(), "{} holds code", folder.display());
    found
}

/// The code of a file, without comments and documentation.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.collect::<Vec<_>>().join("\n")
}

fn never_name(folder: &str, words: &[&str]) {
    for path in files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(folder)) {
        let code = code(&path).to_lowercase();
        for word in words {
            assert!(!code.contains(word), "{} names {word}", path.display());
        }
    }
}

#[test]
fn sources_and_sinks_never_name_timely() {
    never_name("source", &["timely"]);
    never_name("sink", &["timely"]);
}

#[test]
fn frames_never_name_kafka_or_postgresql() {
    never_name("frame", &["kafka", "postgres"]);
}

/// The modules in the order of their dependencies; those in one group do not name each other, but for
/// sinks, which count by `position`.
const ORDER: &[&[&str]] = &[
    &["error"],
    &["figures"],
    &["record"],
    &["origins"],
    &["epoch"],
    &["unwind"],
    &["codec"],
    &["source", "position"],
    &["run"],
    &["sink"],
    &["plan"],
    &["launch"],
    &["frame"],
    &["engine"],
    &["cluster"],
    &["retention"],
    &["pipeline"],
    &["recount"],
    &["metrics"],
    &["cli"],
];

#[test]
fn dependencies_point_one_way() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for (rank, group) in ORDER.iter().enumerate() {
        for module in *group {
            let file = source.join(format!("{module}.rs"));
            let paths = if file.exists() { vec![file] } else { files(&source.join(module)) };
            for path in paths {
                let code = code(&path);
                for later in ORDER[rank..].iter().flat_map(|group| *group) {
                    let named = code.contains(&format!("crate::{later}::"));
                    assert!(!named || later == module, "{} names {later}", path.display());
                }
            }
        }
    }
}
