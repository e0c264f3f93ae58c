//! Telemetry: metrics, the audit log, and the set-up of tracing.
//!
//! Invariants: labels come from enums and configured names only; no secret, query or body passes through here; what is
//! written names a human by login. This room decides nothing about a request.

pub mod reason;
