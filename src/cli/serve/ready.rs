//! Keeping the edge's view of the store fresh: past the staleness limit nobody is served.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::proxy::Freshness;
use crate::store::Store;
use crate::tasks::Cancellation;

/// Time between two looks.
const LOOK: Duration = Duration::from_secs(5);

/// Asks the store every few seconds until the tasks are asked to stop.
pub(super) async fn keep_fresh(store: Store, freshness: Arc<Freshness>, stopping: Cancellation) {
    loop {
        let asked_at = Instant::now();
        match tokio::time::timeout(LOOK, store.ping()).await {
            Ok(Ok(())) => freshness.heard(asked_at),
            Ok(Err(error)) => tracing::error!(%error, "the store does not answer"),
            Err(_) => tracing::error!("the store does not answer in time"),
        }
        if tokio::time::timeout(LOOK, stopping.cancelled()).await.is_ok() {
            return;
        }
    }
}
