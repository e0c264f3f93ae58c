//! `serve`: run the edge: lock, store, audit log, proof, admin socket, metrics, and then the data path.
//!
//! Invariants: nothing is served before everything that a request needs is open; what was started is stopped in the opposite
//! order; a start that fails leaves nothing running. The data path has threads of its own, control work the caller's runtime.

mod error;
mod ready;
mod run_log;
mod start;

use std::io::Write;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

pub use error::ServeError;
pub use start::Running;

use crate::config::Config;

/// Threads for control work: store calls, admin, proofs and metrics wait for each other less with two.
const CONTROL_THREADS: usize = 2;

/// Serves until SIGTERM or SIGINT; a second one cuts what still runs.
///
/// # Errors
/// [`ServeError`]
pub fn run(config: Config) -> Result<(), ServeError> {
    // A subscriber that is there already serves as well.
    let _ = crate::telemetry::trace::init(None);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(CONTROL_THREADS)
        .thread_name("control")
        .enable_all()
        .build()
        .map_err(ServeError::System)?;
    let served = runtime.block_on(until_signalled(config));
    runtime.shutdown_timeout(Duration::from_secs(5));
    served
}

async fn until_signalled(config: Config) -> Result<(), ServeError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(ServeError::System)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(ServeError::System)?;
    let mut running = Running::start(config).await?;
    tell(&running);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("draining; a second signal cuts what still runs");
    tokio::select! {
        clean = running.stop() => tracing::info!(clean, "stopped"),
        _ = terminate.recv() => tracing::warn!("cut by a second signal"),
        _ = interrupt.recv() => tracing::warn!("cut by a second signal"),
    }
    Ok(())
}

/// Says where it listens, also for whoever asked for port 0.
fn tell(running: &Running) {
    // Standard output may be closed; serving goes on.
    let mut out = std::io::stdout().lock();
    let scheme = if running.tls().is_some() { "https" } else { "http" };
    let _ = writeln!(out, "listening on {scheme}://{}", running.address());
    if let Some(metrics) = running.metrics_address() {
        let _ = writeln!(out, "metrics on http://{metrics}");
    }
    let _ = out.flush();
}
