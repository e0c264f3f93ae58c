//! Idle connections: each has had one answer and waits for its next request.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};

use super::{connect, exchange};
use crate::trouble::{Outcome, Trouble};

/// Kept-alive connections. Dropping them closes them.
#[derive(Debug)]
pub struct Idle(Vec<TcpStream>);

impl Idle {
    /// Opens a connection for each request, one after the other, and has it answered.
    ///
    /// # Errors
    /// One is refused or not answered.
    pub fn open(address: SocketAddr, requests: impl Iterator<Item = String>) -> Outcome<Self> {
        let open = |request: String| {
            let mut stream = connect(address)?;
            let answer = exchange(&mut stream, &request)?;
            stream.set_nonblocking(true)?;
            match answer.status {
                200 => Ok(stream),
                status => Err(Trouble::new(format!("status {status}"))),
            }
        };
        requests.map(open).collect::<Outcome<_>>().map(Idle)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Fails when one was closed meanwhile.
    ///
    /// # Errors
    /// How many were.
    pub fn are_open(&self) -> Outcome<()> {
        let silent =
            |stream: &&TcpStream| stream.peek(&mut [0; 1]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        match self.0.len() - self.0.iter().filter(silent).count() {
            0 => Ok(()),
            closed => Err(Trouble::new(format!("{closed} idle connections were closed"))),
        }
    }
}
