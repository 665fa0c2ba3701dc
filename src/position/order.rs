//! The order of a partition's rows (contract C6).

use std::collections::HashMap;

use crate::record::{At, Lane};

/// Whether the rows of each partition come in the order in which they were read. Rows of different
/// partitions have none.
pub fn in_order(rows: impl IntoIterator<Item = At>) -> bool {
    let mut last = HashMap::<Lane, At>::new();
    let mut rows = rows.into_iter();
    let Some(mut before) = rows.next() else { return true };
    for at in rows {
        if at.lane() == before.lane() {
            // Rows come in runs of a partition: the map is looked at between runs only.
            if at.offset < before.offset {
                return false;
            }
        } else {
            last.insert(before.lane(), before);
            if last.get(&at.lane()).is_some_and(|last| at.offset < last.offset) {
                return false;
            }
        }
        before = at;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Offset, Partition, SourceId};

    #[test]
    fn partitions_may_alternate_and_may_not_go_back() {
        let at = |(partition, offset): &(i32, i64)| At {
            source: SourceId(0),
            partition: Partition(*partition),
            offset: Offset(*offset),
            ordinal: 0,
        };
        let check = |rows: &[(i32, i64)]| in_order(rows.iter().map(at));
        assert!(check(&[]));
        assert!(check(&[(0, 1), (1, 0), (0, 1), (0, 2), (1, 5)]));
        assert!(!check(&[(0, 2), (0, 1)]));
        assert!(!check(&[(0, 2), (1, 0), (0, 1)]));
    }
}
