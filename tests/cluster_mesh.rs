//! Clusters whose processes are threads of this test, over loopback.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tidegate::cluster::{Agreed, Flags, Joined, Mesh, agree, builders};
use tidegate::run::Stop;
use tidegate::{Error, Kind, Result};

/// Addresses and files of one test.
struct Cluster {
    addresses: Vec<String>,
    files: Vec<PathBuf>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for file in &self.files {
            let _ = std::fs::remove_file(file);
        }
    }
}

impl Cluster {
    fn new(processes: usize) -> Self {
        Cluster { addresses: (0..processes).map(|_| free_address()).collect(), files: Vec::new() }
    }

    fn flags(&mut self, process: usize) -> Flags {
        let addresses = self.addresses.clone();
        self.flags_at(process, &addresses)
    }

    /// Flags of a process that knows other addresses than the rest.
    fn flags_at(&mut self, process: usize, addresses: &[String]) -> Flags {
        Flags {
            processes: addresses.len(),
            process,
            hostfile: Some(self.file(&addresses.join("\n"))),
            peer_wait: Duration::from_secs(20),
            ..Flags::default()
        }
    }

    fn file(&mut self, text: &str) -> PathBuf {
        static FILES: AtomicUsize = AtomicUsize::new(0);
        let number = FILES.fetch_add(1, Ordering::Relaxed);
        let name = format!("tidegate-mesh-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).unwrap();
        self.files.push(path.clone());
        path
    }

    fn all(&mut self) -> Vec<Flags> {
        (0..self.addresses.len()).map(|process| self.flags(process)).collect()
    }
}

/// Below the range that the system gives to outgoing connections, in a block of ports that this run of
/// the tests holds by its first port: two runs at once must not meet.
fn free_address() -> String {
    static NEXT: AtomicU16 = AtomicU16::new(1);
    static BLOCK: OnceLock<(u16, TcpListener)> = OnceLock::new();
    let (block, _) = BLOCK.get_or_init(|| {
        let mut blocks = (0..200).map(|block| 11_000 + block * 100);
        let held =
            blocks.find_map(|port| Some((port, TcpListener::bind(("127.0.0.1", port)).ok()?)));
        held.expect("a block of free ports")
    });
    loop {
        let offset = NEXT.fetch_add(1, Ordering::Relaxed);
        assert!(offset < 100, "the block of ports is used up");
        let address = format!("127.0.0.1:{}", block + offset);
        if TcpListener::bind(&address).is_ok() {
            return address;
        }
    }
}

fn connect(flags: Flags) -> JoinHandle<Result<Joined>> {
    std::thread::spawn(move || Mesh::connect(&flags, "orders", &Stop::default()))
}

fn joined(handle: JoinHandle<Result<Joined>>) -> Mesh {
    match handle.join().unwrap() {
        Ok(Joined::Mesh(mesh)) => mesh,
        other => panic!("no mesh: {other:?}"),
    }
}

fn refused(handle: JoinHandle<Result<Joined>>) -> Error {
    handle.join().unwrap().expect_err("a mesh that should not be")
}

fn mesh(flags: Vec<Flags>) -> Vec<Mesh> {
    let handles: Vec<_> = flags.into_iter().map(connect).collect();
    handles.into_iter().map(joined).collect()
}

/// Waits until something listens there.
fn reach(address: &str) -> TcpStream {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match TcpStream::connect(address) {
            Ok(stream) => return stream,
            Err(error) => assert!(Instant::now() < deadline, "{address}: {error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_mesh_forms_in_any_order_of_start() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let mut cluster = Cluster::new(3);
        let mut handles = Vec::new();
        for process in order {
            handles.push(connect(cluster.flags(process)));
            std::thread::sleep(Duration::from_millis(60));
        }
        // Held until all have joined: a process that leaves at once would be waited for again.
        let meshes: Vec<_> = handles.into_iter().map(joined).collect();
        for (process, mesh) in order.into_iter().zip(&meshes) {
            assert_eq!((mesh.process(), mesh.processes()), (process, 3));
        }
    }
}

#[test]
fn a_run_of_one_process_needs_no_peer() {
    let joined = Mesh::connect(&Flags::default(), "orders", &Stop::default()).unwrap();
    let Joined::Mesh(mut mesh) = joined else { panic!("stopped") };
    let agreed = agree(&mut mesh, Ok("a".to_owned()), &Stop::default(), |waiting| {
        waiting("alone")?;
        Ok(3u64)
    });
    assert!(matches!(agreed.unwrap(), Agreed::Start { payload: 3, .. }));

    let stop = Stop::default();
    let agreed = agree(&mut mesh, Ok("a".to_owned()), &stop, |waiting| {
        stop.request();
        waiting("alone")?;
        Ok(3u64)
    });
    assert_eq!(agreed.unwrap(), Agreed::Stopped);
}

#[test]
fn strangers_do_not_stop_a_start() {
    let mut cluster = Cluster::new(2);
    let first = connect(cluster.flags(0));
    let address = cluster.addresses[0].clone();
    drop(reach(&address));
    let silent = reach(&address);
    let mut junk = reach(&address);
    junk.write_all(&[0xff; 9000]).unwrap();
    let mut web = reach(&address);
    web.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    web.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let _ = web.read_to_end(&mut answer);
    assert_eq!(answer, b"", "a stranger learns nothing");
    let mut index = reach(&address);
    index.write_all(&1u64.to_be_bytes()).unwrap();
    // Far more than shake hands at once.
    let crowd: Vec<_> = (0..200).map(|_| reach(&address)).collect();

    let second = connect(cluster.flags(1));
    let meshes = [first, second].map(joined);
    assert_eq!(meshes.map(|mesh| mesh.process()), [0, 1]);
    drop((silent, junk, index, crowd));
}

#[test]
fn a_stranger_that_listens_in_place_of_a_process_does_not_stop_a_start() {
    let mut cluster = Cluster::new(2);
    let listener = TcpListener::bind(&cluster.addresses[0]).unwrap();
    let second = connect(cluster.flags(1));
    let (mut caller, _) = listener.accept().unwrap();
    caller.write_all(b"SSH-2.0-OpenSSH_9.6\r\n").unwrap();
    drop((caller, listener));
    let first = connect(cluster.flags(0));
    let _meshes = [first, second].map(joined);
}

#[test]
fn another_secret_is_refused_and_the_right_process_still_joins() {
    let mut cluster = Cluster::new(2);
    let (right, wrong) = (cluster.file("right\n"), cluster.file("wrong"));
    let mut flags = cluster.all();
    for flags in &mut flags {
        flags.secret_file = Some(right.clone());
    }
    let elsewhere = [cluster.addresses[0].clone(), free_address()];
    let mut impostor = cluster.flags_at(1, &elsewhere);
    impostor.secret_file = Some(wrong);
    impostor.peer_wait = Duration::from_secs(2);

    let second = flags.remove(1);
    let first = connect(flags.remove(0));
    let error = refused(connect(impostor));
    assert_eq!(error.kind(), Kind::Peer);
    assert!(error.to_string().contains("perhaps for another secret"), "{error}");
    let second = connect(second);
    let _meshes = [first, second].map(joined);
}

#[test]
fn other_flags_are_named_on_both_sides() {
    let mut cluster = Cluster::new(2);
    let mut flags = cluster.all();
    flags[0].threads = 2;
    flags[1].threads = 3;
    let handles: Vec<_> = flags.into_iter().map(connect).collect();
    for handle in handles {
        let error = refused(handle);
        assert_eq!(error.kind(), Kind::Config);
        let sentence = "process 0 runs with -w 2, but process 1 with -w 3; start all processes with the same flags";
        assert_eq!(error.to_string(), sentence);
    }
}

/// Also those that agree with all that they have met.
#[test]
fn other_flags_of_one_process_end_all() {
    for odd in 0..3 {
        let mut cluster = Cluster::new(3);
        let mut flags = cluster.all();
        flags[odd].threads = 7;
        let late = flags.remove(odd);
        // The two that agree are connected before the third comes.
        let mut handles: Vec<_> = flags.into_iter().map(connect).collect();
        std::thread::sleep(Duration::from_millis(300));
        handles.push(connect(late));
        for handle in handles {
            let error = refused(handle);
            assert_eq!(error.kind(), Kind::Config, "{error}");
            assert!(error.to_string().contains(&format!("process {odd} ")), "{error}");
            assert!(error.to_string().contains("with -w 7"), "{error}");
        }
    }
}

#[test]
fn another_number_of_processes_is_named_on_both_sides() {
    let mut cluster = Cluster::new(3);
    let two = cluster.addresses[..2].to_vec();
    let first = connect(cluster.flags_at(0, &two));
    let second = connect(cluster.flags(1));
    for handle in [first, second] {
        let error = refused(handle).to_string();
        assert!(error.starts_with("process 0 runs with -n 2, but process 1 with -n 3;"), "{error}");
    }
}

#[test]
fn another_pipeline_is_named_on_both_sides() {
    let mut cluster = Cluster::new(2);
    let (zero, one) = (cluster.flags(0), cluster.flags(1));
    let first = connect(zero);
    let second = std::thread::spawn(move || Mesh::connect(&one, "clicks", &Stop::default()));
    for handle in [first, second] {
        let error = refused(handle).to_string();
        assert!(
            error.starts_with("process 0 runs pipeline `orders`, but process 1 pipeline `clicks`;"),
            "{error}"
        );
    }
}

#[test]
fn a_missing_process_is_named_with_its_address() {
    let mut cluster = Cluster::new(3);
    let mut flags = cluster.all();
    flags.truncate(2);
    for flags in &mut flags {
        flags.peer_wait = Duration::from_millis(700);
    }
    let handles: Vec<_> = flags.into_iter().map(connect).collect();
    for handle in handles {
        let error = refused(handle);
        assert_eq!(error.kind(), Kind::Peer);
        assert!(error.is_retryable());
        // The one that gives up first is missing for the other from then on.
        let sentence = format!("process 2 at {}", cluster.addresses[2]);
        assert!(error.to_string().contains(&sentence), "{error}");
        assert!(error.to_string().contains(" did not join within 700ms;"), "{error}");
    }
}

#[test]
fn a_missing_process_that_is_dialled_is_named_with_the_reason() {
    let mut cluster = Cluster::new(2);
    let mut flags = cluster.flags(1);
    flags.peer_wait = Duration::from_secs(1);
    let error = refused(connect(flags)).to_string();
    let sentence =
        format!("process 0 at {} (nothing listens there) did not join", cluster.addresses[0]);
    assert!(error.starts_with(&sentence), "{error}");
}

#[test]
fn a_port_in_use_is_one_sentence() {
    let mut cluster = Cluster::new(2);
    let _taken = TcpListener::bind(&cluster.addresses[0]).unwrap();
    let error = refused(connect(cluster.flags(0)));
    assert_eq!(error.kind(), Kind::Peer, "it may pass");
    assert!(error.to_string().contains("is in use"), "{error}");
}

#[test]
fn a_stop_ends_the_wait_for_others() {
    let mut cluster = Cluster::new(2);
    let (flags, stop) = (cluster.flags(0), Stop::default());
    stop.request();
    assert!(matches!(Mesh::connect(&flags, "orders", &stop).unwrap(), Joined::Stopped));
}

#[test]
fn a_process_that_restarts_during_the_start_replaces_itself() {
    let mut cluster = Cluster::new(3);
    let first = connect(cluster.flags(0));
    let (flags, stop) = (cluster.flags(1), Stop::default());
    let early = {
        let stop = stop.clone();
        std::thread::spawn(move || Mesh::connect(&flags, "orders", &stop))
    };
    std::thread::sleep(Duration::from_millis(300));
    stop.request();
    assert!(matches!(early.join().unwrap().unwrap(), Joined::Stopped));
    let (second, third) = (connect(cluster.flags(1)), connect(cluster.flags(2)));
    let meshes = [first, second, third].map(joined);
    run_agreement(meshes.into());
}

#[test]
fn two_processes_with_one_index_are_an_error() {
    let mut cluster = Cluster::new(3);
    let first = connect(cluster.flags(0));
    let twin = [cluster.addresses[0].clone(), free_address(), cluster.addresses[2].clone()];
    let stop = Stop::default();
    let twins = [cluster.flags(1), cluster.flags_at(1, &twin)].map(|flags| {
        let stop = stop.clone();
        std::thread::spawn(move || Mesh::connect(&flags, "orders", &stop))
    });
    let error = refused(first);
    assert_eq!(error.kind(), Kind::Config);
    assert!(error.to_string().starts_with("two processes run as process 1"), "{error}");
    stop.request();
    for twin in twins {
        assert!(matches!(twin.join().unwrap().unwrap(), Joined::Stopped));
    }
}

#[test]
fn an_address_that_leads_to_another_process_is_an_error() {
    let mut cluster = Cluster::new(2);
    // Process 1 believes that process 0 is where it listens itself.
    let own = cluster.addresses[1].clone();
    let wrong = [own.replace("127.0.0.1", "localhost"), own];
    let error = refused(connect(cluster.flags_at(1, &wrong)));
    assert_eq!(error.kind(), Kind::Config);
    assert!(error.to_string().contains("process 1"), "{error}");
}

fn agreement(
    mut mesh: Mesh,
    plan: Result<String>,
    stop: Stop,
    alone: impl FnOnce(&dyn Fn(&str) -> Result<()>) -> Result<Vec<u64>> + Send + 'static,
) -> JoinHandle<Result<Agreed<Vec<u64>>>> {
    std::thread::spawn(move || agree(&mut mesh, plan, &stop, alone))
}

fn run_agreement(meshes: Vec<Mesh>) {
    let handles: Vec<_> = meshes
        .into_iter()
        .map(|mesh| {
            agreement(mesh, Ok("ab12".to_owned()), Stop::default(), |_| {
                std::thread::sleep(Duration::from_millis(50));
                Ok(vec![1, 2, 3])
            })
        })
        .collect();
    for handle in handles {
        let Agreed::Start { payload, elapsed } = handle.join().unwrap().unwrap() else {
            panic!("stopped")
        };
        assert_eq!(payload, [1, 2, 3]);
        assert!(elapsed < Duration::from_secs(10), "{elapsed:?}");
    }
}

#[test]
fn what_process_0_finds_out_arrives_at_all() {
    let mut cluster = Cluster::new(3);
    run_agreement(mesh(cluster.all()));
}

#[test]
fn another_plan_is_refused_by_all() {
    let mut cluster = Cluster::new(3);
    let plans = ["cd34", "ab12", "cd34"];
    let meshes = mesh(cluster.all()).into_iter().zip(plans);
    let handles: Vec<_> = meshes
        .map(|(mesh, plan)| {
            agreement(mesh, Ok(plan.to_owned()), Stop::default(), |_| unreachable!())
        })
        .collect();
    for handle in handles {
        let error = handle.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), Kind::Config);
        let sentence = "process 1 runs another dataflow (plan digest `ab12` against `cd34`); start all processes from the same build and parameters";
        assert_eq!(error.to_string(), sentence);
    }
}

#[test]
fn an_error_of_one_process_refuses_all_with_the_same_sentence() {
    let mut cluster = Cluster::new(3);
    let handles: Vec<_> = mesh(cluster.all())
        .into_iter()
        .map(|mesh| {
            let plan = match mesh.process() {
                1 => Err(Error::sink("table `x` does not exist")),
                _ => Ok("ab12".to_owned()),
            };
            agreement(mesh, plan, Stop::default(), |_| unreachable!())
        })
        .collect();
    for handle in handles {
        let error = handle.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), Kind::Sink);
        assert_eq!(error.to_string(), "process 1: table `x` does not exist");
    }
}

#[test]
fn an_error_of_process_0_ends_all_with_its_kind() {
    let mut cluster = Cluster::new(3);
    let handles: Vec<_> = mesh(cluster.all())
        .into_iter()
        .map(|mesh| {
            agreement(mesh, Ok("ab12".to_owned()), Stop::default(), |_| {
                Err(Error::new(Kind::Fenced, "another run of `orders` took over"))
            })
        })
        .collect();
    for handle in handles {
        let error = handle.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), Kind::Fenced);
        assert_eq!(error.to_string(), "another run of `orders` took over");
    }
}

#[test]
fn a_stop_of_any_process_ends_the_standby_of_all() {
    for stopped in 0..3 {
        let mut cluster = Cluster::new(3);
        let stops: Vec<Stop> = (0..3).map(|_| Stop::default()).collect();
        let (standing, stands) = mpsc::channel();
        let handles: Vec<_> = mesh(cluster.all())
            .into_iter()
            .map(|mesh| {
                let standing = standing.clone();
                let stop = stops[mesh.process()].clone();
                agreement(mesh, Ok("ab12".to_owned()), stop, move |waiting| {
                    loop {
                        waiting("another run holds the lock; standing by")?;
                        let _ = standing.send(());
                        std::thread::sleep(Duration::from_millis(10));
                    }
                })
            })
            .collect();
        stands.recv_timeout(Duration::from_secs(10)).unwrap();
        stops[stopped].request();
        for handle in handles {
            assert_eq!(handle.join().unwrap().unwrap(), Agreed::Stopped);
        }
    }
}

/// Exchanges numbers over the sockets and counts what each worker of each process got.
fn exchange(zerocopy: bool) {
    const NUMBERS: u64 = 1000;
    let mut cluster = Cluster::new(2);
    let (counts, counted) = mpsc::channel();
    let handles: Vec<_> = cluster
        .all()
        .into_iter()
        .map(|flags| {
            let counts = counts.clone();
            std::thread::spawn(move || {
                let flags = Flags { threads: 2, zerocopy, ..flags };
                let stop = Stop::default();
                let Joined::Mesh(mut mesh) = Mesh::connect(&flags, "orders", &stop).unwrap() else {
                    panic!("stopped")
                };
                let agreed = agree(&mut mesh, Ok("ab12".to_owned()), &stop, |_| Ok(NUMBERS));
                let Agreed::Start { payload: numbers, .. } = agreed.unwrap() else {
                    panic!("stopped")
                };
                let (builders, guard) = builders(&flags, mesh).unwrap();
                let config = timely::WorkerConfig::default();
                let guards =
                    timely::execute::execute_from(builders, guard, config, move |worker| {
                        use timely::dataflow::operators::{Exchange, Inspect, ToStream};
                        let (index, counts) = (worker.index(), counts.clone());
                        let own = if index == 0 { 0..numbers } else { 0..0 };
                        worker.dataflow::<u64, _, _>(|scope| {
                            own.to_stream(scope)
                                .container::<Vec<_>>()
                                .exchange(|number| *number)
                                .inspect(move |number| counts.send((index, *number)).unwrap());
                        });
                    });
                for result in guards.unwrap().join() {
                    result.unwrap();
                }
            })
        })
        .collect();
    drop(counts);
    for handle in handles {
        handle.join().unwrap();
    }
    let mut got: Vec<(usize, u64)> = counted.iter().collect();
    got.sort_by_key(|(_, number)| *number);
    let want: Vec<_> = (0..NUMBERS).map(|number| (number as usize % 4, number)).collect();
    assert_eq!(got, want);
}

#[test]
fn timely_runs_over_the_sockets() {
    exchange(false);
}

#[test]
fn timely_runs_over_the_sockets_with_serialized_channels() {
    exchange(true);
}
