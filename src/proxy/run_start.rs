//! A run outlives the request that started it: its permit and its record go to whoever follows it.

use std::future::Future;

use http::StatusCode;
use serde::Deserialize;
use tokio::sync::oneshot;

use super::exchange::Exchange;
use super::refusal::Refusal;
use super::reply::Reply;
use crate::names::Identifier;
use crate::tasks::Tasks;
use crate::telemetry::reason::Reason;

/// Longest answer to `POST /v1/runs`, in bytes.
pub(super) const ANSWER_MAX_BYTES: u64 = 64 * 1024;

#[derive(Deserialize)]
struct Started {
    run_id: Identifier,
}

/// Reads the run's identifier from the gateway's answer and has it followed to its end, or stopped when it may not run.
pub(super) fn follow(exchange: &mut Exchange, status: StatusCode, answer: &[u8], may_run: bool) {
    let Ok(Started { run_id }) = serde_json::from_slice(answer) else {
        tracing::warn!(request_id = ?exchange.request_id(), "the gateway's answer names no run; it cannot be followed");
        return;
    };
    let Some(grant) = exchange.grant() else { return };
    let (watch, revoked) = (grant.run_watch(run_id.clone()), grant.session().cancelled().child());
    if !may_run {
        revoked.cancel();
    }
    exchange.run_started(run_id, watch, revoked, status);
}

/// The run that a request for its events, or for its stop, may see end.
pub(super) fn may_end(path: &str) -> Option<Identifier> {
    let (run, action) = path.strip_prefix("/v1/runs/")?.split_once('/')?;
    matches!(action, "events" | "stop").then(|| Identifier::parse(run).ok()).flatten()
}

/// Runs the request as a task of its own, so that a client that leaves does not take the run's answer with it.
pub(super) async fn detached(tasks: &Tasks, passing: impl Future<Output = Reply> + Send + 'static) -> Reply {
    let (sender, answered) = oneshot::channel();
    tasks.spawn(async move {
        // Nobody waits for the answer when the client has left.
        let _ = sender.send(passing.await);
    });
    match answered.await {
        Ok(response) => response,
        // The task was aborted: the edge is stopping.
        Err(_) => Refusal::of(Reason::GatewayBroke).into_reply(true),
    }
}
