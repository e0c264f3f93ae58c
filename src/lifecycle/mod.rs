//! Lifecycle: what an operator does to people, bots and sessions while the edge serves.
//!
//! Invariants: each operation is the store's transaction, then its effect on the live edge, then its audit record; two
//! operations never interleave, so that what is live is what the store holds. Who is to be refused is refused on the live
//! edge ahead of the store, and stays so when the store fails. This room forwards nothing and speaks no HTTP to operators.

mod bots;
pub mod contract;
mod contract_run;
mod deletion;
mod doctor;
mod error;
mod import;
mod load;
mod lockdown;
mod open;
mod people;
mod proof;
mod record;
mod same_user;
mod sessions;
mod upkeep;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Mutex, MutexGuard};

pub use contract_run::ContractReport;
pub use deletion::{Deletion, Remains};
pub use doctor::{Finding, Health};
pub use error::{ControlError, quoted};
pub use import::{IMPORT_LINES_MAX, ImportItem, ImportReport};
pub use load::LoadReport;
pub use lockdown::Lockdown;
pub use open::OpenError;
pub use proof::Proof;
pub use record::Upkeep;
pub use same_user::{SameUser, same_user};
pub use sessions::{ISSUE_MAX, Issue, Issued, Revocation};
pub use upkeep::{run_upkeep, watch_users};

use crate::config::Config;
use crate::directory::{Directory, GatewayTarget};
use crate::gateway::probe::Prover;
use crate::identity::Sessions;
use crate::names::GatewayName;
use crate::store::Store;
use crate::telemetry::audit::Audit;
use crate::telemetry::metrics::Metrics;

/// Who asks for an operation: the user at the other end of the admin socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// The system's number for that user.
    pub uid: u32,
}

impl Caller {
    /// The user that this process runs as.
    pub fn own() -> Self {
        Caller { uid: rustix::process::geteuid().as_raw() }
    }
}

/// What operations work on.
pub struct Parts {
    /// The configuration.
    pub config: Arc<Config>,
    /// Everything that lasts.
    pub store: Store,
    /// The live sessions.
    pub sessions: Sessions,
    /// The live bots.
    pub directory: Arc<Directory>,
    /// The configured gateways, in the configuration's order.
    pub gateways: Vec<Arc<GatewayTarget>>,
    /// What proves bots.
    pub prover: Prover,
    /// Whether the edge serves: then a bot is proved as soon as it is adopted.
    pub serving: bool,
    /// Where actions are recorded.
    pub audit: Audit,
    /// What is counted.
    pub metrics: Arc<Metrics>,
}

struct Inner {
    parts: Parts,
    // Held over a store transaction and its live effect: control work only, the data path never takes it.
    changing: Mutex<()>,
    orphans: AtomicUsize,
}

/// The operations. Clones are handles on the same parts.
#[derive(Clone)]
pub struct Control(Arc<Inner>);

impl Control {
    /// Operations on these parts; call [`Control::load`] before anything else.
    pub fn new(parts: Parts) -> Self {
        Control(Arc::new(Inner { parts, changing: Mutex::new(()), orphans: AtomicUsize::new(0) }))
    }

    /// The configuration.
    pub fn config(&self) -> &Arc<Config> {
        &self.0.parts.config
    }

    /// Everything that lasts.
    pub fn store(&self) -> &Store {
        &self.0.parts.store
    }

    /// The live sessions.
    pub fn sessions(&self) -> &Sessions {
        &self.0.parts.sessions
    }

    /// The live bots.
    pub fn directory(&self) -> &Arc<Directory> {
        &self.0.parts.directory
    }

    /// The configured gateways.
    pub fn gateways(&self) -> &[Arc<GatewayTarget>] {
        &self.0.parts.gateways
    }

    /// What proves bots.
    pub fn prover(&self) -> &Prover {
        &self.0.parts.prover
    }

    /// Whether the edge serves.
    pub fn is_serving(&self) -> bool {
        self.0.parts.serving
    }

    /// Where actions are recorded.
    pub fn audit(&self) -> &Audit {
        &self.0.parts.audit
    }

    /// What is counted.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.0.parts.metrics
    }

    async fn changing(&self) -> MutexGuard<'_, ()> {
        self.0.changing.lock().await
    }

    fn gateway(&self, name: &GatewayName) -> Result<&Arc<GatewayTarget>, ControlError> {
        let found = self.gateways().iter().find(|gateway| gateway.name() == name);
        found.ok_or_else(|| ControlError::NoSuchGateway(name.clone()))
    }

    fn set_orphans(&self, count: usize) {
        self.0.orphans.store(count, Ordering::Relaxed);
    }

    /// People who are being deleted and whose profile may still exist.
    pub fn orphans(&self) -> usize {
        self.0.orphans.load(Ordering::Relaxed)
    }
}

/// Now, in UTC milliseconds.
pub fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}
