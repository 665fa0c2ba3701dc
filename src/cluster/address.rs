//! Where a process listens: `host:port`.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs};
use std::path::Path;

use crate::error::{Error, Kind, Result};

/// The addresses of a hostfile's first `processes` lines, without blank lines and `#` comments.
pub(crate) fn read(path: &Path, processes: usize) -> Result<Vec<String>> {
    let place = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| {
        Error::config(format!("cannot read the hostfile `{place}` ({error})")).because(error)
    })?;
    let mut found: Vec<(usize, String)> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() || found.len() == processes {
            continue;
        }
        let number = number + 1;
        if split(line).is_none() {
            return Err(Error::config(format!(
                "line {number} of the hostfile `{place}` is `{line}`, not `host:port`"
            )));
        }
        if let Some((earlier, _)) = found.iter().find(|(_, address)| address == line) {
            return Err(Error::config(format!(
                "lines {earlier} and {number} of the hostfile `{place}` are both `{line}`; each process needs its own address"
            )));
        }
        found.push((number, line.to_owned()));
    }
    if found.len() < processes {
        let lines = found.len();
        return Err(Error::config(format!(
            "the hostfile `{place}` names {lines} addresses, but -n is {processes}; add one line for each process"
        )));
    }
    Ok(found.into_iter().map(|(_, address)| address).collect())
}

/// Whether only this host can be meant. Names other than `localhost` are not looked up: what they
/// mean may change after the question.
pub(crate) fn is_loopback(address: &str) -> bool {
    let Some((host, _)) = split(address) else { return false };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Whether a process of this host can listen there. A name that cannot be resolved is an error.
pub(crate) fn is_here(address: &str) -> Result<bool> {
    let found = resolve(address).map_err(|error| {
        Error::config(format!(
            "`{address}` cannot be looked up ({error}); name this host's processes by --here"
        ))
        .because(error)
    })?;
    // Only an address of this host can be bound to; at any port, since the real one may be in use.
    Ok(found.iter().any(|at| TcpListener::bind((at.ip(), 0)).is_ok()))
}

/// All that the address means, in the resolver's order.
pub(crate) fn resolve(address: &str) -> io::Result<Vec<SocketAddr>> {
    Ok(address.to_socket_addrs()?.collect())
}

/// Listens at the first address of this host that `address` means.
pub(crate) fn bind(address: &str) -> Result<TcpListener> {
    let failed = |error: io::Error| {
        let sentence = match error.kind() {
            io::ErrorKind::AddrInUse => format!(
                "the address `{address}` is in use; perhaps this process runs already, or one of the run before has not ended; else give it another line in the hostfile"
            ),
            io::ErrorKind::AddrNotAvailable => format!(
                "the address `{address}` is not one of this host; check -p and this process's line in the hostfile"
            ),
            _ => format!("cannot listen at `{address}` ({error})"),
        };
        // A port may be free again soon.
        let taken = error.kind() == io::ErrorKind::AddrInUse;
        let kind = if taken { Kind::Peer } else { Kind::Config };
        Error::new(kind, sentence).because(error).retryable(taken)
    };
    let mut last = io::Error::new(io::ErrorKind::AddrNotAvailable, "the name has no address");
    for candidate in resolve(address).map_err(failed)? {
        match TcpListener::bind(candidate) {
            Ok(listener) => return Ok(listener),
            // Going on to the next meaning of `localhost` would leave the diallers at a stranger.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(failed(error)),
            Err(error) => last = error,
        }
    }
    Err(failed(last))
}

fn split(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let plain = !host.is_empty() && !host.contains(char::is_whitespace);
    let bracketed = !host.contains(':') || (host.starts_with('[') && host.ends_with(']'));
    let port = port.parse().ok().filter(|port| *port > 0)?;
    (plain && bracketed).then_some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_host_is_loopback() {
        for address in ["localhost:1", "127.0.0.1:2101", "127.8.0.1:2101", "[::1]:2101"] {
            assert!(is_loopback(address), "{address}");
        }
        for address in
            ["0.0.0.0:2101", "10.0.0.1:2101", "db:2101", "localhost.evil.org:1", "[::]:1"]
        {
            assert!(!is_loopback(address), "{address}");
        }
    }

    #[test]
    fn an_address_of_this_host_is_known_by_binding() {
        assert!(is_here("127.0.0.1:2101").unwrap() && is_here("0.0.0.0:2101").unwrap());
        // TEST-NET-1 of RFC 5737 belongs to nobody.
        assert!(!is_here("192.0.2.1:2101").unwrap());
        assert_eq!(is_here("nowhere.invalid:1").unwrap_err().kind(), Kind::Config);
    }

    #[test]
    fn an_address_is_host_and_port() {
        assert_eq!(split("a:1"), Some(("a", 1)));
        assert_eq!(split("[::1]:1"), Some(("[::1]", 1)));
        for wrong in ["a", ":1", "a:", "a:0", "a:70000", "a b:1", "::1:1", "a:1 b:2"] {
            assert_eq!(split(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_port_in_use_is_one_sentence() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap().to_string();
        let error = bind(&address).unwrap_err();
        assert_eq!(error.kind(), Kind::Peer);
        assert!(
            error.to_string().starts_with(&format!("the address `{address}` is in use;")),
            "{error}"
        );
    }
}
