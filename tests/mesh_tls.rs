//! TLS between the processes of a run: what passes is unreadable, and who has no certificate of the
//! cluster's authority is refused by name.

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::story::{LONG, Story, hostfile};
use common::unique;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use tidegate::cluster::{Flags, Joined, Mesh};
use tidegate::run::Stop;
use tidegate::{Error, Kind};

/// An authority, in a folder of its own.
struct Authority {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(unique("tidegate_tls"));
        std::fs::create_dir(&folder).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let own = params.self_signed(&key).unwrap();
        std::fs::write(folder.join("ca"), own.pem()).unwrap();
        Authority { folder, issuer: Issuer::new(params, key) }
    }

    /// Writes a certificate for `name` and its key.
    fn sign(&self, name: &str, expired: bool) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![format!("{name}.example")]).unwrap();
        if expired {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2021, 1, 1);
        }
        let signed = params.signed_by(&key, &self.issuer).unwrap();
        std::fs::write(self.folder.join(name), signed.pem()).unwrap();
        std::fs::write(self.folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        Some(self.folder.join(name))
    }

    /// The flags of a process that has the certificate of `name`.
    fn flags(&self, name: &str, flags: Flags) -> Flags {
        Flags {
            mesh_tls_cert: self.path(name),
            mesh_tls_key: self.path(&format!("{name}.key")),
            mesh_tls_ca: self.path("ca"),
            ..flags
        }
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn plain(process: usize, hosts: &str) -> Flags {
    Flags {
        processes: 2,
        process,
        hostfile: Some(hosts.into()),
        peer_wait: Duration::from_secs(2),
        ..Flags::default()
    }
}

fn connect(flags: Flags) -> std::thread::JoinHandle<tidegate::Result<Joined>> {
    std::thread::spawn(move || Mesh::connect(&flags, "orders", &Stop::default()))
}

/// What two processes that do not come together say.
fn refused(zero: Flags, one: Flags) -> [String; 2] {
    [connect(zero), connect(one)].map(|handle| {
        let error: Error = handle.join().unwrap().expect_err("a mesh that should not be");
        assert_eq!(error.kind(), Kind::Peer, "{error}");
        error.to_string()
    })
}

#[test]
fn who_is_not_of_the_authority_is_refused_by_name() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    ours.sign("zero", false);
    ours.sign("one", false);
    ours.sign("old", true);
    theirs.sign("one", false);

    let hosts = hostfile(2);
    let flags = |name: &str, process| ours.flags(name, plain(process, &hosts));
    let meshes = [connect(flags("zero", 0)), connect(flags("one", 1))];
    let meshes = meshes.map(|handle| handle.join().unwrap().expect("both are of the authority"));
    drop(meshes);

    let [_, one] = refused(flags("zero", 0), theirs.flags("one", plain(1, &hosts)));
    assert!(one.contains("its certificate is of another authority than --mesh-tls-ca"), "{one}");
    // It trusts process 0, which does not trust it.
    let half = Flags { mesh_tls_ca: ours.path("ca"), ..theirs.flags("one", plain(1, &hosts)) };
    let [_, one] = refused(flags("zero", 0), half);
    assert!(one.contains("this process's certificate is of another authority"), "{one}");
    let [_, one] = refused(flags("old", 0), flags("one", 1));
    assert!(one.contains("its certificate has expired"), "{one}");
    let [_, one] = refused(flags("zero", 0), flags("old", 1));
    assert!(one.contains("it says that this process's certificate has expired"), "{one}");

    let [_, one] = refused(flags("zero", 0), plain(1, &hosts));
    assert!(one.contains("it speaks TLS; give all processes the --mesh-tls flags"), "{one}");
    let [_, one] = refused(plain(0, &hosts), flags("one", 1));
    assert!(one.contains("give all processes the --mesh-tls flags, or none"), "{one}");
}

#[test]
#[allow(clippy::print_stderr, reason = "whoever reads the tests' output should know")]
fn the_certificates_of_the_readme_are_good() {
    if Command::new("openssl").arg("version").output().is_err() {
        return eprintln!("skipped: openssl is not installed");
    }
    let commands =
        include_str!("../README.md").split("```sh\n").find(|rest| rest.starts_with("openssl"));
    let commands = commands.expect("the README makes certificates").split("```").next().unwrap();
    let folder = std::env::temp_dir().join(unique("tidegate_readme"));
    std::fs::create_dir(&folder).unwrap();
    let mut shell = Command::new("bash");
    let done = shell.args(["-e", "-o", "pipefail", "-c", commands]).current_dir(&folder).output();
    let done = done.expect("bash runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let hosts = hostfile(2);
    let meshes = [0, 1].map(|process| {
        connect(Flags {
            mesh_tls_cert: Some(folder.join("mesh.pem")),
            mesh_tls_key: Some(folder.join("mesh.key")),
            mesh_tls_ca: Some(folder.join("ca.pem")),
            ..plain(process, &hosts)
        })
    });
    drop(meshes.map(|handle| handle.join().unwrap().expect("the mesh stands")));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn files_that_are_wrong_are_named() {
    let ours = Authority::new();
    ours.sign("one", false);
    let hosts = hostfile(2);
    let good = ours.flags("one", plain(1, &hosts));
    let says = |flags: Flags| {
        let error = connect(flags).join().unwrap().expect_err("files that are wrong");
        (error.kind(), error.to_string())
    };
    let missing = Flags { mesh_tls_cert: ours.path("nothing"), ..good.clone() };
    let (kind, sentence) = says(missing);
    assert_eq!(kind, Kind::Config);
    assert!(sentence.starts_with("cannot read the certificate `"), "{sentence}");
    let (kind, sentence) = says(Flags { mesh_tls_key: ours.path("ca"), ..good.clone() });
    assert_eq!(kind, Kind::Config);
    assert!(sentence.contains("cannot be used for the mesh's TLS"), "{sentence}");
    let (kind, sentence) = says(Flags { mesh_tls_ca: None, ..good });
    assert_eq!(kind, Kind::Usage);
    assert!(sentence.contains("belong together"), "{sentence}");
}

/// Forwards to `to`, and keeps what passes.
fn tap(to: String) -> (String, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (at, heard) =
        (listener.local_addr().unwrap().to_string(), Arc::<Mutex<Vec<u8>>>::default());
    let keeps = Arc::clone(&heard);
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(server) = TcpStream::connect(&to) else { continue };
            let twin = |stream: &TcpStream| stream.try_clone().unwrap();
            for (mut from, mut into) in [(twin(&client), twin(&server)), (server, client)] {
                let keeps = Arc::clone(&keeps);
                std::thread::spawn(move || {
                    let mut bytes = [0; 4096];
                    while let Ok(read) = from.read(&mut bytes) {
                        keeps.lock().unwrap().extend_from_slice(&bytes[..read]);
                        if read == 0 || into.write_all(&bytes[..read]).is_err() {
                            break;
                        }
                    }
                    // The other way may go on.
                    let _ = into.shutdown(Shutdown::Write);
                });
            }
        }
    });
    (at, heard)
}

#[test]
fn a_run_over_tls_is_exact_and_unreadable() {
    let ours = Authority::new();
    ours.sign("zero", false);
    ours.sign("one", false);
    let path = |name: &str| ours.folder.join(name).to_str().unwrap().to_owned();
    for encrypted in [false, true] {
        let mut story = Story::new("mesh_tls");
        story.produce(0..10_000);
        let hosts = hostfile(2);
        let lines = std::fs::read_to_string(&hosts).unwrap();
        let (zero, one) = lines.trim().split_once('\n').unwrap();
        let (through, heard) = tap(zero.to_owned());
        // Process 1 dials process 0 through the tap.
        let tapped = std::env::temp_dir().join(unique("tidegate_hosts"));
        std::fs::write(&tapped, format!("{through}\n{one}\n")).unwrap();
        let start = |index: &str, name: &str, hosts: &str| {
            let files = [path(name), path(&format!("{name}.key")), path("ca")];
            let tls = [
                "--mesh-tls-cert",
                &files[0],
                "--mesh-tls-key",
                &files[1],
                "--mesh-tls-ca",
                &files[2],
            ];
            let tls = if encrypted { &tls[..] } else { &[] };
            let flags = ["-n", "2", "-w", "2", "-p", index, "-h", hosts];
            story.run(&[&flags[..], tls].concat())
        };
        let mut run = [start("0", "zero", &hosts), start("1", "one", tapped.to_str().unwrap())];
        story.until(20_000, &mut run.iter_mut().collect::<Vec<_>>());
        run[1].signal("-TERM");
        for process in run {
            process.success(LONG);
        }
        story.verify(10_000);
        let heard = heard.lock().unwrap();
        // The pipeline's name stands in the hellos.
        let name = story.schema.as_bytes();
        let readable = heard.windows(name.len()).any(|window| window == name);
        assert_eq!(readable, !encrypted, "of {} bytes", heard.len());
        std::fs::remove_file(tapped).unwrap();
    }
}

#[test]
fn the_loss_of_a_process_is_noticed_and_explained_over_tls() {
    let ours = Authority::new();
    ours.sign("any", false);
    let path = |name: &str| ours.folder.join(name).to_str().unwrap().to_owned();
    let files = [path("any"), path("any.key"), path("ca")];
    let tls =
        ["--mesh-tls-cert", &files[0], "--mesh-tls-key", &files[1], "--mesh-tls-ca", &files[2]];
    let mut story = Story::new("tls_lost");
    story.produce(0..1_000);
    let hosts = hostfile(3);
    let mut run = story.cluster_at(&hosts, 3, &tls);
    story.until(2_000, &mut run.iter_mut().collect::<Vec<_>>());
    run.remove(1).kill();
    for survivor in run {
        let (status, _, err) = survivor.wait(Duration::from_secs(10));
        assert_eq!(status.code(), Some(7), "{err}");
        assert!(err.contains("error: process 1 at ") && err.contains(" was lost;"), "{err}");
    }
    story.produce(1_000..2_000);
    let mut run = story.cluster_at(&hosts, 3, &tls);
    story.until(4_000, &mut run.iter_mut().collect::<Vec<_>>());
    let moved = "update tidegate.slices set seq = seq + 1 where pipeline = $1 and partition = 1";
    story.client.execute(moved, &[&story.schema]).unwrap();
    let order = common::Order::event(2_000);
    common::produce(&story.topic, [(1, b"1".to_vec(), Some(order.json()))]);
    for (index, process) in run.into_iter().enumerate() {
        let (status, _, err) = process.wait(Duration::from_secs(15));
        assert!(!status.success());
        assert_eq!(err.contains("error: process 1 at "), index != 1, "{err}");
    }
}
