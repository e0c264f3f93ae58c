//! Gateway: what the edge knows and asks of a Hermes gateway besides forwarding to it.
//!
//! - [`permits`]: the turns that a gateway may run at once, shared out fairly
//!
//! Invariants: a permit is a guard and ends with the gateway's work; a probe and a run watch can each ask two things of
//! a gateway and nothing else. This room does not decide who a request belongs to.

pub mod permits;
mod queue;
