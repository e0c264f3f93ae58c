//! Quickstart: alice and bob behind an edge in a minute, and nothing left afterwards.
//!
//! Behind the edge is an installed Hermes 0.22 or later, started as a child in a throw-away home with the stand-in's model,
//! or else the stand-in itself. Everything lives in one temporary directory that goes when the command ends. A Hermes that
//! runs already is never touched; the lines that would adopt its bots are printed.

mod edge;
mod hermes;
mod home;
mod lines;
mod scratch;
mod signals;
mod stage;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::keeper::StageError;
use signals::Signals;
use stage::Stage;

/// What to try botgate out with.
#[derive(Debug, clap::Args)]
pub struct QuickstartArgs {
    /// Where the edge listens; without it 127.0.0.1:8080, or a free port when that is taken.
    #[arg(long, value_name = "A")]
    listen: Option<SocketAddr>,
    /// The hermes program to use, in place of the one on PATH.
    #[arg(long, value_name = "FILE", conflicts_with = "stand_in")]
    hermes: Option<PathBuf>,
    /// Use the stand-in even when a Hermes is installed.
    #[arg(long)]
    stand_in: bool,
}

/// Why there is no quickstart.
#[derive(Debug)]
pub enum QuickstartError {
    /// The throw-away directory, or a file in it.
    Scratch(io::Error),
    /// A loopback socket, a signal handler or a thread cannot be had.
    System(&'static str, io::Error),
    /// A profile cannot be staged.
    Profile(StageError),
    /// The edge does not start.
    Edge(String),
    /// The gateway ended while it was needed.
    GatewayEnded(String),
}

impl fmt::Display for QuickstartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QuickstartError::Scratch(error) => write!(f, "the temporary directory: {error}"),
            QuickstartError::System(what, error) => write!(f, "{what}: {error}"),
            QuickstartError::Profile(error) => write!(f, "staging a bot: {error}"),
            QuickstartError::Edge(error) => write!(f, "the edge does not start: {error}"),
            QuickstartError::GatewayEnded(tail) => write!(f, "the gateway ended by itself:\n{tail}"),
        }
    }
}

impl std::error::Error for QuickstartError {}

/// Serves until SIGINT, SIGTERM or SIGHUP, then leaves nothing behind, whatever it was doing.
///
/// # Errors
/// [`QuickstartError`], after everything has been taken down again.
pub async fn run(args: QuickstartArgs) -> Result<ExitCode, QuickstartError> {
    let mut signals = Signals::new()?;
    // Apart from the play, so that whatever ends it leaves a stage to be taken down in order.
    let mut stage = Stage::default();
    let played = stage.play(args, &mut signals).await;
    let cleared = stage.clear().await;
    played?;
    cleared.map_err(QuickstartError::Scratch)?;
    Ok(ExitCode::SUCCESS)
}
