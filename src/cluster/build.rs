//! From flags and sockets to timely's builders.

use std::any::Any;

use timely::communication::allocator::zero_copy::initialize::initialize_networking_from_sockets;
use timely::communication::allocator::{AllocatorBuilder, ProcessBuilder};
use timely::communication::{Config, Hooks};

use crate::cluster::flags::Flags;
use crate::cluster::link::Link;
use crate::cluster::mesh::Mesh;
use crate::error::{Error, Result};

/// What `timely::execute::execute_from` takes: a builder for each worker of this process, and the guard
/// that joins timely's communication threads.
pub type Builders = (Vec<AllocatorBuilder>, Box<dyn Any + Send>);

/// Hands the sockets of `mesh` over to timely.
///
/// For one process these are timely's own threads, with `-z` over serialized channels.
pub fn builders(flags: &Flags, mesh: Mesh) -> Result<Builders> {
    flags.validate()?;
    let failed = |error: String| {
        Error::internal(format!("timely's communication threads cannot start ({error})"))
    };
    if flags.processes == 1 {
        let config = match (flags.threads, flags.zerocopy) {
            (1, _) => Config::Thread,
            (threads, false) => Config::Process(threads),
            (threads, true) => Config::ProcessBinary(threads),
        };
        return config.try_build().map_err(failed);
    }
    let (process, threads, hooks) = (mesh.process, flags.threads, Hooks::default());
    let sockets = mesh.links.into_iter().map(|link| link.map(Link::into_stream).transpose());
    let sockets = sockets.collect::<Result<Vec<_>>>()?;
    let new = if flags.zerocopy {
        ProcessBuilder::new_bytes_vector
    } else {
        ProcessBuilder::new_typed_vector
    };
    let local = new(threads, hooks.refill.clone(), None);
    let (tcp, guard) = initialize_networking_from_sockets(local, sockets, process, threads, hooks)
        .map_err(|error| failed(error.to_string()).because(error))?;
    Ok((tcp.into_iter().map(AllocatorBuilder::Tcp).collect(), Box::new(guard)))
}
