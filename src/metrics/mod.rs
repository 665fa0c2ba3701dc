//! The figures of a run for others: Prometheus, probes, a page, JSON.
//!
//! One [`Server`] a process, started before the run, so that it answers while the run connects or waits as
//! a standby. It reads snapshots and nothing else: `/metrics` for Prometheus, `/status.json`, `/healthz` and
//! `/readyz` with a reason, `/` as a page for people. Nothing secret is in any of them. What goes wrong
//! here is never the run's concern.

mod answer;
mod client;
mod names;
mod prometheus;
mod server;

pub use client::fetch;
pub use names::{Kind, METRICS, Metric};
pub use prometheus::render;
pub use server::Server;
