//! Rows that the encoder refused, held until the store has been asked whether its tables changed.
//!
//! An encoder does no I/O: it judges by the shape that it knows. Before a row is refused for good the
//! shape is read again, on a thread of its own, and where it is another one the row is encoded once more.
//! Meanwhile the operator holds the row's epoch, so that nothing commits without it.

use std::collections::VecDeque;

use crossbeam_channel::{Receiver, Sender, bounded};
use timely::dataflow::operators::Capability;

use crate::epoch::Epoch;
use crate::error::{Error, Result};
use crate::record::{At, Change, Refusal};
use crate::run::Abort;
use crate::sink::Watch;
use crate::source::Wake;
use crate::unwind;

/// A row that was refused, with the capability of its epoch.
pub(crate) struct Held<T> {
    pub capability: Capability<Epoch>,
    pub at: At,
    pub change: Change<T>,
    pub refusal: Refusal,
}

/// The refused rows of one encoder, and the thread that looks.
pub(crate) struct SecondLook<T> {
    /// Refused since the look that is under way began.
    waiting: VecDeque<Held<T>>,
    /// Refused before it began: what it finds holds for them.
    looked_for: VecDeque<Held<T>>,
    watch: Option<Box<dyn Watch>>,
    looker: Option<Looker>,
    wake: Wake,
    abort: Abort,
}

struct Looker {
    orders: Sender<()>,
    answers: Receiver<Result<()>>,
}

impl<T> SecondLook<T> {
    pub(crate) fn new(watch: Option<Box<dyn Watch>>, wake: Wake, abort: Abort) -> Self {
        SecondLook {
            waiting: VecDeque::new(),
            looked_for: VecDeque::new(),
            watch,
            looker: None,
            wake,
            abort,
        }
    }

    /// Whether a look may change anything about this refusal.
    pub(crate) fn may_help(&self, refusal: &Refusal) -> bool {
        // Without a code it is no fault of a value: a panic, a shape of row that no table takes.
        refusal.sqlstate.is_some() && (self.watch.is_some() || self.looker.is_some())
    }

    /// Holds a refused row.
    pub(crate) fn hold(&mut self, held: Held<T>) {
        self.waiting.push_back(held);
    }

    /// Starts a look if rows wait for one. Gives the rows whose look is done.
    pub(crate) fn turn(&mut self) -> Result<VecDeque<Held<T>>> {
        let mut done = VecDeque::new();
        if !self.looked_for.is_empty() {
            match self.looker()?.answers.try_recv() {
                Ok(answer) => answer?,
                Err(crossbeam_channel::TryRecvError::Empty) => return Ok(done),
                Err(crossbeam_channel::TryRecvError::Disconnected) => {
                    return Err(Error::internal("a thread that looks at tables ended by itself"));
                }
            }
            done.append(&mut self.looked_for);
        }
        if !self.waiting.is_empty() {
            self.looked_for.append(&mut self.waiting);
            // There is room: the thread has answered every order before.
            let _ = self.looker()?.orders.send(());
        }
        Ok(done)
    }

    /// The thread, started when first needed; it ends when the operator does.
    fn looker(&mut self) -> Result<&Looker> {
        if let Some(watch) = self.watch.take() {
            let (orders, ordered) = bounded(1);
            let (answer, answers) = bounded(1);
            let (wake, abort) = (self.wake.clone(), self.abort.clone());
            let look = move || look(watch, &ordered, &answer, &wake, &abort);
            std::thread::Builder::new()
                .name("look".to_owned())
                .spawn(look)
                .map_err(|error| Error::internal(format!("start a thread: {error}")))?;
            self.looker = Some(Looker { orders, answers });
        }
        self.looker.as_ref().ok_or_else(|| Error::internal("nobody looks at this sink's tables"))
    }
}

fn look(
    mut watch: Box<dyn Watch>,
    orders: &Receiver<()>,
    answers: &Sender<Result<()>>,
    wake: &Wake,
    abort: &Abort,
) {
    for () in orders {
        let look = unwind::catch(|| watch.look(abort));
        let answer = look.unwrap_or_else(|panic| Err(Error::internal(panic)));
        if answers.send(answer).is_err() {
            return;
        }
        wake.wake();
    }
}
