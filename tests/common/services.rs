//! Kafka brokers of one test, which may stop them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Brokers that `scripts/services` started in a folder and on ports of their own; stopped when dropped.
pub struct Services {
    folder: PathBuf,
    port: u16,
    brokers: u16,
}

impl Services {
    /// Starts `brokers` of them, with more listeners where they are `secured`. `slot` tells the tests of one
    /// file apart.
    pub fn start(slot: u16, brokers: u16, secured: bool) -> Self {
        let pid = std::process::id();
        // Below the ports that the system gives to clients, and 400 apart: see `scripts/services`.
        let port = 20_000 + 400 * ((pid as u16 % 9) * 3 + slot);
        let folder = std::env::temp_dir().join(format!("tidegate-services-{pid}-{slot}"));
        let services = Services { folder, port, brokers };
        let count = brokers.to_string();
        let more: &[&str] = if secured { &["--secured"] } else { &[] };
        services.call(&[&["up", "--only", "kafka", "--brokers", &count], more].concat());
        services
    }

    /// Their addresses.
    pub fn brokers(&self) -> String {
        let address = |index| format!("127.0.0.1:{}", self.port + index);
        (0..self.brokers).map(address).collect::<Vec<_>>().join(",")
    }

    /// Where the first one asks for a login over TLS.
    pub fn sasl(&self) -> String {
        format!("127.0.0.1:{}", self.port + 200)
    }

    /// Where the first one asks for a client's certificate.
    pub fn tls(&self) -> String {
        format!("127.0.0.1:{}", self.port + 300)
    }

    /// Where the certificate `name` is.
    pub fn certificate(&self, name: &str) -> String {
        self.folder.join("kafka/tls").join(name).display().to_string()
    }

    /// A broker is killed.
    pub fn kill(&self, index: u16) {
        self.call(&["stop-broker", &index.to_string(), "immediate"]);
    }

    /// A broker starts again, and answers.
    pub fn restart(&self, index: u16) {
        self.call(&["start-broker", &index.to_string()]);
    }

    fn call(&self, args: &[&str]) {
        let port = self.port.to_string();
        let folder = self.folder.to_str().expect("a path");
        call(args, &[("TIDEGATE_SERVICES_DIR", folder), ("TIDEGATE_KAFKA_PORT", &port)]);
    }
}

/// Calls `scripts/services`, for services of a test's own.
pub fn call(args: &[&str], environment: &[(&str, &str)]) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/services");
    let mut command = Command::new(script);
    command.args(args).env_remove("TIDEGATE_BROKERS").env_remove("DATABASE_URL");
    command.envs(environment.iter().copied()).stdin(Stdio::null());
    let output = command.output().expect("the script runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "scripts/services {}: {said}", args.join(" "));
}

impl Drop for Services {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The test has said what is wrong; this must not say it in its place.
            let _ = std::panic::catch_unwind(|| self.call(&["down", "--only", "kafka"]));
        } else {
            self.call(&["down", "--only", "kafka"]);
        }
    }
}
