//! /metrics, /healthz and /readyz, for machines: no names of people, nothing that changes anything.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tower::ServiceExt;

use super::connection::{ACCEPT_PAUSE, HEAD_WAIT, serve};
use crate::lifecycle::Control;
use crate::tasks::{Cancellation, Tasks};

/// Scrapers at once.
const SCRAPERS: usize = 64;
/// Longest scrape.
const SCRAPE_LIMIT: Duration = Duration::from_secs(30);

/// What the pages look at.
#[derive(Clone)]
struct Probed {
    control: Control,
    draining: Cancellation,
}

/// The three pages; `draining` is given when the edge takes no more turns.
pub fn probes_router(control: Control, draining: Cancellation) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .with_state(Probed { control, draining })
}

/// Serves the three pages until the tasks are asked to stop.
pub async fn serve_probes(listener: TcpListener, control: Control, draining: Cancellation, tasks: Tasks) {
    let router = probes_router(control, draining);
    let scrapers = Arc::new(Semaphore::new(SCRAPERS));
    let stopping = tasks.stopping().clone();
    while let Some(accepted) = stopping.run_until_cancelled(listener.accept()).await {
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "the metrics address cannot accept");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(place) = scrapers.clone().try_acquire_owned() else { continue };
        let (router, stopping) = (router.clone(), stopping.clone());
        tasks.spawn(async move {
            let _place = place;
            if tokio::time::timeout(HEAD_WAIT, stream.readable()).await.is_ok() {
                let answer = |request: axum::http::Request<hyper::body::Incoming>| {
                    let router = router.clone();
                    async move {
                        let Ok(response) = router.oneshot(request.map(axum::body::Body::new)).await;
                        response
                    }
                };
                serve(stream, SCRAPE_LIMIT, stopping, answer).await;
            }
        });
    }
}

async fn metrics(State(Probed { control, .. }): State<Probed>) -> Response {
    control.count();
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (kind, control.metrics().render()).into_response()
}

/// Ready while at least one gateway can be served: one broken gateway of several is no reason to take the edge out. An edge
/// that drains is out.
async fn ready(State(Probed { control, draining }): State<Probed>) -> Response {
    let report = control.prover().report();
    let gateways: Vec<_> = (report.gateways.iter())
        .map(|gateway| {
            serde_json::json!({
                "name": gateway.name, "standing": gateway.standing, "servable": gateway.servable,
                "reachable": gateway.reachable, "isolation": gateway.isolation, "fault": gateway.fault,
                "verdicts": gateway.verdicts,
            })
        })
        .collect();
    let draining = draining.is_cancelled();
    let ready = report.is_ready() && !draining;
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(serde_json::json!({ "ready": ready, "draining": draining, "gateways": gateways }))).into_response()
}
