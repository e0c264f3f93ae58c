//! rewrite: a grant and a screened head become the head that goes to the gateway.
//!
//! Invariants: an [`Outbound`] exists only with a [`Grant`]; its path starts with the grant's own prefix and never holds the
//! client's profile segment; its credential is the grant's. Which of the client's header lines pass is a set of their
//! places, so that the engine moves them without this stage knowing its types. Nothing is copied here.

use super::authorize::Grant;
use super::client::Client;
use super::head::{Asked, HeadView, LINES_MAX};
use super::headers::{is_nominated, nominates, request_passes};
use crate::config::HeaderText;

/// The head of a request to a gateway.
#[derive(Debug)]
pub struct Outbound<'g> {
    grant: &'g Grant,
    below: &'g str,
    kept: KeptLines,
    client: &'g Client,
}

/// The places of the header lines that pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeptLines(u128);

const _: () = assert!(LINES_MAX <= 128, "a set of places has 128 bits");

impl KeptLines {
    /// Whether the line at this place passes.
    pub fn contains(self, place: usize) -> bool {
        self.0 >> place & 1 == 1
    }
}

impl<'g> Outbound<'g> {
    /// The head for the grant's gateway. `asked` is what screening found in this head.
    pub fn new(grant: &'g Grant, head: &HeadView<'g>, asked: Asked, extra: &[HeaderText], client: &'g Client) -> Self {
        // Most clients nominate nothing; looking once saves a search for every line.
        let nominates = nominates(head);
        let kept = head.lines.iter().enumerate().fold(0, |kept, (place, line)| {
            let passes = request_passes(line.name, extra) && !(nominates && is_nominated(head, line.name));
            kept | u128::from(passes) << place
        });
        Outbound { grant, below: asked.below(head.path_and_query), kept: KeptLines(kept), client }
    }

    /// The grant that it was made with.
    pub fn grant(&self) -> &'g Grant {
        self.grant
    }

    /// Path and query towards the gateway, in two parts: the bot's own prefix, and what is below it.
    pub fn target(&self) -> [&'g str; 2] {
        [self.grant.bot().prefix(), self.below]
    }

    /// Which of the client's header lines pass.
    pub fn kept(&self) -> KeptLines {
        self.kept
    }

    /// Who asks, whatever it claims: what the forwarding lines tell.
    pub fn client(&self) -> &'g Client {
        self.client
    }
}
