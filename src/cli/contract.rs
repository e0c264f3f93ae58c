//! `doctor --gateway-contract`: the facts about the gateways that botgate relies on, tried on each configured one.

use super::client::with_admin;
use super::out::{Failure, Out};
use crate::admin::wire::{Contracts, Empty, FactState};
use crate::config::Config;

pub(super) fn run(config: &Config, out: Out) -> Result<(), Failure> {
    let tried: Contracts = with_admin(config, |admin| admin.call("/doctor/contract", &Empty {}))?;
    out.show(&tried, || text(&tried))?;
    let facts = || tried.gateways.iter().flat_map(|gateway| &gateway.facts);
    let broken: Vec<&str> = facts().filter(|f| f.state == FactState::Broken).map(|f| f.name.as_str()).collect();
    if !broken.is_empty() {
        let message = format!("this gateway is not one that botgate knows; broken: {}", broken.join(" "));
        return Err(Failure::with_next(message, "use a gateway version that the README names"));
    }
    if let Some(gateway) = tried.gateways.iter().find(|g| g.facts.iter().all(|f| f.state == FactState::Untried)) {
        let why = gateway.untried.as_deref().unwrap_or("it does not answer");
        return Err(Failure::new(format!("gateway {}: nothing could be tried: {why}", gateway.gateway)));
    }
    Ok(())
}

fn text(tried: &Contracts) -> String {
    let mut text = String::new();
    for gateway in &tried.gateways {
        text.push_str(&format!("gateway {}\n", gateway.gateway));
        for fact in &gateway.facts {
            let word = match fact.state {
                FactState::Holds => "holds  ",
                FactState::Broken => "BROKEN ",
                FactState::Untried => "untried",
            };
            let how = fact.how.as_ref().map(|how| format!(" ({how})")).unwrap_or_default();
            text.push_str(&format!("  {word}  {}: {}{how}\n", fact.name, fact.fact));
        }
        if let Some(why) = &gateway.untried {
            text.push_str(&format!("  untried  {why}\n"));
        }
    }
    text
}
