//! The public side: sockets, TLS, connection bounds, and the deadlines of HTTP/1.1 and HTTP/2 connections.
//!
//! Invariants: every data-path thread accepts on a socket of its own, unless fewer were handed over than there are threads,
//! and no request leaves its thread; no connection waits without a deadline, not even one that sends nothing; accept errors
//! never end the loop or spin; what the system has accepted is answered before its socket closes. This room does not look at
//! requests.

mod accept;
mod frames;
mod http1;
mod http2;
mod limits;
mod pace;
mod pulse;
mod socket;
mod sockets;
mod streams;
mod threads;
pub mod tls;

#[cfg(any(test, fuzzing))]
pub use http1::properties;
pub use pulse::Pulse;
pub use sockets::{BindError, Sockets, bind};
pub use threads::{DataPath, Drained};
