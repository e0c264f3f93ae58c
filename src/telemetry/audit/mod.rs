//! The audit log: who did what, in an append-only chain of JSON lines.
//!
//! Invariants: a turn's records have room before the turn is admitted, and no byte of its answer leaves before its
//! `open` record is written; every `open` is followed by one `close` or `lost` with the same number in `open`; each line
//! holds the hash of the one before, and each batch ends in a seal under a key that the log's readers need not have. What
//! callers do here never blocks. One process writes a directory at a time: its owner holds the lock on the data
//! directory. This room keeps no secret, query or body, and deletes nothing.
//!
//! Kinds: `start stop open close lost carried action refusal refusals mac`. `at` is the time of the event, in UTC
//! milliseconds; lines are in the order of writing.

mod batch;
mod encode;
mod error;
mod line;
mod queue;
mod read;
mod records;
mod recover;
mod refusals;
mod room;
mod segment;
mod sync;
mod turn;
mod verify;
mod writer;

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::mpsc::{Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::oneshot;

pub use error::{AuditError, AuditFull};
pub use line::AuditKeys;
pub use read::{Entry, Filter, Reader};
pub use records::{ActionRecord, Actor, CloseRecord, OpenRecord, Outcome, RefusalRecord};
pub use turn::{ActionSlot, AuditSlots, OpenTurn};
pub use verify::{Fault, FaultKind, Head, Report, verify};

use self::line::Chain;
use self::queue::{Done, Message, OwnedRefusal};
use self::refusals::Budget;
use self::room::{Bounded, OwnLine, Room, Stripe};
use self::writer::Writer;
use super::metrics::Metrics;
use crate::config::WhenFull;
use crate::names::Uid;
use crate::tasks::Tasks;

/// A segment is followed by the next once it is this long.
const SEGMENT_BYTES: u64 = 64 * 1024 * 1024;
/// Time between two syncs, and length of the refusals' window.
const TICK: Duration = Duration::from_secs(1);
/// Operators' records that may wait.
const CONTROL_RECORDS: usize = 4_096;
/// Refusals that may wait to be recorded one by one.
const REFUSAL_RECORDS: usize = 4_096;
/// Segments that may wait to be synced.
const SYNC_FILES: usize = 4;
/// Longest wait for an operator's record to be written.
const CONTROL_WITHIN: Duration = Duration::from_secs(10);

/// What tests set otherwise.
struct Options {
    segment_bytes: u64,
    tick: Duration,
    #[cfg(test)]
    quota: Option<Arc<std::sync::atomic::AtomicU64>>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            segment_bytes: SEGMENT_BYTES,
            tick: TICK,
            #[cfg(test)]
            quota: None,
        }
    }
}

/// What callers and the writer share.
struct Shared {
    room: Room,
    control: Bounded,
    refusals: Bounded,
    /// Records in the queue and the batch.
    queued: OwnLine<AtomicUsize>,
    /// Records cannot be written at present.
    failing: AtomicBool,
    stopping: AtomicBool,
    /// The writer looks at the queue again within milliseconds, woken or not.
    napping: AtomicBool,
    budget: Budget,
    head: Mutex<Head>,
    metrics: Arc<Metrics>,
}

impl Shared {
    fn set_head(&self, head: Head) {
        *self.head.lock().unwrap_or_else(PoisonError::into_inner) = head;
    }
}

struct Handle {
    queue: Sender<Message>,
    writer: Thread,
    shared: Arc<Shared>,
    when_full: WhenFull,
}

/// A handle on the audit log. The writer ends with [`Audit::stop`], or when the last handle and guard are dropped.
#[derive(Clone)]
pub struct Audit(Arc<OwnLine<Handle>>);

impl Audit {
    /// Starts the log in a directory, which is made if need be: goes on with its chain, cuts a torn last line, closes
    /// turns that were left open as `lost`, and starts the writer. Blocks: reads up to two segments.
    ///
    /// # Errors
    /// The directory or disk refuses, or what is there does not continue.
    pub fn start(
        dir: &Path,
        keys: impl Into<AuditKeys>,
        when_full: WhenFull,
        metrics: Arc<Metrics>,
    ) -> Result<Self, AuditError> {
        Self::start_with(dir, keys.into(), when_full, metrics, Options::default())
    }

    fn start_with(
        dir: &Path,
        keys: AuditKeys,
        when_full: WhenFull,
        metrics: Arc<Metrics>,
        options: Options,
    ) -> Result<Self, AuditError> {
        segment::create_dir(dir)?;
        let found = recover::recover(dir, &keys)?;
        let shared = Arc::new(Shared {
            room: Room::new(),
            control: Bounded::new(CONTROL_RECORDS),
            refusals: Bounded::new(REFUSAL_RECORDS),
            queued: OwnLine(AtomicUsize::new(0)),
            failing: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            napping: AtomicBool::new(false),
            budget: Budget::new(),
            head: Mutex::new(Head::of(&Chain::START)),
            metrics,
        });
        let (sync, files) = sync_channel(SYNC_FILES);
        let writer = Writer::start(dir.to_owned(), keys.current().clone(), options, Arc::clone(&shared), found, sync)?;
        #[expect(clippy::disallowed_methods, reason = "bounded by the room that every record is reserved in")]
        let (queue, messages) = channel();
        let thread = |source| segment::failed("start a thread for", dir, source);
        let syncing = Arc::clone(&shared);
        Tasks::thread("audit-sync", move || sync::sync_files(&files, &syncing)).map_err(thread)?;
        let ending = Ending(Arc::clone(&shared));
        let writer = Tasks::thread("audit", move || {
            let _ending = ending;
            writer.run(&messages);
        });
        let writer = writer.map_err(thread)?.thread().clone();
        Ok(Audit(Arc::new(OwnLine(Handle { queue, writer, shared, when_full }))))
    }

    /// Room for the two records of a turn or tunnel.
    ///
    /// # Errors
    /// No room, or records cannot be written at present. Never, when turns run all the same.
    pub fn reserve(&self, person: &Uid) -> Result<AuditSlots, AuditFull> {
        let stripe = Stripe::of(person);
        Ok(AuditSlots::new(self.clone(), stripe, self.take(stripe, 2)?))
    }

    /// Room for the one record of a person's change.
    ///
    /// # Errors
    /// As [`Audit::reserve`].
    pub fn reserve_one(&self, person: &Uid) -> Result<ActionSlot, AuditFull> {
        let stripe = Stripe::of(person);
        Ok(ActionSlot::new(self.clone(), stripe, self.take(stripe, 1)?))
    }

    /// Whether there is room; false only when turns run all the same.
    fn take(&self, stripe: Stripe, records: usize) -> Result<bool, AuditFull> {
        let refused = if self.handle().shared.failing.load(Ordering::Acquire) {
            AuditFull::Failing
        } else if self.handle().shared.room.take(stripe, records) {
            return Ok(true);
        } else {
            AuditFull::Full
        };
        match self.handle().when_full {
            WhenFull::Refuse => Err(refused),
            WhenFull::Drop => Ok(false),
        }
    }

    /// Queues an operator's or the edge's own record; never blocks. Such records have room of their own.
    ///
    /// # Errors
    /// No room.
    pub fn record(&self, record: ActionRecord) -> Result<(), AuditError> {
        self.record_control(record, None)
    }

    /// Queues an operator's record and waits until it has been written, at most ten seconds.
    ///
    /// # Errors
    /// The record was not written (it may be later: it stays queued), or there is no room.
    pub async fn record_written(&self, record: ActionRecord) -> Result<(), AuditError> {
        let (done, written) = oneshot::channel();
        self.record_control(record, Some(done))?;
        match tokio::time::timeout(CONTROL_WITHIN, written).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(AuditError::Stopped),
            Err(_) => Err(AuditError::Slow),
        }
    }

    fn record_control(&self, record: ActionRecord, done: Option<Done>) -> Result<(), AuditError> {
        if !self.handle().shared.control.take(1) {
            self.dropped();
            return Err(AuditError::Full);
        }
        if !self.send(Message::Action { at: now_ms(), record: Box::new(record), stripe: None, done }) {
            self.handle().shared.control.give(1);
            return Err(AuditError::Stopped);
        }
        self.wake();
        Ok(())
    }

    /// A refusal: recorded by itself within its person's budget, else counted for the summary of the second. Never
    /// blocks, and never takes the room of turns.
    pub fn refusal(&self, refusal: &RefusalRecord<'_>) {
        let room = || self.handle().shared.refusals.take(1);
        if !self.handle().shared.budget.record(refusal, room) {
            return;
        }
        // The budget records by itself only what has a person.
        let Some((login, uid)) = refusal.person else { return };
        let sent = self.send(Message::Refusal(Box::new(OwnedRefusal {
            at: now_ms(),
            login: login.clone(),
            uid: uid.clone(),
            peer: refusal.peer,
            reason: refusal.reason,
            request_id: refusal.request_id.to_owned(),
            route: refusal.route,
        })));
        if !sent {
            self.handle().shared.refusals.give(1);
        }
    }

    /// The last line that has been written.
    pub fn head(&self) -> Head {
        *self.handle().shared.head.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether records can be written at present.
    pub fn is_healthy(&self) -> bool {
        !self.handle().shared.failing.load(Ordering::Acquire)
    }

    /// Writes and syncs what is queued, ends the chain with a `stop` record, and ends the writer. Turns that are
    /// still open then are closed as `lost` at the next start.
    ///
    /// # Errors
    /// Something is not written, or it took longer than `limit`.
    pub async fn stop(&self, limit: Duration) -> Result<(), AuditError> {
        let (done, stopped) = oneshot::channel();
        self.handle().shared.stopping.store(true, Ordering::Release);
        if self.handle().queue.send(Message::Stop(done)).is_err() {
            return Err(AuditError::Stopped);
        }
        self.wake();
        match tokio::time::timeout(limit, stopped).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(AuditError::Stopped),
            Err(_) => Err(AuditError::Slow),
        }
    }

    fn send(&self, message: Message) -> bool {
        self.handle().shared.queued.0.fetch_add(1, Ordering::Relaxed);
        let sent = self.handle().queue.send(message).is_ok();
        if !sent {
            self.handle().shared.queued.0.fetch_sub(1, Ordering::Relaxed);
            self.dropped();
        }
        sent
    }

    /// Has what is queued written at once. Costs a system call only when the writer sleeps.
    fn wake(&self) {
        self.handle().writer.unpark();
    }

    /// Has what is queued written within milliseconds.
    fn wake_soon(&self) {
        fence(Ordering::SeqCst);
        if !self.handle().shared.napping.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    fn handle(&self) -> &Handle {
        &self.0.0
    }

    fn room(&self) -> &Room {
        &self.handle().shared.room
    }

    fn when_full(&self) -> WhenFull {
        self.handle().when_full
    }

    /// A record is missing.
    fn dropped(&self) {
        self.handle().shared.metrics.audit_dropped();
    }
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Audit({})", self.head())
    }
}

/// Refuses new turns once the writer has ended, for whatever reason.
struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.failing.store(true, Ordering::Release);
    }
}

/// UTC milliseconds.
fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests;
