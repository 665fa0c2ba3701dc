//! Whether a run is well, judged by its snapshot alone.

use super::{Health, Phase, Snapshot};

/// How long nothing may become durable, while something is behind or held, before a run is not ready.
/// The same for a store that is written to again and again in vain. To the first, the time is added that
/// rows wait for others.
pub const STALLED_MS: i64 = 10_000;

/// How long nothing of one partition may become durable, while the others move, before the run is not
/// ready: a run that catches up may favour some for a while.
pub const PARTITION_STALLED_MS: i64 = 60_000;

/// How long a worker may be at one step before the run is not alive. Nothing blocks a worker, and it looks
/// up once a second at the least.
pub const STUCK_MS: i64 = 60_000;

/// Whether the process is alive: restart it where it is not.
pub fn live(snapshot: &Snapshot) -> Health {
    let at_work = matches!(snapshot.phase, Phase::Running | Phase::Stopping);
    let stuck = snapshot.workers.iter().find(|worker| worker.stepped_ms > STUCK_MS);
    match stuck.filter(|_| at_work) {
        Some(worker) => bad(format!(
            "worker {} has been at one step for {} s; a closure of the dataflow may block it",
            worker.worker,
            worker.stepped_ms / 1000
        )),
        None => good(snapshot.phase.name()),
    }
}

/// Whether the run makes rows durable, or has none to make so.
pub fn ready(snapshot: &Snapshot) -> Health {
    match snapshot.phase {
        Phase::Connecting => return bad("connecting to the other processes"),
        Phase::Preparing => return bad("preparing: looking at databases and topics"),
        Phase::Standby => return bad(snapshot.detail.clone()),
        Phase::Failed => return bad(format!("failed: {}", snapshot.detail)),
        Phase::Stopping => return bad("stopping: storing what was read"),
        Phase::Ended => return bad("the run has ended"),
        Phase::Running => {}
    }
    let live = live(snapshot);
    if !live.ok {
        return live;
    }
    let tried = snapshot.stores.iter().filter(|store| store.interrupted_ms > STALLED_MS);
    if let Some(store) = tried.max_by_key(|store| store.interrupted_ms) {
        return bad(format!(
            "writing to `{}` has been tried for {} s: {}",
            store.identity,
            store.interrupted_ms / 1000,
            store.interrupted.as_deref().unwrap_or("no reason is known")
        ));
    }
    // What is behind is not known while nobody says where a partition ends.
    let silent = snapshot.partitions.iter().filter(|partition| partition.silent_ms > STALLED_MS);
    if let Some(silent) = silent.max_by_key(|partition| partition.silent_ms) {
        return bad(format!(
            "no broker has said for {} s where `{}[{}]` ends: {}",
            silent.silent_ms / 1000,
            silent.topic,
            silent.partition,
            silent.silence.as_deref().unwrap_or("no reason is known")
        ));
    }
    // A partition has an age only while something of it is behind.
    let behind = snapshot.partitions.iter().filter(|partition| partition.durable_age_ms > 0);
    let newest = behind.clone().map(|partition| partition.durable_age_ms).min();
    let oldest = behind.max_by_key(|partition| partition.durable_age_ms);
    if let (Some(oldest), Some(newest)) = (oldest, newest) {
        let nothing_moves = newest > STALLED_MS + snapshot.linger_ms;
        if nothing_moves || oldest.durable_age_ms > PARTITION_STALLED_MS + snapshot.linger_ms {
            return bad(format!(
                "nothing of `{}[{}]` became durable for {} s, and it is {} behind; the log says what \
                 holds it up",
                oldest.topic,
                oldest.partition,
                oldest.durable_age_ms / 1000,
                offsets(oldest.lag.unwrap_or(oldest.position - oldest.durable)),
            ));
        }
    }
    match snapshot.lag() {
        0 => good("running, nothing behind"),
        lag => good(format!("running, {} behind", offsets(lag.try_into().unwrap_or(i64::MAX)))),
    }
}

fn offsets(count: i64) -> String {
    if count == 1 { "1 offset".to_owned() } else { format!("{count} offsets") }
}

fn good(reason: impl Into<String>) -> Health {
    Health { ok: true, reason: reason.into() }
}

fn bad(reason: impl Into<String>) -> Health {
    Health { ok: false, reason: reason.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::{PartitionFigures, StoreFigures, WorkerFigures};

    fn running(partitions: &[(i64, i64)]) -> Snapshot {
        let partition = |(index, (age, lag)): (usize, &(i64, i64))| PartitionFigures {
            topic: "orders".into(),
            partition: index as i32,
            durable_age_ms: *age,
            lag: Some(*lag),
            ..PartitionFigures::default()
        };
        Snapshot {
            phase: Phase::Running,
            partitions: partitions.iter().enumerate().map(partition).collect(),
            ..Snapshot::default()
        }
    }

    #[test]
    fn a_run_that_moves_is_ready_however_far_behind_it_is() {
        let health = ready(&running(&[(40, 1_000_000), (9_000, 7), (0, 0)]));
        assert_eq!(health, good("running, 1000007 offsets behind"));
        assert_eq!(ready(&running(&[])), good("running, nothing behind"));
    }

    #[test]
    fn a_run_whose_partitions_all_stand_is_not_ready_and_says_which() {
        let health = ready(&running(&[(12_000, 1), (10_500, 5), (0, 0)]));
        assert_eq!(
            health,
            bad(
                "nothing of `orders[0]` became durable for 12 s, and it is 1 offset behind; the log says \
                 what holds it up"
            )
        );
        assert!(ready(&running(&[(10_000, 1)])).ok);
        // Rows that wait for others are not stalled.
        let waiting = Snapshot { linger_ms: 30_000, ..running(&[(12_000, 1)]) };
        assert!(ready(&waiting).ok);
    }

    #[test]
    fn a_source_that_says_nothing_is_not_ready_and_says_why() {
        let with = |ms| {
            let mut snapshot = running(&[(0, 0), (0, 0)]);
            snapshot.partitions[1].silent_ms = ms;
            snapshot.partitions[1].silence = Some("connection refused".into());
            ready(&snapshot)
        };
        assert!(with(9_000).ok);
        assert_eq!(
            with(11_000),
            bad("no broker has said for 11 s where `orders[1]` ends: connection refused")
        );
    }

    #[test]
    fn one_partition_may_stand_longer_while_others_move() {
        assert!(ready(&running(&[(59_000, 1), (100, 5)])).ok);
        assert!(!ready(&running(&[(61_000, 1), (100, 5)])).ok);
    }

    #[test]
    fn a_store_that_is_tried_in_vain_is_not_ready_and_says_why() {
        let store = |ms| StoreFigures {
            identity: "postgres://db/shop".into(),
            interrupted: Some("connection refused".into()),
            interrupted_ms: ms,
            ..StoreFigures::default()
        };
        let with = |ms| Snapshot { stores: vec![store(ms)], ..running(&[]) };
        assert!(ready(&with(9_000)).ok);
        assert_eq!(
            ready(&with(11_000)),
            bad("writing to `postgres://db/shop` has been tried for 11 s: connection refused")
        );
    }

    #[test]
    fn only_a_running_run_is_ready_and_the_others_are_alive() {
        for phase in Phase::ALL {
            let snapshot = Snapshot { phase, detail: "for pid 7".into(), ..Snapshot::default() };
            assert_eq!(ready(&snapshot).ok, phase == Phase::Running, "{phase:?}");
            assert!(live(&snapshot).ok, "{phase:?}");
        }
        let standby = Snapshot { phase: Phase::Standby, detail: "x".into(), ..Snapshot::default() };
        assert_eq!(ready(&standby).reason, "x");
    }

    #[test]
    fn a_worker_that_does_not_step_is_neither_alive_nor_ready() {
        let worker = WorkerFigures { worker: 3, stepped_ms: 61_000, ..Default::default() };
        let stuck = Snapshot { workers: vec![worker], ..running(&[]) };
        assert!(!live(&stuck).ok && live(&stuck).reason.contains("worker 3"));
        assert!(!ready(&stuck).ok);
        // Before they run and after they ran, workers do not step.
        assert!(live(&Snapshot { phase: Phase::Ended, ..stuck }).ok);
    }
}
