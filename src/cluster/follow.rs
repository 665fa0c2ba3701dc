//! The part of every process but 0 in an agreement.

use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;

use crate::cluster::agree::{Agreed, launches, unexpected};
use crate::cluster::link::Link;
use crate::cluster::mesh::Mesh;
use crate::cluster::message::{Message, Refusal};
use crate::error::{Error, Kind, Result};
use crate::run::Stop;

/// Tells process 0 the plan, and does what it says.
pub(crate) fn follow<S: DeserializeOwned>(
    mesh: &mut Mesh,
    plan: Result<String>,
    stop: &Stop,
    told: &dyn Fn(&str),
) -> Result<Agreed<S>> {
    let (me, launches, limits) = (mesh.process, launches(mesh), mesh.limits);
    let (mut first, mut others) = (None, Vec::new());
    for link in mesh.links.iter_mut().flatten() {
        if link.process == 0 { first = Some(link) } else { others.push(link) }
    }
    let leader: &mut Link = first.ok_or_else(|| Error::internal("no connection to process 0"))?;
    leader.send(&Message::Ready { plan: plan.map_err(|error| Refusal::from(&error)), launches })?;

    let mut patience = limits.ready;
    let began = Instant::now();
    let mut heard = began;
    let mut said = String::new();
    // That the others wait for it is no news to this process.
    let own = format!("waiting for process {me} ");
    let mut stopping: Option<Instant> = None;
    let mut losing: Option<(Instant, Error)> = None;
    loop {
        match leader.poll() {
            Ok(None) => {}
            Ok(Some(message)) => {
                heard = Instant::now();
                patience = limits.silence;
                match message {
                    Message::Waiting { line } => {
                        let of_this = line.starts_with(&own);
                        if line != said && !line.is_empty() && !of_this {
                            tracing::info!("{line}");
                            told(&line);
                            said = line;
                        }
                        continue;
                    }
                    Message::Stopped => return Ok(Agreed::Stopped),
                    Message::Refused(refusal) => return Err(refusal.into()),
                    Message::Start { payload, elapsed } => {
                        leader.send(&Message::Started)?;
                        let payload = serde_json::from_value(payload).map_err(|error| {
                            Error::internal("process 0 sent a start that cannot be read")
                                .because(error)
                        })?;
                        return Ok(Agreed::Start { payload, elapsed: elapsed + heard.elapsed() });
                    }
                    _ => return Err(unexpected(0)),
                }
            }
            // Who wanted to leave does not mind that process 0 left first.
            Err(_) if stopping.is_some() => return Ok(Agreed::Stopped),
            Err(error) => return Err(error),
        }

        if stop.is_requested() && stopping.is_none() {
            if leader.send(&Message::Stop).is_err() {
                return Ok(Agreed::Stopped);
            }
            stopping = Some(Instant::now());
        }
        if stopping.is_some_and(|since| since.elapsed() > limits.grace) {
            return Ok(Agreed::Stopped);
        }
        if heard.elapsed() > patience {
            return Err(silent(leader, patience));
        }
        // Process 0 notices the loss too, and names it to all; its sentence is better than ours.
        if losing.is_none() {
            let lost = others.iter().find(|link| !link.is_alive());
            losing = lost.map(|link| (Instant::now(), link.lost()));
        }
        if losing.as_ref().is_some_and(|(since, _)| since.elapsed() > limits.grace)
            && let Some((_, error)) = losing
        {
            return Err(error);
        }
        // Starts are quick; a standby may last for days and should cost next to nothing.
        let quick = began.elapsed() < Duration::from_secs(2);
        std::thread::sleep(Duration::from_millis(if quick { 5 } else { 100 }));
    }
}

fn silent(leader: &Link, patience: Duration) -> Error {
    let address = &leader.address;
    let sentence = format!(
        "process 0 at {address} went silent for {patience:?} during the start; restart all processes together"
    );
    Error::new(Kind::Peer, sentence).retryable(true)
}
