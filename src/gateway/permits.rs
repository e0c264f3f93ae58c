//! Permits: the turns that one gateway may run at once, shared out fairly.
//!
//! Invariants: a permit is a guard, and a dropped one goes straight to the next person's waiter; a waiter that is
//! dropped, revoked or out of time leaves the queue; the lock is short, never held across an await, and nobody is woken
//! under it. Turns alone come here. This room does not decide when a turn ends: whoever follows the gateway's work
//! keeps the permit until that work is over.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use metrics::Gauge;
use tokio::sync::oneshot;
use tokio::time::Instant;

pub use super::queue::QueueRoom;
use super::queue::{Asked, Bounds, Queue, Seat, Ticket};
use crate::names::Uid;
use crate::tasks::Cancellation;

/// The bounds on one gateway's turns.
#[derive(Debug, Clone)]
pub struct TurnLimits {
    /// Turns of all people at once.
    pub max_turns: usize,
    /// Turns of one person at once.
    pub per_person: usize,
    /// Turns of one person that may wait.
    pub queue_per_person: usize,
    /// Room for all waiting turns, shared with other gateways.
    pub queue_total: QueueRoom,
    /// Longest wait.
    pub queue_wait: Duration,
}

/// Why there is no permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdmitError {
    /// The person's queue, or everybody's, is full.
    QueueFull,
    /// No permit came free within the longest wait.
    Timeout,
    /// The session or person was revoked before the turn could begin.
    Revoked,
}

impl fmt::Display for AdmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AdmitError::QueueFull => "no room to wait for a turn",
            AdmitError::Timeout => "no turn came free in time",
            AdmitError::Revoked => "revoked while waiting for a turn",
        })
    }
}

impl std::error::Error for AdmitError {}

/// One gateway's turns. Clones are handles on the same permits.
#[derive(Debug, Clone)]
pub struct Turns(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    // A std lock: held for a few map operations, never across an await.
    queue: Mutex<Queue<oneshot::Sender<TurnPermit>>>,
    queue_wait: Duration,
    in_flight: Gauge,
    queued: Gauge,
}

/// The right to run one turn on a gateway. Dropping it hands it to the next person in line.
#[derive(Debug)]
#[must_use = "a dropped permit is somebody else's"]
pub struct TurnPermit {
    shared: Arc<Shared>,
    seat: Option<Seat>,
    waited: Duration,
}

impl Turns {
    /// All of a gateway's permits, free. The gauges are set to what the counters say after every change.
    pub fn new(limits: TurnLimits, in_flight: Gauge, queued: Gauge) -> Self {
        let TurnLimits { max_turns, per_person, queue_per_person, queue_total, queue_wait } = limits;
        let bounds = Bounds { turns: max_turns, per_person, waiting_per_person: queue_per_person };
        Turns(Arc::new(Shared { queue: Mutex::new(Queue::new(bounds, queue_total)), queue_wait, in_flight, queued }))
    }

    /// Waits for a permit, in turn with other people, until `cancelled` or the longest wait.
    ///
    /// # Errors
    /// [`AdmitError`]; no place in the queue is kept.
    pub async fn admit(&self, person: &Uid, cancelled: &Cancellation) -> Result<TurnPermit, AdmitError> {
        if cancelled.is_cancelled() {
            return Err(AdmitError::Revoked);
        }
        let (waker, woken) = oneshot::channel();
        let (seat, ticket) = match self.0.change(|queue| queue.ask(person, waker)) {
            Asked::Granted(seat) => return Ok(self.0.permit(seat, Duration::ZERO)),
            Asked::Full => return Err(AdmitError::QueueFull),
            Asked::Waits(seat, ticket) => (seat, ticket),
        };
        let since = Instant::now();
        let _waiting = Waiting { shared: &self.0, seat, ticket };
        // What is dropped on the other branches with a permit already in it gives the permit on.
        tokio::select! {
            biased;
            () = cancelled.cancelled() => Err(AdmitError::Revoked),
            permit = woken => {
                // The queue keeps the other end until it sends or the waiter leaves.
                let mut permit = permit.map_err(|_| AdmitError::Timeout)?;
                permit.waited = since.elapsed();
                Ok(permit)
            }
            () = tokio::time::sleep(self.0.queue_wait) => Err(AdmitError::Timeout),
        }
    }

    /// A permit for work that the gateway already does, such as a run that outlived the edge's restart. It counts even
    /// when that makes more than the bound; then nobody is let in before enough has ended.
    pub fn take_over(&self, person: &Uid) -> TurnPermit {
        let seat = self.0.change(|queue| queue.take_over(person));
        self.0.permit(seat, Duration::ZERO)
    }

    /// Permits in use.
    pub fn in_flight(&self) -> usize {
        self.0.lock().in_flight()
    }

    /// Turns that wait.
    pub fn queued(&self) -> usize {
        self.0.lock().waiting()
    }
}

impl TurnPermit {
    /// How long the turn waited for it; zero when one was free.
    pub fn waited(&self) -> Duration {
        self.waited
    }
}

impl Drop for TurnPermit {
    fn drop(&mut self) {
        let mut seat = self.seat.take();
        while let Some(freed) = seat {
            let Some((next, waiter)) = self.shared.change(|queue| queue.release(freed)) else { return };
            // A waiter that left at this very moment hands the permit back, and the next one is tried.
            seat = match waiter.send(self.shared.permit(next, Duration::ZERO)) {
                Ok(()) => None,
                Err(mut refused) => refused.seat.take(),
            };
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue<oneshot::Sender<TurnPermit>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Queue<oneshot::Sender<TurnPermit>>) -> T) -> T {
        let mut queue = self.lock();
        let result = change(&mut queue);
        // Set under the lock, so that the last value written is the last that was true.
        self.in_flight.set(queue.in_flight() as f64);
        self.queued.set(queue.waiting() as f64);
        result
    }

    fn permit(self: &Arc<Self>, seat: Seat, waited: Duration) -> TurnPermit {
        TurnPermit { shared: Arc::clone(self), seat: Some(seat), waited }
    }
}

/// A waiter's place in the queue; dropping it leaves the queue.
struct Waiting<'t> {
    shared: &'t Shared,
    seat: Seat,
    ticket: Ticket,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.shared.change(|queue| queue.withdraw(self.seat, self.ticket));
    }
}

#[cfg(test)]
mod tests;
