//! Whom a connection trusts, by a server that speaks TLS and then says no.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

use openssl::asn1::Asn1Time;
use openssl::hash::MessageDigest;
use openssl::pkey::{PKey, Private};
use openssl::rsa::Rsa;
use openssl::ssl::{SslAcceptor, SslMethod};
use openssl::x509::extension::SubjectAlternativeName;
use openssl::x509::{X509, X509NameBuilder};

use super::super::address::Address;
use super::super::connect::{Patience, Session, runtime};

/// A certificate for `localhost` that signs itself.
fn certificate() -> (X509, PKey<Private>) {
    let key = PKey::from_rsa(Rsa::generate(2048).expect("a key")).expect("a key");
    let mut name = X509NameBuilder::new().expect("a name");
    name.append_entry_by_text("CN", "tidegate tests").expect("a name");
    let name = name.build();
    let mut builder = X509::builder().expect("a certificate");
    builder.set_version(2).expect("version");
    builder.set_subject_name(&name).expect("subject");
    builder.set_issuer_name(&name).expect("issuer");
    builder.set_pubkey(&key).expect("key");
    builder.set_not_before(&Asn1Time::days_from_now(0).expect("now")).expect("from");
    builder.set_not_after(&Asn1Time::days_from_now(1).expect("later")).expect("upto");
    let names = SubjectAlternativeName::new()
        .dns("localhost")
        .build(&builder.x509v3_context(None, None))
        .expect("names");
    builder.append_extension(names).expect("names");
    builder.sign(&key, MessageDigest::sha256()).expect("signed");
    (builder.build(), key)
}

/// Answers every connection with TLS and a refusal that the client can tell.
fn serve(certificate: &X509, key: &PKey<Private>) -> u16 {
    let mut acceptor = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls()).expect("TLS");
    acceptor.set_certificate(certificate).expect("certificate");
    acceptor.set_private_key(key).expect("key");
    let acceptor = acceptor.build();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 8];
            // 80877103 is SSLRequest; whoever asks for less is left without an answer.
            if stream.read_exact(&mut request).is_err()
                || request[4..] != 80_877_103_u32.to_be_bytes()
                || stream.write_all(b"S").is_err()
            {
                continue;
            }
            let Ok(mut stream) = acceptor.accept(stream) else { continue };
            let mut startup = [0; 1024];
            let _ = stream.read(&mut startup);
            let fields = b"SFATAL\0C28P01\0Msecret kept\0\0";
            let mut answer = vec![b'E'];
            answer.extend_from_slice(&(fields.len() as u32 + 4).to_be_bytes());
            answer.extend_from_slice(fields);
            let _ = stream.write_all(&answer);
            // Until the client has read it and left.
            let _ = stream.read(&mut startup);
        }
    });
    port
}

struct File(PathBuf);

impl File {
    fn new(name: &str, certificate: &X509) -> Self {
        let path = std::env::temp_dir().join(format!("tidegate-{}-{name}.pem", std::process::id()));
        std::fs::write(&path, certificate.to_pem().expect("PEM")).expect("written");
        File(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn each_mode_trusts_whom_libpq_would() {
    let (certificate, key) = certificate();
    let port = serve(&certificate, &key);
    let own = File::new("own", &certificate);
    let other = File::new("other", &self::certificate().0);
    let (own, other) = (own.0.display(), other.0.display());
    let trusted = |host: &str, options: &str| {
        let text = format!("host={host} hostaddr=127.0.0.1 port={port} user=u dbname=d {options}");
        let address = Address::parse(&text).expect("a connection string");
        let patience = Patience::of(Duration::from_secs(10));
        let opened =
            runtime().expect("a runtime").block_on(Session::open(&address, "test", patience));
        let fault = opened.err().expect("the server lets nobody in").to_string();
        // The server's own refusal comes after the handshake.
        fault.contains("secret kept")
    };
    for host in ["localhost", "elsewhere"] {
        assert!(trusted(host, "sslmode=require"), "{host}");
        assert!(trusted(host, "sslmode=prefer"), "{host}");
        assert!(trusted(host, &format!("sslmode=verify-ca sslrootcert='{own}'")), "{host}");
        assert!(!trusted(host, &format!("sslmode=verify-ca sslrootcert='{other}'")), "{host}");
        assert!(!trusted(host, &format!("sslmode=require sslrootcert='{other}'")), "{host}");
        assert!(!trusted(host, &format!("sslmode=verify-full sslrootcert='{other}'")), "{host}");
    }
    assert!(trusted("localhost", &format!("sslmode=verify-full sslrootcert='{own}'")));
    assert!(!trusted("elsewhere", &format!("sslmode=verify-full sslrootcert='{own}'")));
    assert!(!trusted("localhost", "sslmode=disable connect_timeout=1"));
}
