//! What to measure: the command line.

use std::time::Duration;

use clap::{Parser, ValueEnum};

use crate::peers::Peer;
use crate::scenarios::Scenario;

/// Compares what botgate costs with nginx, HAProxy and a Pingora proxy on the same job.
#[derive(Debug, Parser)]
#[command(name = "load")]
pub struct Args {
    /// Rounds of each scenario; the table shows medians.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Seconds for which each proxy is driven in each round.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Only these scenarios.
    #[arg(long, value_delimiter = ',', value_name = "SCENARIO")]
    only: Vec<Scenario>,
    /// Only these proxies.
    #[arg(long, value_delimiter = ',', value_name = "PEER")]
    peers: Vec<Peer>,
    /// Exit 1 when a target is missed.
    #[arg(long)]
    pub check: bool,
    /// Put table and chart into README.md and benches/load/cost.svg.
    #[arg(long)]
    pub readme: bool,
    /// The binary of the Pingora peer, as `benches/load/run` builds it.
    #[arg(long, value_name = "FILE", default_value = "target/load/pingora/release/pingora-peer")]
    pub pingora: std::path::PathBuf,
    /// What `cargo bench` adds.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Args {
    /// How long one drive takes.
    pub fn time(&self) -> Duration {
        Duration::from_secs(self.seconds.into())
    }

    /// The scenarios to run, in their order.
    pub fn scenarios(&self) -> Vec<Scenario> {
        let all = Scenario::value_variants().iter().copied();
        all.filter(|scenario| self.only.is_empty() || self.only.contains(scenario)).collect()
    }

    /// Whether a proxy is measured.
    pub fn measures(&self, peer: Peer) -> bool {
        self.peers.is_empty() || self.peers.contains(&peer)
    }
}
