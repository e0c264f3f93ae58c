//! Streams: many at once, each read as it comes.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use botgate::tasks::Tasks;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use super::{Driven, PATIENCE, median};
use crate::trouble::{Outcome, Trouble};
use crate::upstream::{EVENT_DIGITS, EVENT_MARK};
use crate::wire::answer_head;

/// Streams that are opened at once.
const OPENING: usize = 64;

/// Open streams. Dropping them leaves them.
#[derive(Debug)]
pub struct Streams {
    read: Arc<Read>,
    tasks: Tasks,
    thread: Option<JoinHandle<()>>,
}

/// What has been read so far.
#[derive(Debug)]
struct Read {
    /// When the times in events begin.
    clock: Instant,
    flowing: AtomicUsize,
    ended: AtomicUsize,
    events: AtomicU64,
    delays_us: Mutex<Vec<f64>>,
}

impl Streams {
    /// Opens a stream for each request, and waits until an event has come on every one.
    ///
    /// # Errors
    /// One is refused, or none comes.
    pub fn open(address: SocketAddr, requests: Vec<String>, clock: Instant) -> Outcome<Self> {
        let read = Arc::new(Read {
            clock,
            flowing: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
            events: AtomicU64::new(0),
            delays_us: Mutex::default(),
        });
        let wanted = requests.len();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let tasks = Tasks::new();
        let (inside, shared) = (tasks.clone(), Arc::clone(&read));
        let thread = Tasks::thread("streams", move || {
            runtime.block_on(async {
                let opening = Arc::new(Semaphore::new(OPENING));
                for request in requests {
                    let (read, opening) = (Arc::clone(&shared), Arc::clone(&opening));
                    inside.spawn(async move {
                        // Why a stream ended tells its proxy's log; that it did is counted.
                        let _ = stream(address, request, &read, &opening).await;
                        read.ended.fetch_add(1, Relaxed);
                    });
                }
                inside.stopping().cancelled().await;
                inside.drain(Duration::ZERO).await;
            });
        })?;
        let streams = Streams { read, tasks, thread: Some(thread) };
        let since = Instant::now();
        while streams.read.flowing.load(Relaxed) < wanted {
            let ended = streams.read.ended.load(Relaxed);
            if ended > 0 || since.elapsed() > PATIENCE {
                let flowing = streams.read.flowing.load(Relaxed);
                return Err(Trouble::new(format!("of {wanted} streams {flowing} flow and {ended} have ended")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(streams)
    }

    /// Reads on for so long: how many events came, and their median delay.
    ///
    /// # Errors
    /// A stream ended.
    pub fn read_on(&self, time: Duration) -> Outcome<Driven> {
        let delays = || std::mem::take(&mut *self.read.delays_us.lock().unwrap_or_else(PoisonError::into_inner));
        let before = self.read.events.load(Relaxed);
        drop(delays());
        std::thread::sleep(time);
        let units = self.read.events.load(Relaxed) - before;
        match self.read.ended.load(Relaxed) {
            0 => Ok(Driven { units, p50_us: median(&mut delays()) }),
            ended => Err(Trouble::new(format!("{ended} streams have ended"))),
        }
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.tasks.stop();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so by itself.
            let _ = thread.join();
        }
    }
}

async fn stream(address: SocketAddr, request: String, read: &Read, opening: &Semaphore) -> Outcome<()> {
    // The semaphore is never closed.
    let turn = opening.acquire().await.map_err(|_| Trouble::new("closed"))?;
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    stream.write_all(request.as_bytes()).await?;
    let mut bytes = Vec::with_capacity(2048);
    let head = loop {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(Trouble::new("no head"));
        }
        if let Some(head) = answer_head(&bytes).map_err(|error| Trouble::new(error.to_string()))? {
            break head;
        }
    };
    if head.status != 200 {
        return Err(Trouble::new(format!("status {}", head.status)));
    }
    drop(turn);
    bytes.drain(..head.length);
    let mut first = true;
    loop {
        let events = read.take(&bytes);
        if events > 0 && std::mem::take(&mut first) {
            read.flowing.fetch_add(1, Relaxed);
        }
        bytes.clear();
        if stream.read_buf(&mut bytes).await? == 0 {
            return Ok(());
        }
    }
}

impl Read {
    /// Counts the events that begin in these bytes, and the delay of those whose time is there as a whole.
    fn take(&self, bytes: &[u8]) -> u64 {
        let mut events = 0;
        for (at, _) in bytes.iter().enumerate().filter(|(_, byte)| **byte == EVENT_MARK) {
            events += 1;
            let digits = bytes.get(at + 1..at + 1 + EVENT_DIGITS).and_then(|digits| std::str::from_utf8(digits).ok());
            if let Some(sent_us) = digits.and_then(|digits| digits.parse::<u64>().ok()) {
                let delay = self.clock.elapsed().saturating_sub(Duration::from_micros(sent_us));
                let mut delays = self.delays_us.lock().unwrap_or_else(PoisonError::into_inner);
                delays.push(delay.as_secs_f64() * 1e6);
            }
        }
        self.events.fetch_add(events, Relaxed);
        events
    }
}
