//! The pipeline, on one screen: screen → authenticate → authorize → narrow → admit → rewrite → forward.
//!
//! Invariants: nothing later is revealed before something earlier holds; no body is read and no 100-continue sent before
//! admission; what is forwarded is built from a [`Grant`]. Stages are functions, proofs are types: Session → Grant →
//! Outbound. This room opens no socket of its own and stores nothing.

mod admit;
mod authorize;
mod body;
mod edge;
mod engine;
mod exchange;
mod forward;
mod head;
mod headers;
mod narrow;
mod origin;
mod own_pages;
mod refusal;
mod request_id;
mod respond;
mod rewrite;
mod routes;
mod run_start;
mod target;

use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use http::{Request, Response, request};
use hyper::body::Incoming;

pub use authorize::Grant;
pub use body::{Cut, EdgeBody};
pub use edge::{Edge, EdgeParts, Freshness, now_ms};
pub use head::AllowedHosts;
pub use routes::{NO_ROUTE, Route, RouteKind, Routes};

use crate::gateway::pool::Pool;
use crate::gateway::request_body::RequestBody;
use crate::identity::{Carrier, credential};
use crate::tasks::Tasks;
use crate::telemetry::audit::Outcome;
use crate::telemetry::reason::Reason;
use exchange::Exchange;
use head::Screened;
use refusal::Refusal;
use request_id::RequestIds;
use rewrite::Outbound;

/// One data-path thread's share of the edge: the shared state, its own connections, its own request identifiers.
pub struct Worker {
    edge: Arc<Edge>,
    pool: Arc<Pool>,
    tasks: Tasks,
    request_ids: RequestIds,
}

impl Worker {
    /// A worker; turns whose clients leave are followed in `tasks`.
    pub fn new(edge: Arc<Edge>, tasks: Tasks) -> Arc<Self> {
        let pool = Pool::new(edge.parts().turns.len());
        Arc::new(Worker { edge, pool, tasks, request_ids: RequestIds::new() })
    }

    /// The shared state.
    pub fn edge(&self) -> &Arc<Edge> {
        &self.edge
    }
}

/// The gate as one client's connection sees it.
#[derive(Clone)]
pub struct Gate {
    worker: Arc<Worker>,
    peer: IpAddr,
}

impl Gate {
    /// The gate for a client at this address.
    pub fn new(worker: Arc<Worker>, peer: IpAddr) -> Self {
        Gate { worker, peer }
    }
}

impl tower::Service<Request<Incoming>> for Gate {
    type Response = Response<EdgeBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<EdgeBody>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let Gate { worker, peer } = self.clone();
        Box::pin(async move { Ok(serve(&worker, peer, request).await) })
    }
}

/// Serves one request.
async fn serve(worker: &Arc<Worker>, peer: IpAddr, request: Request<Incoming>) -> Response<EdgeBody> {
    let (parts, body) = request.into_parts();
    let unread = forward::has_body(&body, &parts.headers);
    let mut exchange = Exchange::open(worker.edge.clone(), worker.request_ids.next(), peer, parts.method.clone());
    let (grant, kind) = match decide(worker, &mut exchange, &parts) {
        Ok(Decision::Forward { grant, kind }) => (grant, kind),
        Ok(Decision::OwnPage(response)) => {
            exchange.answers(response.status());
            exchange.ends(Outcome::Finished);
            return finish(exchange, response);
        }
        Err(refusal) => return refuse(exchange, refusal, unread),
    };
    // 7. Drain, gateway state, permit, room for the audit records.
    if let Err(reason) = admit::admit(worker, &mut exchange, &grant, kind).await {
        return refuse(exchange, Refusal::of(reason), unread);
    }
    let passing = pass(worker.clone(), exchange, parts, body, grant, kind);
    match kind {
        // The answer names the run, so it is read even when the client does not wait for it.
        RouteKind::RunStart => run_start::detached(&worker.tasks, passing).await,
        RouteKind::Read | RouteKind::Change | RouteKind::Turn => passing.await,
    }
}

/// What the decisions before admission came to.
enum Decision {
    Forward { grant: Grant, kind: RouteKind },
    OwnPage(Response<EdgeBody>),
}

/// Decisions 1 to 6, in their order. Nothing here waits.
fn decide(worker: &Worker, exchange: &mut Exchange, parts: &request::Parts) -> Result<Decision, Refusal> {
    let edge = worker.edge.parts();
    // 1. Framing, Host, target, sizes, CONNECT and TRACE.
    if parts.version < http::Version::HTTP_11 {
        return Err(Refusal::of(Reason::HttpVersion));
    }
    let lines = engine::lines(parts);
    let screened = Screened::new(engine::view(parts, &lines), &edge.hosts)?;
    // 2. The edge's own pages; `/mcp` has no server behind it yet, so whoever asks gets the one 401.
    if let Some(response) = own_pages::serve(&screened) {
        return response.map(|page| {
            exchange.on_route(routes::OWN_PAGE, "GET", "/health");
            Decision::OwnPage(page)
        });
    }
    // 3. Store, credential, person and bot.
    if edge.freshness.is_stale(Instant::now()) {
        return Err(Refusal::of(Reason::StoreStale));
    }
    let head_lines = lines.iter().map(|line| (line.name.as_bytes(), line.value));
    let credential = credential(head_lines, edge.cookies_count).map_err(Refusal::of)?;
    let session = edge.sessions.lookup(&credential.token, now_ms()).map_err(|refused| {
        exchange.concerns(refused.person);
        Refusal::of(refused.reason)
    })?;
    exchange.concerns(Some(session.person().clone()));
    if credential.carrier == Carrier::Cookie && !origin::is_own(screened.head()) {
        return Err(Refusal::of(Reason::CrossOrigin));
    }
    // 4. The person's own bot, and no other.
    let grant = Grant::new(session, &edge.directory, screened.target().profile()).map_err(Refusal::of)?;
    exchange.granted(grant.clone());
    // 5 and 6. Route, method; content coding, declared length, expectation.
    let route = narrow::narrow(&screened, &edge.routes, edge.limits.max_body_bytes)?;
    exchange.on_route(route.label(), route.method(), route.template());
    Ok(Decision::Forward { grant, kind: route.kind() })
}

/// Rewrites and forwards an admitted request.
async fn pass(
    worker: Arc<Worker>,
    mut exchange: Exchange,
    parts: request::Parts,
    body: Incoming,
    grant: Grant,
    kind: RouteKind,
) -> Response<EdgeBody> {
    let edge = worker.edge.parts();
    let lines = engine::lines(&parts);
    // Screening depends on the head alone, and this head has passed it.
    let screened = match Screened::new(engine::view(&parts, &lines), &edge.hosts) {
        Ok(screened) => screened,
        Err(refusal) => return refuse(exchange, refusal, true),
    };
    if let Some(run) = run_start::may_end(screened.target().path()) {
        exchange.may_end(run);
    }
    let extra = edge.forward_headers.get(grant.bot().gateway().index()).map_or(&[][..], Vec::as_slice);
    let outbound = Outbound::new(&grant, &screened, extra, exchange.peer());
    drop(lines);
    let unread = forward::has_body(&body, &parts.headers);
    let body = RequestBody::new(body, edge.limits.max_body_bytes, edge.deadlines.body);
    let request = forward::Request { parts: &parts, outbound, body, kind };
    match forward::forward(&worker, request, exchange).await {
        Ok(response) => response,
        // Only a failed connection is certain to have sent nothing.
        Err((exchange, reason @ Reason::GatewayUnreachable)) => refuse(exchange, Refusal::of(reason), unread),
        Err((exchange, reason)) => refuse(exchange, Refusal::of(reason).after_sending(), unread),
    }
}

/// Answers with a refusal, in the one place where they are made. A body that stays unread ends the connection.
fn refuse(mut exchange: Exchange, refusal: Refusal, unread: bool) -> Response<EdgeBody> {
    exchange.refuses(&refusal);
    finish(exchange, refusal.into_response(unread))
}

/// Puts the request's identifier on an answer of the edge's own, and the exchange into its body.
fn finish(exchange: Exchange, response: Response<EdgeBody>) -> Response<EdgeBody> {
    let request_id = exchange.request_id().clone();
    let mut response = response.map(|body| body.ending(exchange));
    response.headers_mut().insert(engine::X_REQUEST_ID, request_id);
    response
}
