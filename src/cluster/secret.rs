//! The secret that all processes of a cluster share.

use std::fmt;
use std::path::Path;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::error::{Error, Result};

/// The environment variable that holds the secret where no file is named.
pub(crate) const VARIABLE: &str = "TIDEGATE_SECRET";

/// The cluster's secret; neither `Debug` nor any message shows it.
///
/// ```
/// use tidegate::cluster::Secret;
/// assert_eq!(format!("{:?}", Secret::new("open sesame")), "Secret(..)");
/// ```
#[derive(Clone, Default)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// A secret of these bytes; an empty one is good only among processes of one host.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Secret(bytes.into())
    }

    /// Reads the secret from a file; white space around it does not count.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).map_err(|error| {
            let path = path.display();
            Error::config(format!("cannot read the secret file `{path}` ({error})")).because(error)
        })?;
        let secret = bytes.trim_ascii();
        if secret.is_empty() {
            let path = path.display();
            return Err(Error::config(format!(
                "the secret file `{path}` is empty; fill it, for example by `openssl rand -hex 32`"
            )));
        }
        Ok(Secret(secret.to_vec()))
    }

    /// Reads the secret from the environment; unset and empty mean none.
    pub(crate) fn from_environment() -> Self {
        let value = std::env::var_os(VARIABLE).unwrap_or_default();
        Secret(value.as_encoded_bytes().trim_ascii().to_vec())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The keyed hash of `parts`.
    pub(crate) fn tag(&self, parts: &[&[u8]]) -> [u8; 32] {
        self.mac(parts).finalize().into_bytes().into()
    }

    /// Whether `tag` is the keyed hash of `parts`, compared in constant time.
    pub(crate) fn verifies(&self, parts: &[&[u8]], tag: &[u8; 32]) -> bool {
        self.mac(parts).verify_slice(tag).is_ok()
    }

    fn mac(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        for part in parts {
            // The length in front keeps `ab|c` and `a|bc` apart.
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        mac
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}
