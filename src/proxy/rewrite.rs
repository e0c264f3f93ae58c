//! rewrite: a grant and a screened head become the head that goes to the gateway.
//!
//! Invariants: an [`Outbound`] exists only with a [`Grant`]; its path starts with the grant's own prefix and never holds the
//! client's profile segment; its credential is the grant's. Which of the client's header lines pass is a set of their
//! places, so that the engine moves them without this stage knowing its types.

use std::net::IpAddr;

use super::authorize::Grant;
use super::head::{LINES_MAX, Screened};
use super::headers::{is_nominated, request_passes};
use crate::config::HeaderText;

/// The head of a request to a gateway.
#[derive(Debug)]
pub struct Outbound<'g> {
    grant: &'g Grant,
    target: String,
    kept: KeptLines,
    forwarded_for: IpAddr,
    forwarded_host: String,
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
    /// The head for the grant's gateway.
    pub fn new(grant: &'g Grant, screened: &Screened<'_>, extra: &[HeaderText], peer: IpAddr) -> Self {
        let (head, asked) = (screened.head(), screened.target());
        let prefix = grant.bot().prefix();
        let mut target = String::with_capacity(prefix.len() + asked.raw().len());
        target.push_str(prefix);
        target.push_str(asked.path());
        if let Some(query) = asked.query() {
            target.push('?');
            target.push_str(query);
        }
        // Most clients send no Connection field; looking once saves a search for every line.
        let nominates = head.has("connection");
        let kept = head.lines.iter().enumerate().fold(0, |kept, (place, line)| {
            let passes = request_passes(line.name, extra) && !(nominates && is_nominated(head, line.name));
            kept | u128::from(passes) << place
        });
        // Screening has found exactly one Host, equal to one of ours.
        let host = head.values("host").next().unwrap_or_default();
        Outbound {
            grant,
            target,
            kept: KeptLines(kept),
            forwarded_for: peer,
            forwarded_host: String::from_utf8_lossy(host).into_owned(),
        }
    }

    /// The grant that it was made with.
    pub fn grant(&self) -> &'g Grant {
        self.grant
    }

    /// Path and query towards the gateway.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Which of the client's header lines pass.
    pub fn kept(&self) -> KeptLines {
        self.kept
    }

    /// Value of X-Forwarded-For: the peer, whatever the client claimed.
    pub fn forwarded_for(&self) -> IpAddr {
        self.forwarded_for
    }

    /// Value of X-Forwarded-Host.
    pub fn forwarded_host(&self) -> &str {
        &self.forwarded_host
    }
}
