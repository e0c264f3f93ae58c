//! Identity: which credential a request presents, and whose session it is.
//!
//! Invariants: at most one credential counts, and it comes from its own header or cookie alone; a session leads to one
//! person for its whole life; a person's or session's cancellation is sticky, so that a request which took it in its
//! lookup sees a revocation at any later point. This room reads no store and decides nothing about bots.

pub mod credential;
mod person;
mod sessions;

pub use credential::{Carrier, Credential, SESSION_COOKIE, credential};
pub use person::{Idle, Person, Session, SessionParts};
pub use sessions::{NotSignedIn, Sessions, Touched};
