//! TLS as libpq has it: the meaning of `sslmode` and of the files beside it
//! (<https://www.postgresql.org/docs/current/libpq-ssl.html>).

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use openssl::error::ErrorStack;
use openssl::pkey::PKey;
use openssl::ssl::{SslConnector, SslMethod, SslVerifyMode};
use postgres_openssl::MakeTlsConnector;
use tokio_postgres::config::SslMode;

use crate::error::{Error, Result};

/// `sslmode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    /// Never.
    Disable,
    /// Only where the server insists.
    Allow,
    /// Where the server offers it.
    #[default]
    Prefer,
    /// Always, with whoever answers.
    Require,
    /// Always, with a certificate that an authority signed.
    VerifyCa,
    /// Always, with a certificate for this very host.
    VerifyFull,
}

/// What the connection string says about TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tls {
    pub mode: Option<Mode>,
    pub root: Option<String>,
    pub certificate: Option<String>,
    pub key: Option<String>,
    pub password: Option<Secret>,
}

/// A text that never prints.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Secret(pub String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Tls {
    /// Takes one parameter; `false` where it is not about TLS.
    pub fn set(&mut self, name: &str, value: &str) -> Result<bool> {
        match name {
            "sslmode" => {
                self.mode = Some(match value {
                    "disable" => Mode::Disable,
                    "allow" => Mode::Allow,
                    "prefer" => Mode::Prefer,
                    "require" => Mode::Require,
                    "verify-ca" => Mode::VerifyCa,
                    "verify-full" => Mode::VerifyFull,
                    _ => {
                        return Err(Error::config(
                            "`sslmode` is one of `disable`, `allow`, `prefer`, `require`, \
                             `verify-ca`, `verify-full`",
                        ));
                    }
                });
            }
            "sslrootcert" => self.root = Some(value.into()),
            "sslcert" => self.certificate = Some(value.into()),
            "sslkey" => self.key = Some(value.into()),
            "sslpassword" => self.password = Some(Secret(value.into())),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The mode in effect: `sslrootcert=system` implies full verification, and a root certificate
    /// makes `require` verify, as in libpq.
    pub fn effective(&self) -> Result<Mode> {
        match (self.mode, self.root.as_deref()) {
            (None | Some(Mode::VerifyFull), Some("system")) => Ok(Mode::VerifyFull),
            (Some(_), Some("system")) => Err(Error::config(
                "`sslrootcert=system` needs `sslmode=verify-full`: anybody can get a certificate",
            )),
            (Some(Mode::Require), Some(_)) => Ok(Mode::VerifyCa),
            (mode, _) => Ok(mode.unwrap_or_default()),
        }
    }

    /// How to try to connect, one after the other.
    pub fn attempts(&self) -> Result<&'static [SslMode]> {
        Ok(match self.effective()? {
            Mode::Disable => &[SslMode::Disable],
            Mode::Allow => &[SslMode::Disable, SslMode::Require],
            Mode::Prefer => &[SslMode::Prefer, SslMode::Disable],
            Mode::Require | Mode::VerifyCa | Mode::VerifyFull => &[SslMode::Require],
        })
    }

    /// The connector. Reads the files, each time: they may be renewed while a run lasts. One that needs
    /// none is made once, since OpenSSL reads the system's bundle for it all the same (17 ms, measured).
    pub fn connector(&self) -> Result<MakeTlsConnector> {
        static WITHOUT_FILES: OnceLock<MakeTlsConnector> = OnceLock::new();
        let mode = self.effective()?;
        let verifies = matches!(mode, Mode::VerifyCa | Mode::VerifyFull);
        let presents = mode != Mode::Disable && (self.certificate.is_some() || self.key.is_some());
        if verifies || presents {
            return self.read(mode);
        }
        if let Some(made) = WITHOUT_FILES.get() {
            return Ok(made.clone());
        }
        let made = self.read(mode)?;
        Ok(WITHOUT_FILES.get_or_init(|| made).clone())
    }

    fn read(&self, mode: Mode) -> Result<MakeTlsConnector> {
        let mut builder = SslConnector::builder(SslMethod::tls_client())
            .map_err(|error| Error::internal("set up TLS").because(error))?;
        match mode {
            Mode::VerifyCa | Mode::VerifyFull => {
                builder.set_verify(SslVerifyMode::PEER);
                let root = self.root_file()?;
                builder
                    .set_ca_file(&root)
                    .map_err(|error| unreadable("sslrootcert", &root, error))?;
            }
            _ => builder.set_verify(SslVerifyMode::NONE),
        }
        if mode != Mode::Disable {
            if let Some(file) = &self.certificate {
                builder
                    .set_certificate_chain_file(file)
                    .map_err(|error| unreadable("sslcert", Path::new(file), error))?;
            }
            if let Some(file) = &self.key {
                let path = Path::new(file);
                let pem = std::fs::read(path).map_err(|error| unreadable("sslkey", path, error))?;
                let password = self.password.as_ref().map_or("", |secret| &secret.0);
                let key = PKey::private_key_from_pem_passphrase(&pem, password.as_bytes())
                    .map_err(|error| unreadable("sslkey", path, error))?;
                builder.set_private_key(&key).map_err(|error| unreadable("sslkey", path, error))?;
            }
        }
        let mut connector = MakeTlsConnector::new(builder.build());
        if mode != Mode::VerifyFull {
            connector.set_callback(|config, _host| -> Result<(), ErrorStack> {
                config.set_verify_hostname(false);
                Ok(())
            });
        }
        Ok(connector)
    }

    fn root_file(&self) -> Result<PathBuf> {
        match self.root.as_deref() {
            Some("system") => system_roots().ok_or_else(|| {
                Error::config(
                    "`sslrootcert=system`: no bundle of certificates was found; name it by \
                     `sslrootcert=FILE` or the variable `SSL_CERT_FILE`",
                )
            }),
            Some(file) => Ok(file.into()),
            None => std::env::var_os("HOME")
                .map(|home| Path::new(&home).join(".postgresql/root.crt"))
                .filter(|file| file.exists())
                .ok_or_else(|| {
                    Error::config(
                        "`sslmode=verify-ca` and `verify-full` need `sslrootcert=FILE` or \
                         `sslrootcert=system`",
                    )
                }),
        }
    }
}

fn unreadable(
    what: &str,
    file: &Path,
    error: impl std::error::Error + Send + Sync + 'static,
) -> Error {
    Error::config(format!("`{what}`: `{}` cannot be read as such", file.display())).because(error)
}

/// Where systems keep their bundle: OpenSSL was built here, and does not know.
fn system_roots() -> Option<PathBuf> {
    let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let usual = [
        "/etc/ssl/certs/ca-certificates.crt",
        "/etc/pki/tls/certs/ca-bundle.crt",
        "/etc/ssl/ca-bundle.pem",
        "/etc/ssl/cert.pem",
    ];
    named.into_iter().chain(usual.map(PathBuf::from)).find(|file| file.exists())
}
