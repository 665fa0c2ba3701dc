//! Many processes as one run: flags, sockets, the agreement to start, timely's builders.
//!
//! ```text
//! Flags -> Mesh::connect -> agree -> builders -> timely::execute::execute_from
//! ```
//!
//! [`Flags`] have timely's own meanings. [`Mesh::connect`] opens two TCP connections between each two
//! processes; both ends prove that they know the cluster's secret before anything else is read, so
//! that a stranger can neither join nor stop a start. [`agree()`] then makes sure that all processes
//! run the same plan, lets process 0 take the pipeline's lock, and hands its result to all. Only after
//! that does timely get one socket of each two, by [`builders`]; over the other the processes of a
//! [`Pipeline`](crate::Pipeline) show signs of life, and tell each other why they end.
//!
//! The sockets are authenticated, and encrypted where certificates are given ([`Flags::mesh_tls_cert`]):
//! else, between hosts, use a network that nobody else can write to, or a tunnel.
//!
//! A mesh of one process has no sockets; all of the above works for it in the same way.
//!
//! ```
//! use tidegate::cluster::{Agreed, Flags, Joined, Mesh, agree, builders};
//! use tidegate::run::Stop;
//!
//! # fn main() -> tidegate::Result<()> {
//! let (flags, stop) = (Flags::default(), Stop::default());
//! let Joined::Mesh(mut mesh) = Mesh::connect(&flags, "orders", &stop)? else { return Ok(()) };
//! let digest = Ok("the plan's hash".to_owned());
//! let agreed = agree(&mut mesh, digest, &stop, |waiting| {
//!     waiting("waiting for the lock of `orders`")?;
//!     Ok(7u64)
//! })?;
//! let Agreed::Start { payload, .. } = agreed else { return Ok(()) };
//! assert_eq!(payload, 7);
//! let (builders, guard) = builders(&flags, mesh)?;
//! assert_eq!(builders.len(), 1);
//! # drop(guard);
//! # Ok(())
//! # }
//! ```

mod address;
mod agree;
mod build;
mod dial;
mod flags;
mod follow;
mod hello;
mod lead;
mod limits;
mod link;
mod mesh;
mod message;
pub mod panic;
mod rate;
mod secret;
mod tls;
mod watch;

pub(crate) use agree::agree_and_tell;
pub use agree::{Agreed, agree};
pub use build::{Builders, builders};
pub use flags::Flags;
pub use mesh::{Joined, Mesh};
pub use secret::Secret;
