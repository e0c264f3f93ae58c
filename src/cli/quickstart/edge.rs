//! The edge of a quickstart: a configuration as an operator would write it, alice and bob, and a session for each.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::home::Person;
use crate::secret::{ApiServerKey, FreshToken};

/// What the edge is started with.
pub(super) struct Plan {
    /// The throw-away directory; its `data` is the edge's.
    pub(super) scratch: PathBuf,
    pub(super) listen: SocketAddr,
    pub(super) gateway: SocketAddr,
    pub(super) default_key: ApiServerKey,
    /// Alice and bob.
    pub(super) people: [Person; 2],
}

/// A running edge.
pub(super) struct Edge {
    address: SocketAddr,
    tokens: [FreshToken; 2],
}

impl Edge {
    /// Starts it, with both bots adopted.
    pub(super) async fn start(plan: Plan) -> Result<Self, String> {
        let _ = (plan.scratch, plan.listen, plan.gateway, plan.default_key, plan.people);
        Err("this build has no edge yet".to_owned())
    }

    /// Where it listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Alice's and bob's session tokens.
    pub(super) fn tokens(&self) -> [&str; 2] {
        [self.tokens[0].expose(), self.tokens[1].expose()]
    }

    /// Stops it, bounded.
    pub(super) async fn stop(self) {}
}
