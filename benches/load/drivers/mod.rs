//! The clients: wrk for closed loops, and clients of our own for what wrk cannot do.

mod creations;
mod h2load;
mod handshakes;
mod idle;
mod open_loop;
mod sse;
mod wrk;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::{ClientConfig, ClientConnection, StreamOwned};

pub use creations::Creations;
pub use h2load::{H2load, UNDER_WAY};
pub use handshakes::Handshakes;
pub use idle::Idle;
pub use open_loop::{OpenLoop, Prepared};
pub use sse::Streams;
pub use wrk::{CONNECTIONS, Wrk};

use crate::trouble::{Outcome, Trouble};
use crate::wire::{AnswerHead, answer_head, body_length};

/// The longest wait for any one answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a drive came to.
#[derive(Debug, Clone, Copy)]
pub struct Driven {
    /// Answers, or events of streams.
    pub units: u64,
    /// Median latency in microseconds.
    pub p50_us: f64,
}

/// One answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub body: String,
}

/// Sends one request on a connection of its own, and reads its answer.
///
/// # Errors
/// Nobody answers.
pub fn call(address: SocketAddr, request: &str) -> Outcome<Answer> {
    exchange(&mut connect(address)?, request)
}

fn connect(address: SocketAddr) -> Outcome<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// The same over TLS.
///
/// # Errors
/// Nobody answers.
pub fn call_encrypted(address: SocketAddr, client: &Arc<ClientConfig>, request: &str) -> Outcome<Answer> {
    exchange(&mut encrypted(address, client)?, request)
}

fn encrypted(address: SocketAddr, client: &Arc<ClientConfig>) -> Outcome<StreamOwned<ClientConnection, TcpStream>> {
    let name = address.ip().into();
    let session = ClientConnection::new(Arc::clone(client), name);
    let session = session.map_err(|error| Trouble::new(format!("no TLS: {error}")))?;
    Ok(StreamOwned::new(session, connect(address)?))
}

/// Sends one request, and reads its answer.
fn exchange(stream: &mut (impl Read + Write), request: &str) -> Outcome<Answer> {
    stream.write_all(request.as_bytes())?;
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        if let Some(whole) = whole(&bytes)? {
            let body = String::from_utf8_lossy(&bytes[whole.head.length..whole.end]).into_owned();
            return Ok(Answer { status: whole.head.status, body });
        }
        match stream.read(&mut chunk)? {
            0 => return Err(Trouble::new("the connection ended before the answer did")),
            read => bytes.extend_from_slice(&chunk[..read]),
        }
    }
}

/// An answer that is all there.
struct Whole {
    head: AnswerHead,
    /// Bytes of head and body.
    end: usize,
}

/// The answer at the start of `bytes`; `None` while it is not whole.
fn whole(bytes: &[u8]) -> Outcome<Option<Whole>> {
    let head = answer_head(bytes).map_err(|error| Trouble::new(format!("an answer is no HTTP: {error}")))?;
    let Some(head) = head else { return Ok(None) };
    let body = body_length(&bytes[head.length..], head.framing);
    let body = body.map_err(|_| Trouble::new("an answer's chunks are none"))?;
    Ok(body.map(|body| Whole { head, end: head.length + body }))
}

/// The median; 0 of nothing.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        count if count % 2 == 1 => values[count / 2],
        count => f64::midpoint(values[count / 2 - 1], values[count / 2]),
    }
}
