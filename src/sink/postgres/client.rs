//! A blocking client, for the command line.

use postgres::{Client, Config};

use super::address::Address;
use super::retry::Fault;
use crate::error::Result;

/// Connects to the database at `url`, TLS and all as the writers do.
pub(crate) fn connect(url: &str, application: &str) -> Result<Client> {
    let address = Address::parse(url)?;
    let connector = address.tls.connector()?;
    let mut last = None;
    for mode in address.tls.attempts()? {
        let mut config = Config::from(address.config.clone());
        config.application_name(application).ssl_mode(*mode);
        match config.connect(connector.clone()) {
            Ok(client) => return Ok(client),
            Err(error) => last = Some(error),
        }
    }
    let fault = Fault::from(last.expect("there is a way at least"));
    Err(fault.during(format!("connect to `{}`", address.identity)))
}
