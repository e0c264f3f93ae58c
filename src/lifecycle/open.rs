//! Opening: from a configuration to the operations, for `serve` and for commands that run without it.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;

use zeroize::Zeroizing;

use crate::config::{Config, Gateway};
use crate::directory::{Directory, GatewayTarget};
use crate::gateway::probe::{ProofTimes, ProvedGateway, Prover};
use crate::identity::Sessions;
use crate::secret::ApiServerKey;
use crate::store::{Store, StoreError, audit_keys, settled_master_key};
use crate::telemetry::audit::{Audit, AuditError};
use crate::telemetry::metrics::Metrics;

use super::{Control, Parts};

/// Why the parts cannot be opened.
#[derive(Debug)]
pub enum OpenError {
    /// Master key or database.
    Store(StoreError),
    /// The audit log.
    Audit(AuditError),
    /// The file of a default profile's key.
    DefaultKey {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Store(error) => fmt::Display::fmt(error, f),
            OpenError::Audit(error) => fmt::Display::fmt(error, f),
            OpenError::DefaultKey { path, why } => write!(f, "{}: default_api_server_key_file {why}", path.display()),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            OpenError::Store(error) => error.source(),
            OpenError::Audit(error) => error.source(),
            OpenError::DefaultKey { .. } => None,
        }
    }
}

impl Control {
    /// Opens master key, store and audit log of a data directory whose lock is held; `routes` are the metrics' labels.
    /// Blocks. [`Control::load`] comes next; the prover does nothing by itself yet.
    ///
    /// # Errors
    /// One of them cannot be used. A default profile's key is missed only when serving.
    pub fn open(config: Arc<Config>, routes: &[&'static str], serving: bool) -> Result<Self, OpenError> {
        let master = settled_master_key(&config.data_dir).map_err(OpenError::Store)?;
        let names: Vec<_> = config.gateways.iter().map(|gateway| gateway.name.clone()).collect();
        let metrics = Metrics::new(&names, routes);
        let store = Store::open(&config.data_dir, &master).map_err(OpenError::Store)?;
        let audit_dir = config.data_dir.join("audit");
        let keys = audit_keys(&config.data_dir, &master).map_err(OpenError::Store)?;
        let audit = Audit::start(&audit_dir, keys, config.audit_when_full, metrics.clone());
        let audit = audit.map_err(OpenError::Audit)?;
        let directory = Arc::new(Directory::new());
        let mut gateways = Vec::with_capacity(config.gateways.len());
        let mut proved = Vec::with_capacity(config.gateways.len());
        for (index, gateway) in config.gateways.iter().enumerate() {
            let target = Arc::new(GatewayTarget::new(gateway.name.clone(), index, gateway.url.clone()));
            let default_key = match default_key(gateway) {
                Err(error) if serving => return Err(error),
                other => other.unwrap_or_default(),
            };
            proved.push(ProvedGateway { target: target.clone(), default_key });
            gateways.push(target);
        }
        let prover = Prover::new(directory.clone(), proved, metrics.clone(), ProofTimes::default());
        let sessions = Sessions::new();
        Ok(Control::new(Parts { config, store, sessions, directory, gateways, prover, serving, audit, metrics }))
    }
}

/// Most that is read of a file with a key, in bytes: more than any key is long.
const KEY_FILE_MAX_BYTES: u64 = 8192;

/// The default profile's key, when its file is configured.
pub(super) fn default_key(gateway: &Gateway) -> Result<Option<ApiServerKey>, OpenError> {
    let Some(path) = &gateway.default_api_server_key_file else { return Ok(None) };
    let fault = |why: String| OpenError::DefaultKey { path: path.clone(), why };
    let mut text = Zeroizing::new(String::new());
    let read = File::open(path).and_then(|file| file.take(KEY_FILE_MAX_BYTES).read_to_string(&mut text));
    read.map_err(|error| fault(format!("cannot be read: {error}")))?;
    ApiServerKey::parse(&text).map(Some).map_err(|error| fault(error.to_string()))
}
