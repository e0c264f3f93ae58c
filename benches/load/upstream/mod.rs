//! The upstream behind every proxy: it checks each request, and answers as cheaply as it can.
//!
//! A request is right when path and key belong together, none of the client's own lines came through, and the one
//! `X-Forwarded-For` is the client's address. Everything else is counted as wrong and gets a 401, so that no proxy is
//! measured for less than the whole job. botgate's proof asks with wrong keys on purpose: it is counted apart.

mod judge;
mod serve;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use botgate::tasks::Tasks;

use crate::people::Person;
use crate::trouble::{Outcome, Trouble};
use judge::Judge;

/// Pause between two events of a stream.
const EVENT_PAUSE: Duration = Duration::from_millis(100);
/// Stands once in each event, and nowhere else in a stream, before the time at which it was sent.
pub const EVENT_MARK: u8 = b'!';
/// Digits of that time, in microseconds since the upstream's start.
pub const EVENT_DIGITS: usize = 12;

/// A running upstream on a thread of its own.
#[derive(Debug)]
pub struct Upstream {
    address: SocketAddr,
    seen: Arc<Seen>,
    tasks: Tasks,
    thread: Option<JoinHandle<()>>,
}

/// What it has seen.
#[derive(Debug)]
pub struct Seen {
    since: Instant,
    requests: AtomicU64,
    wrong: AtomicU64,
    proofs: AtomicU64,
    streams: AtomicUsize,
    events: AtomicU64,
    first_wrong: Mutex<Option<&'static str>>,
}

impl Upstream {
    /// Starts it for these people.
    ///
    /// # Errors
    /// The system refuses a socket or a thread.
    pub fn start(people: &[Person]) -> Outcome<Self> {
        let seen = Arc::new(Seen {
            since: Instant::now(),
            requests: AtomicU64::new(0),
            wrong: AtomicU64::new(0),
            proofs: AtomicU64::new(0),
            streams: AtomicUsize::new(0),
            events: AtomicU64::new(0),
            first_wrong: Mutex::default(),
        });
        let judge = Judge::new(people, Arc::clone(&seen));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = {
            let _inside = runtime.enter();
            let socket = tokio::net::TcpSocket::new_v4()?;
            socket.bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
            socket.listen(4096)?
        };
        let address = listener.local_addr()?;
        let tasks = Tasks::new();
        let inside = tasks.clone();
        let thread = Tasks::thread("upstream", move || {
            runtime.block_on(async {
                serve::accept(&listener, &Arc::new(judge), &inside).await;
                inside.drain(Duration::ZERO).await;
            });
        })?;
        Ok(Upstream { address, seen, tasks, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Right requests so far, without the proof's.
    pub fn requests(&self) -> u64 {
        self.seen.requests.load(Relaxed)
    }

    /// Streams that are open.
    pub fn streams(&self) -> usize {
        self.seen.streams.load(Relaxed)
    }

    /// Events that were sent so far.
    pub fn events(&self) -> u64 {
        self.seen.events.load(Relaxed)
    }

    /// Its clock: since when the times in events count.
    pub fn since(&self) -> Instant {
        self.seen.since
    }

    /// Fails when any request was wrong.
    ///
    /// # Errors
    /// How many, and what was wrong with the first one.
    pub fn approves(&self) -> Outcome<()> {
        let wrong = self.seen.wrong.load(Relaxed);
        let first = *self.seen.first_wrong.lock().unwrap_or_else(PoisonError::into_inner);
        match first {
            Some(first) => Err(Trouble::new(format!("the upstream saw {wrong} wrong requests; the first: {first}"))),
            None => Ok(()),
        }
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.tasks.stop();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so by itself.
            let _ = thread.join();
        }
    }
}

impl Seen {
    fn now_us(&self) -> u128 {
        self.since.elapsed().as_micros()
    }

    fn wrong(&self, what: &'static str) {
        self.wrong.fetch_add(1, Relaxed);
        self.first_wrong.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(what);
    }
}
