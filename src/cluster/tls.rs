//! TLS under the handshake, where certificates are given: both ends show one of the cluster's authority.
//!
//! Timely and the watch want plain sockets that can be cloned. So a thread of our own speaks TLS, and
//! what it deciphers goes through a pair of loopback sockets, of which the mesh gets one end. The
//! authority is the cluster's own: whoever has a certificate of it is a process of the cluster, whatever
//! name it is for; the secret is asked for inside, as ever.

use std::fs::File;
use std::io::{self, BufReader};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crossbeam_channel::bounded;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, copy_bidirectional, sink};
use tokio::runtime::Handle;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{
    self, AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore,
    ServerConfig, SignatureScheme,
};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use crate::cluster::link;
use crate::error::{Error, Result};

/// How whoever dials begins.
pub(crate) const HANDSHAKE: [u8; 2] = [0x16, 3];

/// The alert `unexpected_message` (RFC 8446, sections 5.1 and 6), for one who does not speak TLS.
pub(crate) const ALERT: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 10];

/// Whose certificate, whose key, and of which authority the others' must be.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) ca: PathBuf,
}

/// Makes sockets secure.
#[derive(Clone)]
pub(crate) struct Tls {
    connector: TlsConnector,
    acceptor: TlsAcceptor,
    pump: Handle,
}

/// Which end of a connection this is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Dialler,
    Acceptor,
}

impl Tls {
    pub(crate) fn new(files: &Files) -> Result<Self> {
        let provider = Arc::new(ring::default_provider());
        let certs = certificates(&files.cert)?;
        let wrong = |path: &Path, error: &dyn std::fmt::Display| {
            Error::config(format!(
                "`{}` cannot be used for the mesh's TLS ({error})",
                path.display()
            ))
        };
        let key =
            PrivateKeyDer::from_pem_file(&files.key).map_err(|error| wrong(&files.key, &error))?;
        let mut roots = RootCertStore::empty();
        for root in certificates(&files.ca)? {
            roots.add(root).map_err(|error| wrong(&files.ca, &error))?;
        }
        let roots = Arc::new(roots);
        let servers =
            WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
                .build()
                .map_err(|error| wrong(&files.ca, &error))?;
        let clients = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider))
            .build()
            .map_err(|error| wrong(&files.ca, &error))?;
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| wrong(&files.cert, &error))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyName(servers, Arc::clone(&provider))))
            .with_client_auth_cert(certs.clone(), key.clone_key())
            .map_err(|error| wrong(&files.cert, &error))?;
        let server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| wrong(&files.cert, &error))?
            .with_client_cert_verifier(clients)
            .with_single_cert(certs, key)
            .map_err(|error| wrong(&files.cert, &error))?;
        Ok(Tls {
            connector: TlsConnector::from(Arc::new(client)),
            acceptor: TlsAcceptor::from(Arc::new(server)),
            pump: pump()?,
        })
    }

    /// Shakes hands over `stream`; what is read from and written to the result goes through it
    /// enciphered. The error is the reason why it failed.
    pub(crate) fn secure(
        &self,
        stream: TcpStream,
        end: End,
        limit: Duration,
    ) -> Result<TcpStream, String> {
        let plain = |error: io::Error| error.to_string();
        let (near, far) = loopback().map_err(plain)?;
        stream.set_nodelay(true).map_err(plain)?;
        link::guard(&stream).map_err(plain)?;
        far.set_nodelay(true).map_err(plain)?;
        let (this, (done, shaken)) = (self.clone(), bounded(1));
        self.pump.spawn(async move {
            let shaking = tokio::time::timeout(limit, this.shake(stream, end));
            let mut secured = match shaking.await {
                Ok(Ok(secured)) => secured,
                Ok(Err(error)) => return drop(done.send(Err(reason(&error)))),
                Err(_) => return drop(done.send(Err("it was silent for too long".to_owned()))),
            };
            let far = far.set_nonblocking(true).and_then(|()| tokio::net::TcpStream::from_std(far));
            let Ok(mut far) = far else { return };
            let _ = done.send(Ok(()));
            // Whoever has the other ends finds out how it ended.
            let _ = copy_bidirectional(&mut secured, &mut far).await;
        });
        match shaken.recv() {
            Ok(Ok(())) => Ok(near),
            Ok(Err(reason)) => Err(reason),
            Err(_) => Err("the system gives no more sockets".to_owned()),
        }
    }

    async fn shake(
        &self,
        stream: TcpStream,
        end: End,
    ) -> io::Result<TlsStream<tokio::net::TcpStream>> {
        stream.set_nonblocking(true)?;
        let stream = tokio::net::TcpStream::from_std(stream)?;
        // Who dials is done before the other end has judged its certificate: a byte says that it is good.
        let mut byte = [0];
        if end == End::Acceptor {
            let mut secured = match self.acceptor.accept(stream).into_fallible().await {
                Ok(secured) => secured,
                Err((error, mut stream)) => {
                    if let Some(rustls::Error::InvalidMessage(_)) = of_tls(&error) {
                        let _ = stream.write_all(&ALERT).await;
                    }
                    // Read to the end, or closing would take back what was said.
                    let _ = stream.shutdown().await;
                    let mut nowhere = sink();
                    let rest = copy(&mut stream, &mut nowhere);
                    let _ = tokio::time::timeout(Duration::from_secs(1), rest).await;
                    return Err(error);
                }
            };
            secured.write_all(&byte).await?;
            secured.flush().await?;
            return Ok(secured.into());
        }
        let name = ServerName::IpAddress(Ipv4Addr::LOCALHOST.into());
        let mut secured = self.connector.connect(name, stream).await?;
        secured.read_exact(&mut byte).await?;
        Ok(secured.into())
    }
}

/// The authority decides, and no name: processes are known by their place in the hostfile, and prove by
/// the secret that they belong there.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>, Arc<CryptoProvider>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        use CertificateError::{NotValidForName, NotValidForNameContext};
        match self.0.verify_server_cert(end_entity, intermediates, server_name, ocsp, now) {
            // The name is looked at last, when all else was right.
            Err(rustls::Error::InvalidCertificate(
                NotValidForName | NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.1.signature_verification_algorithms.supported_schemes()
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let place = path.display();
    let file = File::open(path).map_err(|error| {
        Error::config(format!("cannot read the certificate `{place}` ({error})")).because(error)
    })?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_reader_iter(BufReader::new(file)).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(Error::config(format!("`{place}` holds no certificate in the form of PEM"))),
    }
}

fn of_tls(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}

/// Why a handshake failed, in the words of this program.
fn reason(error: &io::Error) -> String {
    use rustls::Error::{
        AlertReceived, InvalidCertificate, InvalidMessage, NoCertificatesPresented,
    };
    match of_tls(error) {
        Some(InvalidCertificate(wrong)) => {
            let what = match wrong {
                CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                    "is of another authority than --mesh-tls-ca".to_owned()
                }
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                    "has expired".to_owned()
                }
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                    "is not valid yet".to_owned()
                }
                other => format!("is refused ({other})"),
            };
            format!("its certificate {what}")
        }
        Some(AlertReceived(alert)) => {
            let what = match alert {
                AlertDescription::UnknownCA | AlertDescription::DecryptError => {
                    "is of another authority than its own".to_owned()
                }
                AlertDescription::CertificateExpired => "has expired".to_owned(),
                other => format!("or TLS is refused ({other:?})"),
            };
            format!("it says that this process's certificate {what}")
        }
        Some(InvalidMessage(_)) => {
            "it does not speak TLS; give all processes the --mesh-tls flags, or none".to_owned()
        }
        Some(NoCertificatesPresented) => "it shows no certificate".to_owned(),
        Some(other) => format!("TLS failed ({other})"),
        // Who does not speak it may leave before it has read all.
        None if matches!(
            error.kind(),
            io::ErrorKind::UnexpectedEof
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::BrokenPipe
        ) =>
        {
            "it closed the connection during TLS; give all processes the --mesh-tls flags, or none"
                .to_owned()
        }
        None => error.to_string(),
    }
}

/// Two ends of one connection within this process.
fn loopback() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    loop {
        let (far, from) = listener.accept()?;
        // Anybody on this host may have called.
        if from == near.local_addr()? {
            return Ok((near, far));
        }
    }
}

/// The thread that speaks TLS, one for the program.
fn pump() -> Result<Handle> {
    static PUMP: OnceLock<Handle> = OnceLock::new();
    if let Some(handle) = PUMP.get() {
        return Ok(handle.clone());
    }
    let cannot =
        |error: io::Error| Error::internal("the thread for TLS cannot start").because(error);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name("tidegate:tls".to_owned())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))
        .map_err(cannot)?;
    // Where two begin at once each has a thread; the first one's serves all later.
    Ok(PUMP.get_or_init(|| handle).clone())
}
