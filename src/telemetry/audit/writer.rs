//! The writer: one thread that numbers, chains, seals and writes the records, a batch for each `write(2)`.
//!
//! Invariants: what was taken from the queue is written in its order or kept until it can be; a batch ends in a seal;
//! room is given back when the record is on its way to the disk. While the disk fails, the batch waits, everything in
//! it that somebody waits for is told so, and the queue is left alone once the batch is large.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError};
use std::time::{Duration, Instant};

use super::batch::{Batch, Owed};
use super::error::AuditError;
use super::line::SealKey;
use super::queue::{Done, Message};
use super::recover::Recovered;
use super::refusals::Summary;
use super::segment::Segment;
use super::sync::sync;
use super::turn::Turn;
use super::verify::Head;
use super::{Options, Shared, encode, now_ms};

/// Bytes that one batch collects before it is written, about.
const BATCH_BYTES: usize = 256 * 1024;
/// Turns named by one `carried` line.
const CARRIED_PER_LINE: usize = 128;
/// Pause between two attempts while the disk fails.
const RETRY: Duration = Duration::from_millis(200);
/// Sleep after a write, in which turns do not wake the writer: under load their records are written together, for one
/// system call and one seal.
const NAP: Duration = Duration::from_millis(1);
/// Longest time that a `close` stays queued while turns are open.
const LINGER: Duration = Duration::from_millis(50);

/// What the queue asks for once it is empty or the batch is full.
enum Next {
    /// Nothing is left in it.
    Wait,
    /// The batch is full.
    More,
    /// `None`: every handle is gone.
    Stop(Option<Done>),
}

pub(super) struct Writer {
    dir: PathBuf,
    options: Options,
    shared: Arc<Shared>,
    segment: Segment,
    batch: Batch,
    failing: bool,
    open: BTreeMap<u64, Arc<Turn>>,
    /// Bytes at the segment's beginning that only name open turns: they do not count towards its end, or a segment
    /// full of them would be followed by another at once.
    carried_bytes: u64,
    /// Segments to sync.
    sync: SyncSender<Arc<File>>,
    dirty: bool,
}

impl Writer {
    /// Goes on from what a start found and writes the records of the start itself.
    pub(super) fn start(
        dir: PathBuf,
        key: SealKey,
        options: Options,
        shared: Arc<Shared>,
        found: Recovered,
        sync: SyncSender<Arc<File>>,
    ) -> Result<Self, AuditError> {
        let Recovered { segment, chain, open, repaired_bytes, unsealed } = found;
        let mut writer = Writer {
            dir,
            options,
            shared,
            segment,
            batch: Batch::new(key, chain, BATCH_BYTES),
            failing: false,
            open: BTreeMap::new(),
            carried_bytes: 0,
            sync,
            dirty: false,
        };
        #[cfg(test)]
        {
            writer.segment.quota.clone_from(&writer.options.quota);
        }
        let lost = open.len();
        writer.batch.line("start", now_ms(), Owed::Nothing, |line| {
            line.text("version", env!("CARGO_PKG_VERSION"));
            line.number("repaired_bytes", repaired_bytes);
            line.number("unsealed", unsealed);
            line.number("lost", lost as u64);
        });
        for turn in open.values() {
            writer.batch.line("lost", now_ms(), Owed::Nothing, |line| encode::lost(line, turn));
        }
        let result = writer.flush();
        let path = super::segment::path(&writer.dir, writer.segment.number);
        result.map_err(|source| super::segment::failed("write the audit segment", &path, source))?;
        writer.segment.file().sync_data().map_err(|source| super::segment::failed("sync", &path, source))?;
        Ok(writer)
    }

    /// Writes until told to stop, or until nobody is left who could say anything.
    ///
    /// The queue never wakes this thread; callers do. After a write it naps, and only an operator's record or the end
    /// wakes it before its time.
    pub(super) fn run(mut self, queue: &Receiver<Message>) {
        let mut next_tick = Instant::now() + self.options.tick;
        let mut next_retry = Instant::now();
        let mut napping = false;
        let done = loop {
            let now = Instant::now();
            if now >= next_tick {
                next_tick = now + self.options.tick;
                self.tick();
            }
            let more = match self.take_queued(queue) {
                Next::Stop(done) => break done,
                Next::More => true,
                Next::Wait => false,
            };
            let mut wrote = false;
            if !self.failing || now >= next_retry {
                next_retry = now + RETRY;
                wrote = self.flush().is_ok_and(|bytes| bytes > 0);
                if wrote && self.segment.len >= self.carried_bytes + self.options.segment_bytes {
                    self.rotate();
                }
            }
            if more && !self.failing {
                continue;
            }
            if wrote != napping {
                napping = wrote;
                self.shared.napping.store(napping, Ordering::SeqCst);
                if !napping {
                    // Whoever found it napping has not woken it: look once more before the long sleep.
                    fence(Ordering::SeqCst);
                    continue;
                }
            }
            let pause = match (napping, self.open.is_empty() && !self.failing) {
                (true, _) => NAP,
                (false, true) => self.options.tick,
                (false, false) => LINGER,
            };
            std::thread::park_timeout(pause.min(next_tick.saturating_duration_since(Instant::now())));
        };
        let result = self.stop();
        if let Some(done) = done {
            let _ = done.send(result.map_err(|_| AuditError::NotWritten));
        }
    }

    /// Takes what is queued, up to a batch.
    fn take_queued(&mut self, queue: &Receiver<Message>) -> Next {
        // While the disk fails, what is queued stays there: it is bounded, and the batch would not be.
        let limit = if self.shared.stopping.load(Ordering::Acquire) { usize::MAX } else { BATCH_BYTES };
        loop {
            if self.batch.len() >= limit {
                return Next::More;
            }
            match queue.try_recv() {
                Ok(Message::Stop(done)) => return Next::Stop(Some(done)),
                Ok(message) => self.take(message),
                Err(TryRecvError::Empty) => return Next::Wait,
                Err(TryRecvError::Disconnected) => return Next::Stop(None),
            }
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Open(turn) => {
                let seq = self.batch.line("open", turn.at, Owed::Open(Arc::clone(&turn)), |line| {
                    encode::open(line, &turn.opened);
                });
                turn.seq.store(seq, Ordering::Relaxed);
                self.open.insert(seq, turn);
            }
            Message::Close { turn, at, close } => {
                let seq = turn.seq.load(Ordering::Relaxed);
                self.open.remove(&seq);
                self.batch.line("close", at, Owed::Room(turn.stripe), |line| {
                    encode::close(line, seq, &turn.opened, close.as_ref());
                });
            }
            Message::Action { at, record, stripe, done } => {
                self.batch.line("action", at, Owed::Action { stripe, done }, |line| encode::action(line, &record));
            }
            Message::Refusal(refusal) => {
                self.batch.line("refusal", refusal.at, Owed::Refusal, |line| encode::refusal(line, &refusal));
            }
            Message::Stop(_) => {}
        }
    }

    /// Seals the batch and writes it, and tells how many bytes that were. What cannot be written stays, and whoever
    /// waits for it is told.
    fn flush(&mut self) -> io::Result<usize> {
        self.batch.seal(now_ms());
        if self.batch.unwritten().is_empty() {
            return Ok(0);
        }
        let (count, result) = self.segment.write(self.batch.unwritten());
        self.dirty |= count > 0;
        self.batch.settle_written(count, &self.shared);
        self.shared.metrics.audit_queued(self.shared.queued.0.load(Ordering::Relaxed));
        match result {
            Ok(()) => {
                self.batch.clear(4 * BATCH_BYTES);
                self.shared.set_head(Head::of(self.batch.chain()));
                if std::mem::take(&mut self.failing) {
                    self.shared.failing.store(false, Ordering::Release);
                    tracing::warn!("the audit log is written again");
                }
                Ok(count)
            }
            Err(error) => {
                self.shared.metrics.audit_failed();
                // First, so that whoever is told of the failure finds new turns refused.
                self.shared.failing.store(true, Ordering::Release);
                self.batch.settle_failed();
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::error!(%error, segment = self.segment.number, "the audit log cannot be written");
                }
                Err(error)
            }
        }
    }

    /// Begins the next segment once this one is large, and names the open turns in it. When that fails, this one goes
    /// on: a larger segment is better than none.
    fn rotate(&mut self) {
        let next = match Segment::create(&self.dir, self.segment.number + 1) {
            Ok(next) => next,
            Err(error) => {
                self.shared.metrics.audit_failed();
                tracing::error!(error = &error as &dyn std::error::Error, "no further audit segment");
                return;
            }
        };
        self.sync_soon();
        self.segment = next;
        #[cfg(test)]
        {
            self.segment.quota.clone_from(&self.options.quota);
        }
        let open: Vec<_> = self.open.iter().map(|(seq, turn)| (*seq, &turn.opened)).collect();
        for turns in open.chunks(CARRIED_PER_LINE) {
            self.batch.line("carried", now_ms(), Owed::Bookkeeping, |line| encode::carried(line, turns));
        }
        self.carried_bytes = self.batch.len() as u64;
        // The first lines of the segment; a failure is handled as any other.
        let _ = self.flush();
    }

    /// Each second: the summary of refusals, a sync, and the upkeep of metrics.
    fn tick(&mut self) {
        if !self.failing
            && let Some(summary) = self.shared.budget.take()
        {
            self.summary(&summary);
        }
        if std::mem::take(&mut self.dirty) {
            self.sync_soon();
        }
        self.shared.metrics.audit_queued(self.shared.queued.0.load(Ordering::Relaxed));
        self.shared.metrics.upkeep();
    }

    /// Hands the segment to the syncing thread; one that is far behind is waited for.
    fn sync_soon(&mut self) {
        if self.sync.try_send(self.segment.file()).is_err() {
            sync(&self.segment.file(), &self.shared);
        }
    }

    fn summary(&mut self, summary: &Summary) {
        self.batch.line("refusals", now_ms(), Owed::Nothing, |line| encode::summary(line, summary));
    }

    fn stop(&mut self) -> io::Result<()> {
        self.shared.failing.store(true, Ordering::Release);
        if let Some(summary) = self.shared.budget.take() {
            self.summary(&summary);
        }
        let open = self.open.len() as u64;
        self.batch.line("stop", now_ms(), Owed::Nothing, |line| line.number("open", open));
        self.flush()?;
        self.segment.file().sync_data()
    }
}
