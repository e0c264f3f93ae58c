//! `serve`: run the edge: lock, store, audit log, proof, admin socket, metrics, and then the data path.
//!
//! Invariants: nothing is served before everything that a request needs is open; what was started is stopped in the opposite
//! order; a start that fails leaves nothing running. The data path has threads of its own, control work the caller's runtime.

mod error;
mod inherited;
mod notify;
mod ready;
mod reload;
mod run_log;
mod start;

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

pub use error::ServeError;
pub use inherited::{Inherited, InheritedError};
pub use start::Running;

use reload::Reloading;

use crate::config::Config;
use crate::gateway::permits::Turns;

/// Threads for control work: store calls, admin, proofs and metrics wait for each other less with two.
const CONTROL_THREADS: usize = 2;
/// Time between two words about a drain.
const PROGRESS: Duration = Duration::from_secs(1);

/// Serves until SIGTERM or SIGINT; a second one cuts what still runs.
///
/// # Errors
/// [`ServeError`]
pub fn run(config: Config, file: &Path) -> Result<(), ServeError> {
    // A subscriber that is there already serves as well.
    let _ = crate::telemetry::trace::init(None);
    // Before there is another thread.
    let inherited = Inherited::from_service_manager(&config).map_err(ServeError::Inherited)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(CONTROL_THREADS)
        .thread_name("control")
        .enable_all()
        .build()
        .map_err(ServeError::System)?;
    let served = runtime.block_on(until_stopped(config, file, inherited));
    runtime.shutdown_timeout(Duration::from_secs(5));
    served
}

async fn until_stopped(config: Config, file: &Path, inherited: Inherited) -> Result<(), ServeError> {
    let mut signals = StopSignals::new()?;
    let mut reloading = Reloading::new(file, config.clone()).map_err(ServeError::System)?;
    notify::status("starting");
    let mut running = Running::start(config, inherited).await?;
    tell(&running);
    notify::ready(&format!("serving on {}", running.address()));
    tokio::select! {
        () = signals.next() => {}
        () = reloading.run(&running) => {}
        // Never ends. A service manager that was told of the end does not ask any more.
        () = notify::watchdog(running.pulses()) => {}
    }
    drain(&mut running, &mut signals).await;
    Ok(())
}

/// Stops the edge, and tells how far it is.
async fn drain(running: &mut Running, signals: &mut StopSignals) {
    let (ending, turns) = (running.ending().clone(), running.turns().to_vec());
    tracing::info!("draining; a second signal cuts what still runs");
    notify::stopping(&how_far(&turns));
    let mut stopped = std::pin::pin!(running.stop());
    let mut progress = tokio::time::interval(PROGRESS);
    loop {
        tokio::select! {
            clean = &mut stopped => {
                tracing::info!(clean, "stopped");
                return;
            }
            () = signals.next() => {
                tracing::warn!("a second signal: what still runs is cut");
                ending.cut();
            }
            _ = progress.tick() => notify::still_stopping(&how_far(&turns)),
        }
    }
}

fn how_far(turns: &[Turns]) -> String {
    format!("draining: turns under way: {}", turns.iter().map(Turns::in_flight).sum::<usize>())
}

/// The signals that stop it.
struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    fn new() -> Result<Self, ServeError> {
        let of = |kind| signal(kind).map_err(ServeError::System);
        Ok(StopSignals { terminate: of(SignalKind::terminate())?, interrupt: of(SignalKind::interrupt())? })
    }

    /// The next of them.
    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
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
