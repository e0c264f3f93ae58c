//! Report: what the proofs say, for readiness, metrics and the operator. No keys in it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::Serialize;

use super::Verdict;
use super::prover::Found;
use crate::directory::{Bot, BotStanding, GatewayStanding, GatewayTarget};
use crate::names::{GatewayName, Login};

/// Bots that a report names.
const REPORTED: usize = 1000;

/// What the proofs say about all gateways, in the configuration's order.
#[derive(Debug, Clone, Serialize)]
pub struct ProofReport {
    /// One entry a gateway.
    pub gateways: Vec<GatewayReport>,
}

/// What the proofs say about one gateway.
#[derive(Debug, Clone, Serialize)]
pub struct GatewayReport {
    /// Its configured name.
    pub name: GatewayName,
    /// Where it listens.
    pub url: String,
    /// `starting`, `proved`, `proof_failed`, or `barred` when it runs as the edge's own user: only a proved one is served.
    pub standing: &'static str,
    /// Whether it could serve a turn, or would if it had a bot.
    pub servable: bool,
    /// Whether it answered when it was last asked.
    pub reachable: bool,
    /// What is known about its default profile's key.
    pub default_key: DefaultKey,
    /// Whether keys are shown to be bound to their paths.
    pub isolation: Isolation,
    /// Why it is not served, when it took a wrong key.
    pub fault: Option<Verdict>,
    /// When a proof last came to a result: seconds since the Unix epoch.
    pub proved_at: Option<u64>,
    /// Bots on it.
    pub bots: usize,
    /// Of those, proved ones.
    pub bots_proved: usize,
    /// Of those, ones that the gateway refuses.
    pub bots_refused: usize,
    /// Bots by their last result; results that no bot has are left out.
    pub verdicts: BTreeMap<&'static str, usize>,
    /// Bots whose last result is not that they are proved, by login; the first thousand.
    pub not_proved: Vec<BotReport>,
}

/// The last result of one bot.
#[derive(Debug, Clone, Serialize)]
pub struct BotReport {
    /// Whose bot.
    pub login: Login,
    /// The result; none when it has not been asked yet.
    pub verdict: Option<Verdict>,
}

/// What is known about the default profile's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DefaultKey {
    /// No file with it is configured.
    NotConfigured,
    /// Not tried yet.
    Untried,
    /// It opens the default profile, so that its refusal on a bot means something.
    Shown,
    /// The default profile refuses it: the file holds another key.
    Refused,
}

/// Whether keys are shown to be bound to their paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// Bots' keys, and the default key, open their own path and no other.
    Proven,
    /// Nothing wrong was found, but the default key was not tried, or nothing was proved yet.
    Unproven,
    /// A wrong key was accepted.
    Broken,
}

impl ProofReport {
    /// Whether some gateway can be served: what /readyz says.
    pub fn is_ready(&self) -> bool {
        self.gateways.iter().any(|gateway| gateway.servable)
    }
}

impl GatewayReport {
    pub(super) fn of(target: &GatewayTarget, bots: &HashMap<Login, Arc<Bot>>, found: &Found) -> Self {
        let standing = target.standing();
        let mut verdicts = BTreeMap::new();
        for verdict in bots.values().filter_map(|bot| found.ledger.verdict(bot)) {
            *verdicts.entry(verdict.as_str()).or_insert(0) += 1;
        }
        let mut not_proved: Vec<_> = bots
            .values()
            .map(|bot| BotReport { login: bot.login().clone(), verdict: found.ledger.verdict(bot) })
            .filter(|bot| bot.verdict != Some(Verdict::Proved))
            .collect();
        not_proved.sort_unstable_by(|a, b| a.login.cmp(&b.login));
        not_proved.truncate(REPORTED);
        let count = |standing| bots.values().filter(|bot| bot.standing() == standing).count();
        GatewayReport {
            name: target.name().clone(),
            url: target.url().to_string(),
            standing: if target.is_barred() { "barred" } else { standing_word(standing) },
            servable: match standing {
                GatewayStanding::Proved => true,
                GatewayStanding::Starting => bots.is_empty() && found.reachable,
                GatewayStanding::ProofFailed => false,
            },
            reachable: found.reachable,
            default_key: found.default_key,
            isolation: match standing {
                // Being barred says nothing about its keys.
                GatewayStanding::ProofFailed if found.ledger.fault().is_some() => Isolation::Broken,
                GatewayStanding::Proved if found.default_key == DefaultKey::Shown => Isolation::Proven,
                _ => Isolation::Unproven,
            },
            fault: found.ledger.fault(),
            proved_at: found.proved_at,
            bots: bots.len(),
            bots_proved: count(BotStanding::Proved),
            bots_refused: count(BotStanding::Refused),
            verdicts,
            not_proved,
        }
    }
}

/// The word for a standing.
pub(super) fn standing_word(standing: GatewayStanding) -> &'static str {
    match standing {
        GatewayStanding::Starting => "starting",
        GatewayStanding::Proved => "proved",
        GatewayStanding::ProofFailed => "proof_failed",
    }
}
