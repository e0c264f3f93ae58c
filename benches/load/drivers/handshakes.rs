//! Full handshakes: a connection for each request, without a session from an earlier one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::{ClientConfig, HandshakeKind};

use super::{Driven, encrypted, exchange, median};
use crate::trouble::{Outcome, Trouble};

/// Clients at once.
const CLIENTS: usize = 16;

/// Requests, each for a connection of its own.
#[derive(Debug)]
pub struct Handshakes {
    pub client: Arc<ClientConfig>,
    pub requests: Vec<String>,
}

impl Handshakes {
    /// Drives a proxy.
    ///
    /// # Errors
    /// A handshake fails or is not a full one, or an answer is not the right one.
    pub fn drive(&self, address: SocketAddr, time: Duration) -> Outcome<Driven> {
        let end = Instant::now() + time;
        let all = std::thread::scope(|scope| {
            let clients: Vec<_> =
                (0..CLIENTS).map(|number| scope.spawn(move || self.one(number, address, end))).collect();
            clients
                .into_iter()
                .map(|client| client.join().unwrap_or_else(|_| Err(Trouble::new("a client panics"))))
                .collect()
        });
        let all: Outcome<Vec<Vec<f64>>> = all;
        let mut times = all?.concat();
        Ok(Driven { units: times.len() as u64, p50_us: median(&mut times) })
    }

    /// One client's times, in microseconds.
    fn one(&self, number: usize, address: SocketAddr, end: Instant) -> Outcome<Vec<f64>> {
        let (mut times, mut at) = (Vec::new(), number * self.requests.len() / CLIENTS);
        while Instant::now() < end {
            let since = Instant::now();
            let mut stream = encrypted(address, &self.client)?;
            let answer = exchange(&mut stream, &self.requests[at % self.requests.len()])?;
            let is_full = stream.conn.handshake_kind() == Some(HandshakeKind::Full);
            let is_tls13 = stream.conn.protocol_version() == Some(rustls::ProtocolVersion::TLSv1_3);
            if answer.status != 200 || !is_full || !is_tls13 {
                return Err(Trouble::new(format!("{} after {:?}", answer.status, stream.conn.handshake_kind())));
            }
            times.push(since.elapsed().as_secs_f64() * 1e6);
            at += 1;
        }
        Ok(times)
    }
}
