//! Keeper: the side beside the gateway, as its user. Today it holds the file work: staging a profile.
//!
//! Invariants: every file is reached through a directory handle and no link is followed; a profile appears in one rename
//! that replaces nothing; nothing that is read here is interpreted. This room imports only names, secret, config and
//! tasks, talks to no network and starts no process.

mod files;
mod stage;

pub use stage::{MCP_TOKEN_VARIABLE, ProfileFiles, Profiles, StageError};
