//! The `stand-in` command: options from the command line, one log line, and a stop that lets turns end.

use std::fmt;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use super::{Options, serve};
use crate::names::ProfileName;
use crate::secret::ApiServerKey;

/// How long running turns get after SIGTERM, as the real one gives them.
const DRAIN: Duration = Duration::from_secs(30);

/// Where a stand-in listens and whom it knows.
#[derive(Debug, clap::Args)]
pub struct StandInArgs {
    /// Where to listen; port 0 lets the system choose.
    #[arg(long, value_name = "A", default_value = "127.0.0.1:8642")]
    listen: SocketAddr,
    /// File with one PROFILE=API_SERVER_KEY a line; `default=KEY` sets the key of bare paths; `#` begins a comment line.
    #[arg(long, value_name = "FILE")]
    bots: PathBuf,
    /// Turns at once, for all bots together; 0: no cap.
    #[arg(long, value_name = "N", default_value_t = 10)]
    max_turns: usize,
}

/// Why a stand-in does not run.
#[derive(Debug)]
pub enum StandInError {
    /// The file of bots cannot be read.
    Read(PathBuf, io::Error),
    /// A line of it is wrong; lines count from 1. The line is left out: it may hold a key.
    Line(PathBuf, usize, String),
    /// The address cannot be listened on.
    Listen(SocketAddr, io::Error),
}

impl fmt::Display for StandInError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StandInError::Read(file, error) => write!(f, "{} cannot be read: {error}", file.display()),
            StandInError::Line(file, line, problem) => write!(f, "{}, line {line}: {problem}", file.display()),
            StandInError::Listen(address, error) => write!(f, "{address} cannot be listened on: {error}"),
        }
    }
}

impl std::error::Error for StandInError {}

/// Serves until SIGTERM or SIGINT, then lets running turns end.
///
/// # Errors
/// [`StandInError`] when it cannot begin.
pub async fn run(args: StandInArgs) -> Result<ExitCode, StandInError> {
    let text = std::fs::read_to_string(&args.bots).map_err(|error| StandInError::Read(args.bots.clone(), error))?;
    let mut options = bots(&text, &args.bots)?;
    options.max_turns = args.max_turns;
    let served = options.bots.len();
    let failed = |error| StandInError::Listen(args.listen, error);
    let stand_in = TcpListener::bind(args.listen).and_then(|listener| serve(listener, options)).map_err(failed)?;
    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate()).map_err(failed)?, signal(SignalKind::interrupt()).map_err(failed)?);
    tracing::info!(
        address = %stand_in.address(), bots = served, max_turns = args.max_turns,
        "botgate stand-in is listening; it is not Hermes and runs no agent"
    );
    // Nobody may be reading; that is no reason to stop.
    let _ = writeln!(io::stdout(), "stand-in listening on http://{}", stand_in.address());
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    stand_in.drain();
    let idle = async {
        while stand_in.running() > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let _ = tokio::time::timeout(DRAIN, idle).await;
    stand_in.stop();
    Ok(ExitCode::SUCCESS)
}

/// Reads the file of bots.
fn bots(text: &str, file: &Path) -> Result<Options, StandInError> {
    let mut options = Options::new(Vec::new(), ApiServerKey::generate());
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |problem: String| StandInError::Line(file.to_owned(), at + 1, problem);
        let Some((name, key)) = line.split_once('=') else {
            return Err(wrong("is not PROFILE=API_SERVER_KEY".to_owned()));
        };
        let key = ApiServerKey::parse(key).map_err(|error| wrong(format!("the key {error}")))?;
        if name.trim() == super::residents::DEFAULT {
            options.default_key = key;
        } else {
            let name = ProfileName::parse(name.trim()).map_err(|error| wrong(format!("the profile name {error}")))?;
            options.bots.push((name, key));
        }
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_bots_is_read_line_by_line() {
        let options =
            bots("# two\n\nbot-alice=0123456789abcdef\n default = fedcba9876543210\n", Path::new("bots")).unwrap();
        assert_eq!(options.bots[0].0.as_str(), "bot-alice");
        assert_eq!(options.default_key.expose(), "fedcba9876543210");
    }

    #[test]
    fn a_wrong_line_is_named_without_its_key() {
        for (text, line) in [("bot-a", 1), ("\nbot-a=short", 2), ("alice=0123456789abcdef", 1)] {
            let error = bots(text, Path::new("bots")).unwrap_err().to_string();
            assert!(error.contains(&format!("line {line}: ")), "{error}");
            assert!(!error.contains("0123456789abcdef") && !error.contains("=short"), "{error}");
        }
    }
}
