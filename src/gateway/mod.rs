//! Gateway: what the edge knows and asks of a Hermes gateway besides forwarding to it.
//!
//! - [`pool`], [`call`]: connections, one request and its answer; [`outgoing`], [`request_body`], [`feed`]: what is sent; [`answer`] and
//!   `content`: what is read
//! - [`permits`]: the turns that a gateway may run at once, shared out fairly
//! - [`probe`]: proof on the real gateway that each key opens its own path and no other
//! - [`runs`]: turns that outlive their request, followed to their end
//!
//! Invariants: a permit is a guard and ends with the gateway's work; a probe and a run watch can each ask two things of
//! a gateway and nothing else. This room does not decide who a request belongs to.

pub mod answer;
pub mod call;
mod content;
mod control_client;
pub mod feed;
pub mod outgoing;
pub mod permits;
pub mod pool;
pub mod probe;
#[cfg(any(test, fuzzing))]
pub mod properties;
mod queue;
pub mod request_body;
pub mod runs;
#[cfg(test)]
mod test_gateway;
