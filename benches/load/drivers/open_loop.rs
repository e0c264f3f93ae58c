//! Open loop: requests at fixed times, whether or not earlier ones are answered.
//!
//! Latency counts from the time at which a request was due, so that a proxy that stalls is not asked less. Requests go
//! round over kept-alive connections; one that finds all of them busy waits, and its wait counts.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Driven, PATIENCE, connect, median, whole};
use crate::trouble::{Outcome, Trouble};
use crate::wire::holds;

/// Kept-alive connections.
const CONNECTIONS: usize = 64;

/// A request, and what its answer has to hold.
#[derive(Debug)]
pub struct Prepared {
    pub request: String,
    pub holds: String,
}

/// Requests at a steady rate.
#[derive(Debug)]
pub struct OpenLoop {
    pub per_second: u32,
    pub prepared: Vec<Prepared>,
}

/// One connection, and what it waits for.
struct Connection<'p> {
    stream: TcpStream,
    waits: Option<(Instant, &'p Prepared)>,
    bytes: Vec<u8>,
}

impl OpenLoop {
    /// Drives a proxy.
    ///
    /// # Errors
    /// An answer is not the right one, or does not come.
    pub fn drive(&self, address: SocketAddr, time: Duration) -> Outcome<Driven> {
        // The system may wake a sleeper this much later; 50 µs unless set, which is as long as a whole request takes.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let mut connections = Vec::with_capacity(CONNECTIONS);
        for _ in 0..CONNECTIONS {
            connections.push(Connection::open(address)?);
        }
        let pause = Duration::from_secs(1) / self.per_second;
        let total = (time.as_secs_f64() * f64::from(self.per_second)) as usize;
        let mut latencies = Vec::with_capacity(total);
        let mut idle: VecDeque<usize> = (0..CONNECTIONS).collect();
        let (start, mut sent) = (Instant::now(), 0);
        while latencies.len() < total {
            let due = |number: usize| start + pause * u32::try_from(number).unwrap_or(u32::MAX);
            let now = Instant::now();
            while sent < total && due(sent) <= now {
                let Some(free) = idle.pop_front() else { break };
                connections[free].send(due(sent), &self.prepared[sent % self.prepared.len()])?;
                sent += 1;
            }
            if now > start + time + PATIENCE {
                return Err(Trouble::new(format!("{} answers are missing", total - latencies.len())));
            }
            let next = if sent < total && !idle.is_empty() { due(sent) } else { now + PATIENCE };
            for ready in wait(&connections, next.saturating_duration_since(Instant::now()))? {
                if let Some(latency) = connections[ready].receive()? {
                    latencies.push(latency.as_secs_f64() * 1e6);
                    idle.push_back(ready);
                }
            }
        }
        Ok(Driven { units: latencies.len() as u64, p50_us: median(&mut latencies) })
    }
}

/// The connections on which something has arrived, after at most so long.
fn wait(connections: &[Connection<'_>], longest: Duration) -> Outcome<Vec<usize>> {
    let mut polled: Vec<PollFd<'_>> =
        connections.iter().map(|connection| PollFd::new(&connection.stream, PollFlags::IN)).collect();
    let longest = Timespec::try_from(longest).map_err(|_| Trouble::new("too long a wait"))?;
    poll(&mut polled, Some(&longest)).map_err(std::io::Error::from)?;
    Ok(polled.iter().enumerate().filter(|(_, polled)| !polled.revents().is_empty()).map(|(at, _)| at).collect())
}

impl<'p> Connection<'p> {
    fn open(address: SocketAddr) -> Outcome<Self> {
        let stream = connect(address)?;
        stream.set_nonblocking(true)?;
        Ok(Connection { stream, waits: None, bytes: Vec::with_capacity(4096) })
    }

    fn send(&mut self, due: Instant, prepared: &'p Prepared) -> Outcome<()> {
        // A request is far smaller than the socket's buffer, which is empty.
        self.stream.write_all(prepared.request.as_bytes())?;
        self.waits = Some((due, prepared));
        Ok(())
    }

    /// Reads what has arrived; the latency once the answer is whole.
    fn receive(&mut self) -> Outcome<Option<Duration>> {
        let mut chunk = [0; 4096];
        match self.stream.read(&mut chunk) {
            Ok(0) => return Err(Trouble::new("a kept-alive connection was closed")),
            Ok(read) => self.bytes.extend_from_slice(&chunk[..read]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let Some(answer) = whole(&self.bytes)? else { return Ok(None) };
        let Some((due, prepared)) = self.waits.take() else {
            return Err(Trouble::new("an answer came that nobody asked for"));
        };
        if answer.head.status != 200 || !holds(&self.bytes[..answer.end], prepared.holds.as_bytes()) {
            let text = String::from_utf8_lossy(&self.bytes).into_owned();
            return Err(Trouble::new(format!("not {}'s answer: {text}", prepared.holds)));
        }
        self.bytes.clear();
        Ok(Some(due.elapsed()))
    }
}
