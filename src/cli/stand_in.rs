//! `stand-in`: a small stand-in for a gateway.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::out::Failure;

/// Where it listens and whom it knows.
#[derive(Debug, clap::Args)]
pub(super) struct StandInArgs {
    /// Where to listen.
    #[arg(long, value_name = "A", default_value = "127.0.0.1:8642")]
    listen: SocketAddr,
    /// Profiles and their keys.
    #[arg(long, value_name = "FILE")]
    bots: Option<PathBuf>,
    /// Turns that it runs at once.
    #[arg(long, value_name = "N", default_value_t = 10)]
    max_turns: usize,
}

pub(super) fn run(_: StandInArgs) -> Result<(), Failure> {
    Err(Failure::new("stand-in: not built yet"))
}
