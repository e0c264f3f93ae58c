//! Lines on their way to a stream of the process: queued by whoever has one, written by a thread of its own.
//!
//! Invariants: a caller never waits; a line that finds the queue full, or whose stream is broken, is dropped and counted.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use crate::tasks::Tasks;

/// Lines that may wait for the stream.
const QUEUE_LINES: usize = 8_192;
/// Bytes that are collected for one write, at most.
const BATCH_BYTES: usize = 64 * 1024;

/// Pause before a flush asks again for a place in a full queue.
const FULL_PAUSE: Duration = Duration::from_millis(1);

enum Message {
    Line(Vec<u8>),
    Flush(SyncSender<()>),
}

/// A handle on the writer, which ends when the last handle is dropped.
#[derive(Clone)]
pub(super) struct Lines(SyncSender<Message>);

impl Lines {
    /// Starts the writer thread; `lost` is told how many lines a broken stream has cost.
    ///
    /// # Errors
    /// The system refuses another thread.
    pub(super) fn start(
        name: &str,
        out: impl Write + Send + 'static,
        lost: impl Fn(u64) + Send + 'static,
    ) -> io::Result<Self> {
        let (queue, lines) = sync_channel(QUEUE_LINES);
        Tasks::thread(name, move || write_lines(&lines, out, lost))?;
        Ok(Lines(queue))
    }

    /// Queues a line with its end; false when it was dropped.
    pub(super) fn write(&self, line: Vec<u8>) -> bool {
        self.0.try_send(Message::Line(line)).is_ok()
    }

    /// Waits until what is queued has been written; false when that took longer than `limit`. Blocks: for shutdown.
    pub(super) fn flush(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        let (done, wait) = sync_channel(1);
        let mut asked = Message::Flush(done);
        while let Err(error) = self.0.try_send(asked) {
            match error {
                TrySendError::Full(again) if Instant::now() < end => asked = again,
                TrySendError::Full(_) | TrySendError::Disconnected(_) => return false,
            }
            std::thread::sleep(FULL_PAUSE);
        }
        wait.recv_timeout(end.saturating_duration_since(Instant::now())).is_ok()
    }
}

fn write_lines(queue: &Receiver<Message>, mut out: impl Write, lost: impl Fn(u64)) {
    let mut batch = Vec::with_capacity(BATCH_BYTES);
    while let Ok(first) = queue.recv() {
        batch.clear();
        let (mut lines, mut next, mut flushed) = (0, Some(first), None);
        while let Some(message) = next {
            match message {
                Message::Line(line) => {
                    batch.extend_from_slice(&line);
                    lines += 1;
                }
                Message::Flush(done) => {
                    flushed = Some(done);
                    break;
                }
            }
            next = if batch.len() < BATCH_BYTES { queue.try_recv().ok() } else { None };
        }
        // A closed or full stream must not end the writer: it may be repaired, and the loss is counted.
        if out.write_all(&batch).and_then(|()| out.flush()).is_err() {
            lost(lines);
        }
        if let Some(done) = flushed {
            let _ = done.try_send(());
        }
    }
}
