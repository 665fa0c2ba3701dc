//! Advisory locks: one number for each purpose of a pipeline.

use sha2::{Digest, Sha256};

/// The keys of a pipeline's locks in its database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LockKeys {
    /// Held by the one run, by a session of its own.
    pub run: i64,
    /// Held shared by each writing transaction, exclusively while a generation begins.
    pub write: i64,
    /// Held shared by every session of a writer, to find them by: an application's name is cut at
    /// 63 bytes and may be anybody's.
    pub alive: i64,
}

impl LockKeys {
    /// The keys of `pipeline` whose bookkeeping is in `schema`.
    pub fn new(schema: &str, pipeline: &str) -> Self {
        let key = |purpose| key(&[purpose, schema, pipeline]);
        LockKeys { run: key("run"), write: key("write"), alive: key("alive") }
    }
}

/// The key under which `schema` is created and migrated.
pub(super) fn schema_key(schema: &str) -> i64 {
    key(&["schema", schema])
}

fn key(parts: &[&str]) -> i64 {
    let mut hash = Sha256::new();
    hash.update(b"tidegate");
    for part in parts {
        // With the length in front, no two lists of parts hash the same bytes.
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    let digest = hash.finalize();
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    i64::from_be_bytes(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_by_purpose_schema_and_pipeline_and_never_change() {
        let keys = LockKeys::new("tidegate", "orders");
        assert_eq!(keys, LockKeys::new("tidegate", "orders"));
        let all = [
            keys.run,
            keys.write,
            keys.alive,
            LockKeys::new("tidegat", "eorders").run,
            schema_key("tidegate"),
        ];
        let distinct: std::collections::BTreeSet<_> = all.into_iter().collect();
        assert_eq!(distinct.len(), all.len());
    }
}
