//! Settings: what of the edge can change while it serves.
//!
//! Invariant: a request has one set of settings from its first decision to its last byte; a change holds for what comes after it.

use std::sync::Arc;

use super::forwarders::Forwarders;
use super::head::AllowedHosts;
use super::rates::Rates;
use crate::config::{Config, Deadlines, HeaderText, Host, Limits};

/// One set of settings.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Authorities that requests may name.
    pub hosts: AllowedHosts,
    /// Whose word about a client's address and encryption counts.
    pub forwarders: Forwarders,
    /// Bounds on people and bodies.
    pub limits: Limits,
    /// How often people and addresses may ask.
    pub rates: Arc<Rates>,
    /// Bounds on waiting.
    pub deadlines: Deadlines,
    /// Further request headers to let through, one entry per gateway.
    pub forward_headers: Vec<Vec<HeaderText>>,
    /// Whether session cookies count also where the client's connection is not encrypted.
    pub insecure_cookies: bool,
}

impl Settings {
    /// The settings of a configuration; `bound`: the address that the edge listens on, under which it is always known.
    pub fn new(config: &Config, bound: Option<&Host>) -> Self {
        Settings {
            hosts: AllowedHosts::new(config.listen.hosts.iter().chain(bound)),
            forwarders: Forwarders::new(&config.listen.trusted_forwarders),
            limits: config.limits.clone(),
            rates: Arc::new(Rates::new(&config.limits)),
            deadlines: config.deadlines.clone(),
            forward_headers: config.gateways.iter().map(|gateway| gateway.forward_headers.clone()).collect(),
            insecure_cookies: config.insecure_loopback_cookies,
        }
    }

    /// The settings of a changed configuration: whoever has asked too often under a rate that stays has still done so.
    pub fn changed(&self, config: &Config, bound: Option<&Host>) -> Self {
        let (old, new) = (&self.limits, &config.limits);
        let same = old.requests_per_second_per_person == new.requests_per_second_per_person
            && old.requests_per_second_per_address == new.requests_per_second_per_address;
        let changed = Settings::new(config, bound);
        if same { Settings { rates: self.rates.clone(), ..changed } } else { changed }
    }
}
