//! Admin: the operator's API on a Unix socket, and metrics, health and readiness for machines.
//!
//! Invariants: the socket's directory and control file are readable by the edge's user alone, the caller's user is
//! checked by the kernel's word, and every call carries the control token of this start; an operation that has begun is
//! carried to its end, also when its caller leaves. The metrics side changes nothing and names nobody.

mod answer;
mod bots;
mod connection;
mod control_file;
mod doctor;
mod import;
mod people;
mod probes;
mod router;
mod sessions;
mod socket;
pub mod wire;

pub use control_file::{ControlFile, ControlFileError};
pub use probes::{probes_router, serve_probes};
pub use router::router;
pub use socket::{AdminSocket, connect};
