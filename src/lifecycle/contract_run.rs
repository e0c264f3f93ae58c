//! The contract check on the configured gateways, with the keys of bots that are registered there.

use std::sync::Arc;
use std::time::Duration;

use crate::directory::Bot;
use crate::names::GatewayName;

use super::Control;
use super::contract::{self, Outcome, Subject};
use super::open::default_key;

/// Longest look-up of a gateway's name.
const LOOK_UP: Duration = Duration::from_secs(5);

/// What the contract check found on one gateway.
#[derive(Debug)]
pub struct ContractReport {
    /// Which.
    pub gateway: GatewayName,
    /// One for each fact, or why none could be tried.
    pub outcomes: Result<Vec<Outcome>, String>,
}

impl Control {
    /// Tries the facts that the edge relies on, on each gateway, one request after the other.
    pub async fn gateway_contract(&self) -> Vec<ContractReport> {
        let mut reports = Vec::new();
        for gateway in &self.config().gateways {
            let mut bots: Vec<Arc<Bot>> = self.directory().snapshot().values().cloned().collect();
            bots.retain(|bot| *bot.gateway().name() == gateway.name);
            bots.sort_by(|a, b| a.login().cmp(b.login()));
            let subject = |bot: &Arc<Bot>| Subject::new(bot.profile().as_str(), bot.key().expose());
            let mut subjects = bots.iter().filter_map(subject);
            let outcomes = match (subjects.next(), self.address_of(&gateway.url).await) {
                (None, _) => Err("no bot to try it with: botgate bot adopt LOGIN --api-server-key-stdin".to_owned()),
                (_, Err(why)) => Err(why),
                (Some(own), Ok(address)) => {
                    let mut target = contract::Gateway::new(address, own);
                    if let Some(neighbour) = subjects.next() {
                        target = target.with_neighbour(neighbour);
                    }
                    if let Ok(Some(key)) = default_key(gateway) {
                        target = target.with_default_key(key.expose());
                    }
                    Ok(contract::check(&target).await)
                }
            };
            reports.push(ContractReport { gateway: gateway.name.clone(), outcomes });
        }
        reports
    }

    async fn address_of(&self, url: &crate::config::GatewayUrl) -> Result<std::net::SocketAddr, String> {
        let found = tokio::time::timeout(LOOK_UP, tokio::net::lookup_host((url.host(), url.port()))).await;
        let mut found =
            found.map_err(|_| format!("{url}: the name is not answered"))?.map_err(|e| format!("{url}: {e}"))?;
        found.next().ok_or_else(|| format!("{url}: has no address"))
    }
}
