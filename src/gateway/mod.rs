//! Gateway: what the edge knows and asks of a Hermes gateway besides forwarding to it.
//!
//! - [`permits`]: the turns that a gateway may run at once, shared out fairly
//! - [`runs`]: turns that outlive their request, followed to their end
//!
//! Invariants: a permit is a guard and ends with the gateway's work; a probe and a run watch can each ask two things of
//! a gateway and nothing else. This room does not decide who a request belongs to.

mod control_client;
pub mod permits;
mod queue;
pub mod runs;
#[cfg(test)]
mod test_gateway;
