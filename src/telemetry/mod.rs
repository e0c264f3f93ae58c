//! Telemetry: metrics, the audit log, and the set-up of tracing.
//!
//! Invariants: labels come from enums and configured names only; no secret, query or body passes through here; what is
//! written names a human by login. This room decides nothing about a request.

pub mod access;
pub mod audit;
mod lines;
pub mod metrics;
pub mod reason;
pub mod trace;

pub use access::{AccessLog, AccessRecord};
pub use audit::Audit;
pub use metrics::Metrics;
pub use reason::Reason;
