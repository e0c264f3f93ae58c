//! The admin API in this process, for commands that run while no edge does.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;

use super::out::Failure;
use crate::admin;
use crate::config::Config;
use crate::lifecycle::Control;
use crate::store::DataDirLock;
use crate::tasks::Tasks;

/// Longest wait for the last records to reach the disk.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);

/// Everything that the edge would have open, less the edge.
pub(super) struct Offline {
    control: Control,
    router: Router,
    // Given back last, when store and audit log are closed.
    lock: DataDirLock,
}

impl Offline {
    pub(super) async fn open(config: &Config, lock: DataDirLock) -> Result<Self, Failure> {
        let config = Arc::new(config.clone());
        let opened = Tasks::blocking(move || Control::open(config, &[], false)).await.map_err(Failure::new)?;
        let control = opened.map_err(|error| Failure::from_error(&error))?;
        control.load().await.map_err(|error| Failure::from_error(&error))?;
        let router = admin::router(control.clone());
        Ok(Offline { control, router, lock })
    }

    pub(super) fn router(&self) -> Router {
        self.router.clone()
    }

    /// Closes everything and gives the lock back.
    pub(super) async fn close(self) -> Result<DataDirLock, Failure> {
        let audited = self.control.audit().stop(CLOSE_LIMIT).await;
        self.control.store().close().await.map_err(|error| Failure::from_error(&error))?;
        audited.map_err(|error| Failure::from_error(&error))?;
        Ok(self.lock)
    }
}
