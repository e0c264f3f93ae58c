//! The public side: sockets, connection bounds, and the deadlines of HTTP/1.1 connections.
//!
//! Invariants: every data-path thread accepts on a socket of its own and no request leaves its thread; no connection waits
//! without a deadline, not even one that sends nothing; accept errors never end the loop or spin. This room does not look at
//! requests.

mod accept;
mod http1;
mod limits;
mod pace;
mod sockets;
mod threads;

pub use sockets::{BindError, bind};
pub use threads::DataPath;
