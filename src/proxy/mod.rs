//! The pipeline, on one screen: screen → authenticate → authorize → narrow → admit → rewrite → forward.
//!
//! Invariants: nothing later is revealed before something earlier holds; no body is read and no 100-continue sent before
//! admission; what is forwarded is built from a [`Grant`]. Stages are functions, proofs are types: Session → Grant →
//! Outbound. This room opens no socket of its own and stores nothing.

mod admit;
mod authorize;
mod body;
mod client;
mod edge;
mod ending;
mod engine;
mod exchange;
mod forward;
mod forwarders;
mod head;
mod headers;
mod narrow;
mod origin;
mod own_pages;
#[cfg(any(test, fuzzing))]
pub mod properties;
mod rates;
mod refusal;
mod reply;
mod request_id;
mod respond;
mod rewrite;
mod routes;
mod run_start;
mod settings;
mod subscriber;
mod target;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use http::header::TRANSFER_ENCODING;
use http::{Method, Request};
use http_body::Body;
use hyper::body::Incoming;

pub use authorize::Grant;
pub use body::{Cut, EdgeBody};
pub use client::Client;
pub use edge::{Edge, EdgeParts, Freshness, now_ms};
pub use ending::Ending;
pub use engine::{Head, Lines};
pub use forwarders::Forwarders;
pub use head::{AllowedHosts, HeadView, LINES_MAX, Line, Screened};
pub use rates::Rates;
pub use reply::{OwnFields, Reply};
pub use rewrite::Outbound;
pub use routes::{NO_ROUTE, Route, RouteKind, Routes};
pub use settings::Settings;
pub use subscriber::Subscriber;

use crate::gateway::pool::Pool;
use crate::gateway::request_body::{Arriving, RequestBody};
use crate::identity::{Carrier, credential};
use crate::tasks::Tasks;
use crate::telemetry::audit::Outcome;
use crate::telemetry::metrics::Shard;
use crate::telemetry::reason::Reason;
use exchange::Exchange;
use head::Asked;
use refusal::Refusal;
use request_id::RequestIds;

/// One data-path thread's share of the edge: the shared state, its own connections, its own request identifiers.
pub struct Worker {
    edge: Arc<Edge>,
    pool: Arc<Pool>,
    tasks: Tasks,
    request_ids: RequestIds,
    counts: Arc<Shard>,
    // Its own copy: a request counts its use of it, and no other thread's.
    settings: ArcSwap<Settings>,
    cut: AtomicUsize,
}

impl Worker {
    /// A worker; turns whose clients leave are followed in `tasks`.
    pub fn new(edge: Arc<Edge>, tasks: Tasks) -> Arc<Self> {
        let pool = Pool::new(edge.parts().turns.len());
        let counts = edge.metrics().shard();
        let settings = ArcSwap::from_pointee(edge.parts().settings.clone());
        Arc::new(Worker {
            edge,
            pool,
            tasks,
            request_ids: RequestIds::new(),
            counts,
            settings,
            cut: AtomicUsize::new(0),
        })
    }

    /// The shared state.
    pub fn edge(&self) -> &Arc<Edge> {
        &self.edge
    }

    /// The settings of now.
    pub fn settings(&self) -> Arc<Settings> {
        self.settings.load_full()
    }

    /// Serves what comes from now on with these settings. A connection keeps its deadlines.
    pub fn set(&self, settings: Settings) {
        self.settings.store(Arc::new(settings));
    }

    /// What this thread counts.
    pub fn counts(&self) -> &Arc<Shard> {
        &self.counts
    }

    /// Requests that were cut because the edge's time was up.
    pub fn cut(&self) -> usize {
        self.cut.load(Ordering::Relaxed)
    }
}

/// The gate as one client's connection sees it.
pub struct Gate {
    worker: Arc<Worker>,
    client: Client,
}

impl Gate {
    /// The gate for this client.
    pub fn new(worker: Arc<Worker>, client: Client) -> Self {
        Gate { worker, client }
    }

    /// Serves one request that hyper has read.
    pub async fn serve(&self, request: Request<Incoming>) -> Reply {
        let (parts, body) = request.into_parts();
        let declared = !body.is_end_stream() || parts.headers.contains_key(TRANSFER_ENCODING);
        self.serve_head(parts, Arriving::Hyper { body, declared }).await
    }

    /// Refuses what an engine could not understand, and ends its connection.
    pub fn refuse(&self, reason: Reason) -> Reply {
        // No method was understood.
        let method = Method::from_bytes(b"-").unwrap_or_default();
        let (worker, request_id) = (self.worker.clone(), self.worker.request_ids.next());
        refuse(Box::new(Exchange::open(worker, request_id, self.client.address(), method)), Refusal::of(reason), true)
    }

    /// Serves one request.
    pub async fn serve_head(&self, head: impl Head, body: Arriving) -> Reply {
        let settings = self.worker.settings();
        if !settings.forwarders.contains(self.client.address()) {
            return serve(&self.worker, settings, Ok(&self.client), head, body).await;
        }
        let told = settings.forwarders.client(&self.client, &head.lines());
        let asking = told.as_ref().map_err(|reason| (&self.client, *reason));
        Box::pin(serve(&self.worker, settings, asking, head, body)).await
    }
}

/// `asking`: the client; or the forwarder whose word about it is refused, and why.
async fn serve(
    worker: &Arc<Worker>,
    settings: Arc<Settings>,
    asking: Result<&Client, (&Client, Reason)>,
    head: impl Head,
    body: Arriving,
) -> Reply {
    let client = asking.unwrap_or_else(|(forwarder, _)| forwarder);
    let unread = body.is_declared();
    let request_id = worker.request_ids.next();
    let mut exchange = Box::new(Exchange::open(worker.clone(), request_id, client.address(), head.method()));
    let understood = asking.map_err(|(_, reason)| Refusal::of(reason));
    let lines = head.lines();
    let decided = understood.and_then(|client| {
        // 1. Version, framing, Host, target, sizes, CONNECT and TRACE.
        head.check(client.is_secure()).map_err(Refusal::of)?;
        decide(worker, &settings, client, &mut exchange, head.view(&lines))
    });
    let (grant, asked, kind) = match decided {
        Ok(Decision::Forward { grant, asked, kind }) => (grant, asked, kind),
        Ok(Decision::OwnPage(response)) => {
            exchange.answers(response.status());
            exchange.ends(Outcome::Finished);
            return response.ending(exchange);
        }
        Err(refusal) => return refuse(exchange, refusal, unread),
    };
    // 7. The person's rate, drain, gateway state, permit, room for the audit records.
    if let Err(reason) = admit::admit(worker, &settings, &mut exchange, &grant, kind).await {
        return refuse(exchange, Refusal::of(reason), unread);
    }
    match kind {
        // The answer names the run, so it is read even when the client does not wait for it.
        RouteKind::RunStart => {
            drop(lines);
            let (worker, client) = (worker.clone(), client.clone());
            let tasks = worker.tasks.clone();
            let passing = async move {
                let lines = head.lines();
                let view = head.view(&lines);
                let (grant, client, settings) = (&grant, &client, &*settings);
                let head = PassingHead { view, asked, grant, kind, client, settings, has_body: unread };
                pass(&worker, exchange, head, body).await
            };
            Box::pin(run_start::detached(&tasks, passing)).await
        }
        RouteKind::Read | RouteKind::Change | RouteKind::Turn => {
            let view = head.view(&lines);
            let (grant, settings) = (&grant, &*settings);
            let head = PassingHead { view, asked, grant, kind, client, settings, has_body: unread };
            pass(worker, exchange, head, body).await
        }
    }
}

/// The head of a request that is let through, and by what right.
struct PassingHead<'r> {
    view: HeadView<'r>,
    asked: Asked,
    grant: &'r Grant,
    kind: RouteKind,
    client: &'r Client,
    settings: &'r Settings,
    has_body: bool,
}

/// What the decisions before admission came to.
enum Decision {
    Forward { grant: Grant, asked: Asked, kind: RouteKind },
    OwnPage(Box<Reply>),
}

/// Decisions 1 to 6, in their order. Nothing here waits.
fn decide(
    worker: &Worker,
    settings: &Settings,
    client: &Client,
    exchange: &mut Exchange,
    head: HeadView<'_>,
) -> Result<Decision, Refusal> {
    let edge = worker.edge.parts();
    let screened = Screened::new(head, &settings.hosts)?;
    // 2. The address's rate, whatever the credential; the edge's own pages; `/mcp` has no server behind it yet, so whoever asks gets the one 401.
    settings.rates.asks_from(exchange.peer()).map_err(Refusal::of)?;
    if let Some(response) = own_pages::serve(&screened) {
        return response.map(|page| {
            exchange.on_route(routes::OWN_PAGE, "GET", "/health");
            Decision::OwnPage(Box::new(page))
        });
    }
    // 3. Store, credential, person and bot.
    if edge.freshness.is_stale(exchange.started()) {
        return Err(Refusal::of(Reason::StoreStale));
    }
    let head_lines = head.lines.iter().map(|line| (line.name.as_bytes(), line.value));
    let credential = credential(head_lines, client.is_secure() || settings.insecure_cookies).map_err(Refusal::of)?;
    let session = edge.sessions.lookup(&credential.token, now_ms()).map_err(|refused| {
        exchange.concerns(refused.person);
        Refusal::of(refused.reason)
    })?;
    exchange.concerns(Some(session.person().clone()));
    if credential.carrier == Carrier::Cookie && !origin::is_own(screened.head(), client.is_secure()) {
        return Err(Refusal::of(Reason::CrossOrigin));
    }
    // 4. The person's own bot, and no other.
    let grant = Grant::new(session, &edge.directory, screened.target().profile()).map_err(Refusal::of)?;
    exchange.granted(grant.clone());
    // 5 and 6. Route, method; content coding, declared length, expectation.
    let route = narrow::narrow(&screened, &edge.routes, settings.limits.max_body_bytes)?;
    exchange.on_route(route.label(), route.method(), route.template());
    if let Some(run) = run_start::may_end(screened.target().path()) {
        exchange.may_end(run);
    }
    Ok(Decision::Forward { grant, asked: screened.asked(), kind: route.kind() })
}

/// Rewrites and forwards an admitted request.
async fn pass(worker: &Worker, exchange: Box<Exchange>, head: PassingHead<'_>, body: Arriving) -> Reply {
    let (unread, settings) = (head.has_body, head.settings);
    let body = RequestBody::new(body, settings.limits.max_body_bytes, settings.deadlines.body);
    match forward::forward(worker, head, body, exchange).await {
        Ok(response) => response,
        // Only a failed connection is certain to have sent nothing.
        Err((exchange, reason @ Reason::GatewayUnreachable)) => refuse(exchange, Refusal::of(reason), unread),
        Err((exchange, reason)) => refuse(exchange, Refusal::of(reason).after_sending(), unread),
    }
}

impl<'r> PassingHead<'r> {
    /// The head that goes to the grant's gateway.
    fn rewritten(&self) -> Outbound<'r> {
        let extra = self.settings.forward_headers.get(self.grant.bot().gateway().index());
        let extra = extra.map_or(&[][..], Vec::as_slice);
        Outbound::new(self.grant, &self.view, self.asked, extra, self.client)
    }
}

/// Answers with a refusal, in the one place where they are made. A body that stays unread ends the connection.
fn refuse(mut exchange: Box<Exchange>, refusal: Refusal, unread: bool) -> Reply {
    exchange.refuses(&refusal);
    refusal.into_reply(unread).ending(exchange)
}
