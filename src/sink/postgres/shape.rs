//! A table's shape as it is now, and as it was: columns come and go while a run lasts.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::catalog::Prepared;
use super::target::Spec;

/// What the store made of a sink: shared by its encoders, which encode for the newest shape, and its
/// writers, which find out that there is another one.
#[derive(Debug)]
pub(super) struct LiveTable {
    /// What the dataflow says of the table.
    pub spec: Arc<Spec>,
    /// All shapes of this run, the newest last. Rows name theirs by number.
    versions: RwLock<Vec<Arc<Prepared>>>,
    newest: AtomicUsize,
}

impl LiveTable {
    pub fn new(spec: Arc<Spec>, prepared: Prepared) -> Self {
        LiveTable {
            spec,
            versions: RwLock::new(vec![Arc::new(prepared)]),
            newest: AtomicUsize::new(0),
        }
    }

    /// The number of the newest shape.
    pub fn version(&self) -> usize {
        self.newest.load(Ordering::Acquire)
    }

    /// The newest shape and its number.
    pub fn newest(&self) -> (usize, Arc<Prepared>) {
        let versions = self.versions.read().unwrap_or_else(PoisonError::into_inner);
        let version = versions.len() - 1;
        (version, Arc::clone(&versions[version]))
    }

    /// The shape with this number.
    pub fn at(&self, version: usize) -> Arc<Prepared> {
        Arc::clone(&self.versions.read().unwrap_or_else(PoisonError::into_inner)[version])
    }

    /// The key's columns in each shape.
    pub fn keys(&self) -> Vec<Vec<u16>> {
        let versions = self.versions.read().unwrap_or_else(PoisonError::into_inner);
        versions.iter().map(|prepared| prepared.table.key.clone()).collect()
    }

    /// Takes what the catalog says now; whether it is new.
    pub fn publish(&self, prepared: Prepared) -> bool {
        let mut versions = self.versions.write().unwrap_or_else(PoisonError::into_inner);
        if versions.last().is_some_and(|newest| **newest == prepared) {
            return false;
        }
        let table = &prepared.table;
        tracing::info!(
            "table `{}.{}` has changed: its columns were read again",
            table.schema,
            table.name
        );
        versions.push(Arc::new(prepared));
        self.newest.store(versions.len() - 1, Ordering::Release);
        true
    }
}
