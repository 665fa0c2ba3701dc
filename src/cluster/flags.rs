//! The flags of a cluster, with the meanings that they have in timely.

use std::path::PathBuf;
use std::time::Duration;

use crate::cluster::address;
use crate::cluster::secret::{Secret, VARIABLE};
use crate::cluster::tls::{Files, Tls};
use crate::error::{Error, Kind, Result};

/// How many workers and processes a run has, and which process this is.
///
/// `-w -n -p -h -r -z` mean what they mean to any timely program; so `-h` is the hostfile, and help is
/// `--help` only. Flattened into a command, these flags bring that `--help` along.
///
/// ```
/// use tidegate::cluster::Flags;
/// let mut flags = Flags::default();
/// assert_eq!(flags.workers(), 1);
/// flags.threads = 0;
/// assert_eq!(flags.validate().unwrap_err().to_string(), "-w is 0; a process needs at least one worker");
/// ```
#[derive(clap::Args, Clone, Debug)]
#[command(disable_help_flag = true)]
pub struct Flags {
    /// Workers in each process.
    #[arg(
        short = 'w',
        long = "threads",
        value_name = "NUM",
        default_value_t = 1,
        help_heading = "Cluster"
    )]
    pub threads: usize,

    /// Processes of the run.
    #[arg(
        short = 'n',
        long = "processes",
        value_name = "NUM",
        default_value_t = 1,
        help_heading = "Cluster"
    )]
    pub processes: usize,

    /// Which process this is, from 0.
    #[arg(
        short = 'p',
        long = "process",
        value_name = "IDX",
        default_value_t = 0,
        help_heading = "Cluster"
    )]
    pub process: usize,

    /// A file with one `host:port` a line for each process [default: localhost:2101, localhost:2102, ..].
    #[arg(short = 'h', long = "hostfile", value_name = "FILE", help_heading = "Cluster")]
    pub hostfile: Option<PathBuf>,

    /// Logs each connection to another process as it is made.
    #[arg(short = 'r', long = "report", help_heading = "Cluster")]
    pub report: bool,

    /// Serializes what the workers of one process exchange, as between processes.
    #[arg(short = 'z', long = "zerocopy", help_heading = "Cluster")]
    pub zerocopy: bool,

    /// A file with the cluster's secret, the same for all processes [default: $TIDEGATE_SECRET].
    #[arg(long = "secret-file", value_name = "PATH", help_heading = "Cluster")]
    pub secret_file: Option<PathBuf>,

    /// How long to wait for the other processes, such as `60s` or `5m`.
    #[arg(long = "peer-wait", value_name = "DURATION", default_value = "60s", value_parser = duration, help_heading = "Cluster")]
    pub peer_wait: Duration,

    /// How long another process of the run may show no sign of life before this one ends, at least 3s.
    #[arg(long = "peer-timeout", value_name = "DURATION", default_value = "15s", value_parser = duration, help_heading = "Cluster")]
    pub peer_timeout: Duration,

    /// This process's certificate in PEM, to encrypt what passes between processes; all three files or none.
    #[arg(
        long = "mesh-tls-cert",
        value_name = "FILE",
        requires_all = ["mesh_tls_key", "mesh_tls_ca"],
        help_heading = "Cluster"
    )]
    pub mesh_tls_cert: Option<PathBuf>,

    /// The certificate's key in PEM.
    #[arg(
        long = "mesh-tls-key",
        value_name = "FILE",
        requires = "mesh_tls_cert",
        help_heading = "Cluster"
    )]
    pub mesh_tls_key: Option<PathBuf>,

    /// The authority in PEM that signed the certificates of all processes, and of nothing else.
    #[arg(
        long = "mesh-tls-ca",
        value_name = "FILE",
        requires = "mesh_tls_cert",
        help_heading = "Cluster"
    )]
    pub mesh_tls_ca: Option<PathBuf>,

    /// Print help.
    #[doc(hidden)]
    #[arg(long = "help", action = clap::ArgAction::Help)]
    pub help: Option<bool>,
}

impl Default for Flags {
    /// One worker in one process.
    fn default() -> Self {
        Flags {
            threads: 1,
            processes: 1,
            process: 0,
            hostfile: None,
            report: false,
            zerocopy: false,
            secret_file: None,
            peer_wait: Duration::from_secs(60),
            peer_timeout: Duration::from_secs(15),
            mesh_tls_cert: None,
            mesh_tls_key: None,
            mesh_tls_ca: None,
            help: None,
        }
    }
}

impl Flags {
    /// The workers of all processes.
    pub fn workers(&self) -> usize {
        self.threads.saturating_mul(self.processes)
    }

    /// Checks the counts and the range of `-p`, of which timely checks none.
    pub fn validate(&self) -> Result<()> {
        let usage = |sentence: String| Err(Error::new(Kind::Usage, sentence));
        if self.threads == 0 {
            return usage("-w is 0; a process needs at least one worker".to_owned());
        }
        if self.processes == 0 {
            return usage("-n is 0; a run needs at least one process".to_owned());
        }
        if self.peer_timeout < Duration::from_secs(3) {
            return usage(format!(
                "--peer-timeout is {:?}; processes show a sign of life each second, so give them at least 3s",
                self.peer_timeout
            ));
        }
        if self.process >= self.processes {
            let (process, processes, last) = (self.process, self.processes, self.processes - 1);
            return usage(format!(
                "-p is {process}, but -n {processes} has only the processes 0 to {last}; set -n in all processes"
            ));
        }
        Ok(())
    }

    /// The address of each process; none for a run of one process.
    ///
    /// The line of this process is what it listens at, the others are what it dials: a process may
    /// have `0.0.0.0:2101` on its own line.
    pub fn addresses(&self) -> Result<Vec<String>> {
        self.validate()?;
        if self.processes == 1 {
            return Ok(Vec::new());
        }
        if let Some(path) = &self.hostfile {
            return address::read(path, self.processes);
        }
        if self.processes > usize::from(u16::MAX) - 2101 {
            let processes = self.processes;
            return Err(Error::new(
                Kind::Usage,
                format!(
                    "-n is {processes}, more than there are ports on `localhost`; name the processes by -h"
                ),
            ));
        }
        Ok((0..self.processes).map(|index| format!("localhost:{}", 2101 + index)).collect())
    }

    /// The processes whose address is one of this host.
    pub fn here(&self) -> Result<Vec<usize>> {
        let addresses = self.addresses()?;
        if addresses.is_empty() {
            return Ok(vec![0]);
        }
        let mut here = Vec::new();
        for (process, address) in addresses.iter().enumerate() {
            if address::is_here(address)? {
                here.push(process);
            }
        }
        if here.is_empty() {
            return Err(Error::config(
                "no address of the hostfile is one of this host; name this host's processes by --here",
            ));
        }
        Ok(here)
    }

    /// What makes the sockets secure, where certificates are given.
    pub(crate) fn tls(&self) -> Result<Option<Tls>> {
        match (&self.mesh_tls_cert, &self.mesh_tls_key, &self.mesh_tls_ca) {
            (None, None, None) => Ok(None),
            (Some(cert), Some(key), Some(ca)) => {
                let files = Files { cert: cert.clone(), key: key.clone(), ca: ca.clone() };
                Tls::new(&files).map(Some)
            }
            _ => Err(Error::new(
                Kind::Usage,
                "--mesh-tls-cert, --mesh-tls-key and --mesh-tls-ca belong together; give all three or none",
            )),
        }
    }

    /// The cluster's secret: that of `--secret-file`, else that of `TIDEGATE_SECRET`, else an empty
    /// one, which is refused where `addresses` lead beyond this host.
    pub fn secret(&self, addresses: &[String]) -> Result<Secret> {
        let secret = match &self.secret_file {
            Some(path) => Secret::read(path)?,
            None => Secret::from_environment(),
        };
        let beyond = addresses.iter().find(|address| !address::is_loopback(address));
        match beyond {
            Some(address) if secret.is_empty() => Err(Error::config(format!(
                "`{address}` is reachable from other hosts, but the cluster has no secret; give all processes the same --secret-file or {VARIABLE}"
            ))),
            _ => Ok(secret),
        }
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let span: jiff::SignedDuration =
        text.parse().map_err(|error: jiff::Error| error.to_string())?;
    Duration::try_from(span).map_err(|_| "a wait cannot be negative".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser, Debug)]
    struct Program {
        #[command(flatten)]
        cluster: Flags,
        rest: Vec<String>,
    }

    fn parse(line: &str) -> Result<Program, clap::Error> {
        Program::try_parse_from(std::iter::once("program").chain(line.split_whitespace()))
    }

    fn hostfile(name: &str, text: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("tidegate-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn flags_mean_what_they_mean_in_timely() {
        let program = parse("-w2 -n 3 -p 1 -h hosts.txt -r -z --peer-wait 2m orders").unwrap();
        let flags = program.cluster;
        assert_eq!((flags.threads, flags.processes, flags.process), (2, 3, 1));
        assert_eq!(flags.hostfile.as_deref(), Some("hosts.txt".as_ref()));
        assert!(flags.report && flags.zerocopy);
        assert_eq!(flags.peer_wait, Duration::from_secs(120));
        assert_eq!(program.rest, ["orders"]);
    }

    #[test]
    fn no_flags_are_the_default() {
        let flags = parse("").unwrap().cluster;
        assert_eq!(format!("{flags:?}"), format!("{:?}", Flags::default()));
        assert_eq!(flags.addresses().unwrap(), [] as [String; 0]);
    }

    #[test]
    fn help_is_long_only() {
        let kind = parse("--help").unwrap_err().kind();
        assert_eq!(kind, clap::error::ErrorKind::DisplayHelp);
        let kind = parse("-h").unwrap_err().kind();
        assert_eq!(kind, clap::error::ErrorKind::InvalidValue);
    }

    #[test]
    fn counts_and_ranges_are_checked() {
        for (line, sentence) in [
            ("-w 0", "-w is 0;"),
            ("-n 0", "-n is 0;"),
            ("--peer-timeout 2s", "--peer-timeout is 2s;"),
            ("-p 1", "-p is 1, but -n 1 has only the processes 0 to 0;"),
            ("-n 2 -p 2", "-p is 2, but -n 2 has only the processes 0 to 1;"),
        ] {
            let error = parse(line).unwrap().cluster.validate().unwrap_err();
            assert_eq!(error.kind(), Kind::Usage);
            assert!(error.to_string().starts_with(sentence), "{error}");
        }
    }

    #[test]
    fn processes_of_one_host_need_no_hostfile() {
        let flags = Flags { processes: 3, ..Flags::default() };
        assert_eq!(
            flags.addresses().unwrap(),
            ["localhost:2101", "localhost:2102", "localhost:2103"]
        );
    }

    #[test]
    fn a_hostfile_may_have_comments_and_blank_lines() {
        let path = hostfile("comments", "# ours\n\n  a:1  \nb:2 # the second\n\nc:3\nnot read\n");
        let flags = Flags { processes: 3, hostfile: Some(path.clone()), ..Flags::default() };
        assert_eq!(flags.addresses().unwrap(), ["a:1", "b:2", "c:3"]);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_hostfile_that_is_wrong_names_its_line() {
        for (name, text, sentence) in [
            ("short", "a:1\n# b:2\n", "names 1 addresses, but -n is 2"),
            ("port", "a:1\nb\n", "line 2 of the hostfile"),
            ("twice", "a:1\na:1\n", "lines 1 and 2 of the hostfile"),
        ] {
            let path = hostfile(name, text);
            let flags = Flags { processes: 2, hostfile: Some(path.clone()), ..Flags::default() };
            let error = flags.addresses().unwrap_err();
            assert_eq!(error.kind(), Kind::Config);
            assert!(error.to_string().contains(sentence), "{error}");
            std::fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn other_hosts_need_a_secret() {
        let addresses = ["localhost:1".to_owned(), "0.0.0.0:2".to_owned()];
        let mut flags = Flags::default();
        assert!(flags.secret(&addresses[..1]).is_ok());
        let error = flags.secret(&addresses).unwrap_err().to_string();
        assert!(error.starts_with("`0.0.0.0:2` is reachable from other hosts"), "{error}");

        let path = hostfile("secret", "open sesame\n");
        flags.secret_file = Some(path.clone());
        assert!(!flags.secret(&addresses).unwrap().is_empty());
        std::fs::write(&path, "\n").unwrap();
        assert!(flags.secret(&addresses).unwrap_err().to_string().contains("is empty"));
        std::fs::remove_file(path).unwrap();
    }
}
