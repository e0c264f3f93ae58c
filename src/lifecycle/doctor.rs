//! Doctor: what of the running parts is as it must be, and what is not.

use std::sync::Arc;

use crate::config::Gateway;
use crate::directory::{Bot, GatewayStanding};
use crate::gateway::probe::DefaultKey;

use super::open::default_key;
use super::{Control, same_user};

/// Bots that a look at one gateway proves when nothing has proved them before.
const PROVED_AT_ONCE: usize = 8;

/// How a thing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// As it must be.
    Fine,
    /// Works, but see the message.
    Warning,
    /// Must be mended.
    Wrong,
}

/// One thing that was looked at.
#[derive(Debug)]
pub struct Finding {
    /// What was looked at.
    pub check: String,
    /// How it is.
    pub health: Health,
    /// What was found, and what to do.
    pub message: String,
}

impl Finding {
    /// A finding.
    pub fn new(check: impl Into<String>, health: Health, message: impl Into<String>) -> Self {
        Finding { check: check.into(), health, message: message.into() }
    }
}

impl Control {
    /// Looks at the store, the rows, and each gateway.
    pub async fn doctor(&self) -> Vec<Finding> {
        let mut findings = vec![self.look_at_store().await];
        findings.push(match self.audit().is_healthy() {
            true => Finding::new("audit log", Health::Fine, "takes records"),
            false => Finding::new("audit log", Health::Wrong, "cannot be written: see the disk of data_dir/audit"),
        });
        let orphans = self.orphans();
        if orphans > 0 {
            let message = format!("{orphans} being deleted, profile not gone yet; see botgate reconcile");
            findings.push(Finding::new("people", Health::Warning, message));
        }
        for gateway in &self.config().gateways {
            findings.push(user_of(gateway));
            findings.extend(self.look_at_gateway(gateway).await);
        }
        findings
    }

    async fn look_at_store(&self) -> Finding {
        let loaded = match self.store().load().await {
            Ok(loaded) => loaded,
            Err(error) => return Finding::new("database", Health::Wrong, error.to_string()),
        };
        match &loaded.problems[..] {
            [] => {
                let message = format!("{} people, {} bots, every key opens", loaded.people.len(), loaded.bots.len());
                Finding::new("database", Health::Fine, message)
            }
            [first, rest @ ..] => {
                let more = if rest.is_empty() { String::new() } else { format!(" (and {} more)", rest.len()) };
                Finding::new("database", Health::Wrong, format!("{first}{more}"))
            }
        }
    }

    async fn look_at_gateway(&self, gateway: &Gateway) -> Vec<Finding> {
        let check = format!("gateway {}", gateway.name);
        let mut bots: Vec<Arc<Bot>> = self.directory().snapshot().values().cloned().collect();
        bots.retain(|bot| *bot.gateway().name() == gateway.name);
        bots.sort_by(|a, b| a.login().cmp(b.login()));
        if bots.is_empty() {
            let next = "no bot to prove it with: botgate bot adopt LOGIN --api-server-key-stdin";
            return vec![Finding::new(check, Health::Warning, next)];
        }
        let mut findings = Vec::new();
        let mut proved = 0;
        for bot in bots.iter().take(PROVED_AT_ONCE) {
            match self.prove(bot.login()).await {
                Ok(proof) if proof.is_proved() => proved += 1,
                Ok(proof) => {
                    let message = format!("{}: {}", proof.profile, proof.verdict);
                    findings.push(Finding::new(check.clone(), Health::Wrong, message));
                }
                Err(error) => findings.push(Finding::new(check.clone(), Health::Wrong, error.to_string())),
            }
        }
        let looked = bots.len().min(PROVED_AT_ONCE);
        let standing = bots[0].gateway().standing();
        let isolation = self.isolation_of(gateway);
        let health = match (standing, &isolation) {
            (GatewayStanding::Proved, None) => Health::Fine,
            (GatewayStanding::Proved, Some((health, _))) => *health,
            _ => Health::Wrong,
        };
        let word = match standing {
            _ if same_user(std::slice::from_ref(gateway)).is_err() => "not another user, not served",
            GatewayStanding::Proved => "served",
            GatewayStanding::Starting => "not proved yet, not served",
            GatewayStanding::ProofFailed => "takes a key that it must refuse, not served",
        };
        let more = isolation.map(|(_, more)| format!("; {more}")).unwrap_or_default();
        let message = format!("{word}; {proved} of {looked} bots looked at are proved{more}");
        findings.insert(0, Finding::new(check, health, message));
        findings
    }

    /// What keeps the proof from showing that the default profile's key opens no bot.
    fn isolation_of(&self, gateway: &Gateway) -> Option<(Health, String)> {
        match default_key(gateway) {
            Err(error) => return Some((Health::Wrong, error.to_string())),
            Ok(None) => {
                let message = "that the default key opens no bot is unproven without default_api_server_key_file";
                return Some((Health::Warning, message.to_owned()));
            }
            Ok(Some(_)) => {}
        }
        let report = self.prover().report().gateways.into_iter().find(|report| report.name == gateway.name);
        let refused = report.is_some_and(|report| report.default_key == DefaultKey::Refused);
        let message = "default_api_server_key_file does not hold the default profile's key: its refusal shows nothing";
        refused.then(|| (Health::Wrong, message.to_owned()))
    }
}

fn user_of(gateway: &Gateway) -> Finding {
    let check = format!("user of {}", gateway.name);
    if let Err(same) = same_user(std::slice::from_ref(gateway)) {
        return Finding::new(check, Health::Wrong, same.to_string());
    }
    if gateway.allow_same_user {
        let message = "allow_same_user is set: an agent may be able to read the edge's keys; for trying out only";
        return Finding::new(check, Health::Warning, message);
    }
    match gateway.url.is_loopback().then(|| super::same_user::listener_uid(&gateway.url)).flatten() {
        Some(0) => Finding::new(check, Health::Warning, "runs as root, who can read everything on this machine"),
        Some(uid) => Finding::new(check, Health::Fine, format!("runs as user {uid}, not as the edge")),
        None => Finding::new(check, Health::Warning, "cannot be told: it does not listen on this machine now"),
    }
}
