//! Starting and stopping an edge.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::TcpListener;

use super::ServeError;
use super::inherited::Inherited;
use super::ready::keep_fresh;
use super::run_log::run_log;
use crate::admin::{AdminSocket, serve_probes};
use crate::config::{self, Config, Host};
use crate::directory::Bot;
use crate::gateway::permits::{QueueRoom, TurnLimits, Turns};
use crate::gateway::runs::{ResumedRun, RunTimes, RunWatch, Runs};
use crate::lifecycle::{Control, LoadReport, run_upkeep, same_user, watch_users};
use crate::listener::tls::Tls;
use crate::listener::{self, DataPath, Drained, Pulse, Sockets};
use crate::proxy::{Edge, EdgeParts, Ending, Freshness, Routes, Settings};
use crate::store::{DataDirLock, RunRow};
use crate::tasks::{Cancellation, Tasks};
use crate::telemetry::access::AccessLog;

/// Longest wait for control work to end, and for the last records to reach the disk.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);

/// A running edge. [`Running::stop`] ends it; dropping it without leaves threads behind.
pub struct Running {
    address: SocketAddr,
    metrics_address: Option<SocketAddr>,
    control: Control,
    ending: Ending,
    turns: Vec<Turns>,
    tasks: Tasks,
    data_path: Option<DataPath>,
    tls: Option<Tls>,
    access_log: Option<AccessLog>,
    // Given back last, when store and audit log are closed.
    lock: Option<DataDirLock>,
}

/// Hermes writes a keepalive comment into a silent stream this often.
const KEEPALIVE_COMMENT: Duration = Duration::from_secs(10);

impl Running {
    /// Starts an edge; control work runs on the runtime that this is called on. What was not inherited is bound.
    ///
    /// # Errors
    /// [`ServeError`]
    pub async fn start(config: Config, mut inherited: Inherited) -> Result<Self, ServeError> {
        let config = Arc::new(config);
        same_user(&config.gateways).map_err(ServeError::SameUser)?;
        let lock = DataDirLock::acquire(&config.data_dir).map_err(ServeError::DataDir)?;
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let public = inherited.take_public();
        let sockets = match public.is_empty() {
            true => listener::bind(config.listen.address, threads).map_err(ServeError::Bind)?,
            false => Sockets::handed(public, threads).map_err(ServeError::System)?,
        };
        let routes = Routes::new(&config.routes);
        let (opening, labels) = (config.clone(), routes.labels().to_vec());
        let control =
            Tasks::blocking(move || Control::open(opening, &labels, true)).await.map_err(ServeError::System)?;
        let control = control.map_err(ServeError::Open)?;
        let loaded = control.load().await.map_err(ServeError::Load)?;
        for problem in &loaded.problems {
            tracing::error!(%problem, "a stored row cannot be used");
        }
        tracing::info!(people = loaded.people, bots = loaded.bots, sessions = loaded.sessions, "loaded");
        let tasks = Tasks::new();
        match launch(&config, &control, routes, loaded, sockets, inherited.take_metrics(), &tasks).await {
            Ok(Launched { edge, data_path, tls, metrics_address }) => Ok(Running {
                address: data_path.address(),
                metrics_address,
                control,
                ending: edge.parts().ending.clone(),
                turns: edge.parts().turns.clone(),
                access_log: edge.access_log().cloned(),
                tasks,
                data_path: Some(data_path),
                tls,
                lock: Some(lock),
            }),
            Err(error) => {
                tasks.drain(CLOSE_LIMIT).await;
                close(&control).await;
                Err(error)
            }
        }
    }

    /// Where clients are served.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where metrics and health are served.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_address
    }

    /// How clients are encrypted; `None`: they are not.
    pub fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    /// How it ends: whoever gives one of its signals has to [`stop`](Running::stop) it, too.
    pub fn ending(&self) -> &Ending {
        &self.ending
    }

    /// Permits, one entry per gateway.
    pub fn turns(&self) -> &[Turns] {
        &self.turns
    }

    /// Serves what comes from now on by this configuration, in which only keys differ that need no restart.
    pub fn set(&self, config: &Config) {
        let Some((data_path, settings)) = self.data_path.as_ref().and_then(|path| Some((path, path.settings()?)))
        else {
            return;
        };
        let bound = Host::parse(&self.address.to_string(), 80);
        data_path.set(&settings.changed(config, bound.as_ref()));
    }

    /// Whether the data path's threads do their work.
    pub fn pulses(&self) -> Vec<Pulse> {
        self.data_path.as_ref().map_or_else(Vec::new, DataPath::pulses)
    }

    /// The operations on people, bots and sessions.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Drains, then ends everything. True when nothing had to be cut.
    pub async fn stop(&mut self) -> bool {
        self.ending.drain();
        let mut clean = true;
        if let Some(data_path) = self.data_path.take() {
            match Tasks::blocking(move || data_path.join()).await {
                Ok(drained) if drained.is_clean() => tracing::info!("every request came to its own end"),
                Ok(Drained { cut, failed_threads }) => {
                    tracing::warn!(cut, failed_threads, "requests were cut");
                    clean = false;
                }
                Err(error) => {
                    tracing::error!(%error, "the data path could not be waited for");
                    clean = false;
                }
            }
        }
        clean &= self.tasks.drain(CLOSE_LIMIT).await;
        if let Some(log) = self.access_log.take() {
            log.flush(CLOSE_LIMIT);
        }
        close(&self.control).await;
        self.lock = None;
        clean
    }
}

/// What was started for an edge, besides its tasks.
struct Launched {
    edge: Arc<Edge>,
    data_path: DataPath,
    tls: Option<Tls>,
    metrics_address: Option<SocketAddr>,
}

/// Starts everything that runs, the data path last.
async fn launch(
    config: &Config,
    control: &Control,
    routes: Routes,
    loaded: LoadReport,
    sockets: Sockets,
    metrics: Option<std::net::TcpListener>,
    tasks: &Tasks,
) -> Result<Launched, ServeError> {
    let (edge, freshness) = edge(config, control, routes, &sockets, tasks)?;
    resume(&edge, control, loaded.runs, &loaded.leaving).await;
    control.prover().run(tasks);
    freshness.heard(Instant::now());
    tasks.spawn(keep_fresh(control.store().clone(), freshness, tasks.stopping().clone()));
    tasks.spawn(run_upkeep(control.clone(), tasks.stopping().clone()));
    tasks.spawn(watch_users(control.clone(), tasks.stopping().clone()));
    let admin = AdminSocket::bind(&config.data_dir).map_err(ServeError::Admin)?;
    tasks.spawn(admin.run(control.clone(), tasks.clone()));
    let metrics_address = match config.metrics_address {
        None => None,
        Some(address) => Some(probes(address, metrics, control, &edge.parts().ending, tasks).await?),
    };
    let tls = match &config.listen.tls {
        None => None,
        Some(files) => Some(tls(files.clone(), control, tasks).await?),
    };
    let data_path =
        DataPath::start(&edge, sockets, tls.as_ref(), config.deadlines.drain).map_err(ServeError::System)?;
    Ok(Launched { edge, data_path, tls, metrics_address })
}

/// Reads certificates and keys, and looks at them from now on.
async fn tls(files: config::Tls, control: &Control, tasks: &Tasks) -> Result<Tls, ServeError> {
    let metrics = control.metrics().clone();
    let tls = Tasks::blocking(move || Tls::load(&files, metrics)).await.map_err(ServeError::System)?;
    let tls = tls.map_err(ServeError::Tls)?;
    tasks.spawn(tls.clone().watch(tasks.stopping().clone()));
    Ok(tls)
}

/// Ends audit log and store.
async fn close(control: &Control) {
    if let Err(error) = control.audit().stop(CLOSE_LIMIT).await {
        tracing::error!(%error, "the audit log did not end cleanly");
    }
    if let Err(error) = control.store().close().await {
        tracing::error!(%error, "the store did not close cleanly");
    }
}

/// The shared state of the data path.
fn edge(
    config: &Config,
    control: &Control,
    routes: Routes,
    sockets: &Sockets,
    tasks: &Tasks,
) -> Result<(Arc<Edge>, Arc<Freshness>), ServeError> {
    let metrics = control.metrics().clone();
    let bound = sockets.address().unwrap_or(config.listen.address);
    let bound = Host::parse(&bound.to_string(), 80);
    let queue_total = QueueRoom::new(config.limits.queue_total);
    let turns = config.gateways.iter().enumerate().map(|(index, gateway)| {
        let limits = TurnLimits {
            max_turns: gateway.max_turns,
            per_person: config.limits.turns_per_person,
            queue_per_person: config.limits.queue_per_person,
            queue_total: queue_total.clone(),
            queue_wait: config.limits.queue_wait,
        };
        Turns::new(limits, metrics.turns_in_flight(index), metrics.turns_queued(index))
    });
    let (stored, writer) = run_log(control.store().clone());
    tasks.spawn(writer.run());
    let most_runs = config.gateways.iter().map(|gateway| gateway.max_turns).sum();
    let runs = Runs::start(control.directory().clone(), Arc::new(stored), RunTimes::default(), most_runs, tasks);
    let access_log = match config.access_log {
        true => Some(AccessLog::start(metrics.clone()).map_err(ServeError::System)?),
        false => None,
    };
    let prover = control.prover().clone();
    let freshness = Arc::new(Freshness::never());
    let edge = Edge::new(EdgeParts {
        settings: Settings::new(config, bound.as_ref()),
        directory: control.directory().clone(),
        sessions: control.sessions().clone(),
        routes,
        gateway_pause: KEEPALIVE_COMMENT,
        turns: turns.collect(),
        audit: control.audit().clone(),
        metrics,
        access_log,
        runs,
        suspect: Box::new(move |login| prover.suspect(login)),
        freshness: freshness.clone(),
        ending: Ending::new(),
    });
    Ok((edge, freshness))
}

/// Takes up the runs that were open when the edge last stopped, before the data path opens. A run whose bot is gone cannot be
/// asked about any more; its row goes.
async fn resume(edge: &Edge, control: &Control, rows: Vec<RunRow>, leaving: &[Arc<Bot>]) {
    let bots = control.directory().snapshot();
    let mut resumed = Vec::with_capacity(rows.len());
    for row in rows {
        let mut known = bots.values().chain(leaving);
        let Some(bot) = known.find(|bot| *bot.uid() == row.uid && *bot.profile() == row.profile).cloned() else {
            tracing::warn!(run = %row.run_id, bot = %row.profile, "a run's bot is gone; it cannot be followed to its end");
            if let Err(error) = control.store().remove_run(row.run_id).await {
                tracing::error!(%error, "a run's row could not be removed");
            }
            continue;
        };
        let session = control.sessions().session(&row.session_id).filter(|session| *session.person().uid() == row.uid);
        let revoked = session.map(|session| session.cancelled().clone()).unwrap_or_else(|| {
            // Revoked or ended meanwhile: nobody may run it any more.
            let token = Cancellation::new();
            token.cancel();
            token
        });
        let permit = edge.parts().turns.get(bot.gateway().index()).map(|turns| turns.take_over(&row.uid));
        resumed.push(ResumedRun { watch: RunWatch::new(bot, row.run_id), started_at: row.started_at, permit, revoked });
    }
    edge.parts().runs.resume(resumed);
}

async fn probes(
    address: SocketAddr,
    inherited: Option<std::net::TcpListener>,
    control: &Control,
    ending: &Ending,
    tasks: &Tasks,
) -> Result<SocketAddr, ServeError> {
    let failed = |error| ServeError::Metrics(address, error);
    let listener = match inherited {
        None => TcpListener::bind(address).await.map_err(failed)?,
        Some(socket) => {
            socket.set_nonblocking(true).map_err(failed)?;
            TcpListener::from_std(socket).map_err(failed)?
        }
    };
    let bound = listener.local_addr().map_err(failed)?;
    tasks.spawn(serve_probes(listener, control.clone(), ending.draining().clone(), tasks.clone()));
    Ok(bound)
}
