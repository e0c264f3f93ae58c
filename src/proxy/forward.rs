//! forward: an outbound head and a body go to the gateway, and its answer comes back.
//!
//! Invariants: a turn is never sent twice; only what was provably never processed is repeated, once; revocation ends every
//! wait here, but for the one for a run's name; the turn's `open` record is written before any byte of its answer is handed
//! out.

use std::future::Future;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, StatusCode};

use super::body::{EdgeBody, UnderWay};
use super::engine;
use super::exchange::Exchange;
use super::reply::Reply;
use super::respond::{self, UNKNOWN_PROFILE_MAX_BYTES};
use super::routes::RouteKind;
use super::{PassingHead, Worker, run_start};
use crate::directory::{Bot, GatewayTarget};
use crate::gateway::answer::Answer;
use crate::gateway::call::{Call, CallDeadlines, CallError};
use crate::gateway::outgoing::{Outgoing, RequestHead};
use crate::gateway::pool::{ConnectError, Link};
use crate::gateway::request_body::{BodyFault, RequestBody};
use crate::tasks::Cancellation;
use crate::telemetry::audit::Outcome;
use crate::telemetry::metrics::UpstreamErrorKind;
use crate::telemetry::reason::Reason;

/// Longest wait for a started run's name once its session is revoked: without it the run could not be stopped.
const RUN_NAME_WITHIN: Duration = Duration::from_secs(10);

/// Where forwarding failed; the exchange comes back to be answered.
pub(super) type Failed = (Box<Exchange>, Reason);

/// Sends the request and makes the client's response of the answer.
///
/// # Errors
/// [`Failed`]
pub(super) async fn forward(
    worker: &Worker,
    head: PassingHead<'_>,
    body: RequestBody,
    exchange: Box<Exchange>,
) -> Result<Reply, Failed> {
    let kind = head.kind;
    let (head, under_way) = send(worker, head, body, exchange).await?;
    answer(worker, head, under_way, kind).await
}

/// Sends the request and waits for the response head.
async fn send(
    worker: &Worker,
    asked: PassingHead<'_>,
    body: RequestBody,
    mut exchange: Box<Exchange>,
) -> Result<(Box<Answer>, UnderWay), Failed> {
    let kind = asked.kind;
    let target = asked.grant.bot().gateway();
    let bodiless = body.is_end();
    let to_head = asked.view.method == "HEAD";
    // A run start is a task of its own already.
    let follow = kind == RouteKind::Turn;
    let cancelled = asked.grant.session().cancelled();
    let deadlines = &asked.settings.deadlines;
    let connect_within = deadlines.connect;
    let deadlines = CallDeadlines { head: deadlines.response_head, idle: deadlines.idle };
    exchange.sends(body.progress());
    let mut outgoing = Outgoing::new(head(&asked, exchange.request_id()), body);
    let mut fresh = false;
    loop {
        let idle = if fresh { None } else { worker.pool.take(target) };
        let link = match idle {
            Some(link) => link,
            // Boxed, because most requests need none and would carry the room for it about.
            None => match cancelled.run_until_cancelled(Box::pin(connect(worker, target, connect_within))).await {
                Some(Ok(link)) => link,
                Some(Err(reason)) => return Err((exchange, reason)),
                None => return Err((exchange, Reason::SessionRevoked)),
            },
        };
        if cancelled.is_cancelled() {
            return Err((exchange, Reason::SessionRevoked));
        }
        let reused = link.reused();
        exchange.open_turn();
        let call = Call::start(link, outgoing, to_head, worker.pool.clone(), deadlines);
        let mut under_way = UnderWay::new(call, exchange, follow);
        let waited = match under_way.parts() {
            Some((call, _)) => unless_revoked(cancelled, kind, call.head()).await,
            None => unreachable_parts(),
        };
        match waited {
            Ok(Ok(head)) => return Ok((head, under_way)),
            Ok(Err(error)) => {
                exchange = abandoned(under_way);
                match error {
                    CallError::Unsent(unsent) if reused && !fresh => outgoing = *unsent,
                    CallError::NoHead(_) if reused && !fresh && bodiless && is_safe(asked.view.method) => {
                        outgoing = Outgoing::new(head(&asked, exchange.request_id()), RequestBody::empty());
                    }
                    error => return Err((exchange, failure(worker, target, &error))),
                }
                fresh = true;
            }
            Err(reason) => return Err((abandoned(under_way), reason)),
        }
    }
}

/// The rewritten head, as it is sent.
fn head(asked: &PassingHead<'_>, request_id: &HeaderValue) -> RequestHead {
    engine::outgoing(&asked.view, &asked.rewritten(), request_id)
}

/// Waits until the session is revoked; for the start of a run a little longer, because the gateway runs it all the same.
async fn unless_revoked<T>(
    cancelled: &Cancellation,
    kind: RouteKind,
    work: impl Future<Output = T>,
) -> Result<T, Reason> {
    let mut work = std::pin::pin!(work);
    if let Some(done) = cancelled.run_until_cancelled(work.as_mut()).await {
        return Ok(done);
    }
    match kind {
        RouteKind::RunStart => tokio::time::timeout(RUN_NAME_WITHIN, work).await.map_err(|_| Reason::SessionRevoked),
        RouteKind::Read | RouteKind::Change | RouteKind::Turn => Err(Reason::SessionRevoked),
    }
}

/// RFC 9110 section 9.2.1: only these may be repeated when the request may have arrived.
fn is_safe(method: &str) -> bool {
    matches!(method, "GET" | "HEAD")
}

fn abandoned(under_way: UnderWay) -> Box<Exchange> {
    // Only UnderWay's own drop takes the parts away, and it has not run.
    under_way.abandon().expect("a call under way has its exchange")
}

async fn connect(worker: &Worker, target: &GatewayTarget, deadline: Duration) -> Result<Box<Link>, Reason> {
    let metrics = worker.edge.metrics();
    Link::open(target, deadline, &worker.counts).await.map_err(|error| {
        let kind = match error {
            ConnectError::Timeout => UpstreamErrorKind::ConnectTimeout,
            ConnectError::Io(_) => UpstreamErrorKind::Connect,
        };
        metrics.upstream_error(target.index(), kind);
        tracing::warn!(gateway = %target.name(), %error, "no connection to the gateway");
        Reason::GatewayUnreachable
    })
}

fn failure(worker: &Worker, target: &GatewayTarget, error: &CallError) -> Reason {
    let reason = match error {
        CallError::Body(BodyFault::TooLarge) => return Reason::BodyTooLarge,
        CallError::Body(BodyFault::TooSlow) => return Reason::BodyTooSlow,
        // The client is gone; what it would be told does not matter.
        CallError::Body(BodyFault::Aborted) => return Reason::BadRequest,
        CallError::Unsent(_) => Reason::GatewayUnreachable,
        CallError::HeadTimeout => Reason::GatewayTimeout,
        CallError::NoHead(_)
        | CallError::Head(_)
        | CallError::Broken(_)
        | CallError::Content(_)
        | CallError::IdleTimeout => Reason::GatewayBroke,
    };
    worker.edge.metrics().upstream_error(target.index(), error.kind());
    tracing::warn!(gateway = %target.name(), %error, "the gateway gave no answer");
    reason
}

/// Judges the answer and hands it on.
async fn answer(worker: &Worker, head: Box<Answer>, mut under_way: UnderWay, kind: RouteKind) -> Result<Reply, Failed> {
    let is_stream = respond::is_event_stream(&head);
    if is_stream {
        under_way.is_stream();
    }
    let Some((call, exchange)) = under_way.parts() else { unreachable_parts() };
    let Some(grant) = exchange.grant() else { unreachable_parts() };
    if let Err(reason) = respond::judge(&head, grant.bot()) {
        let metric = match reason {
            Reason::BotRefused => UpstreamErrorKind::Unauthorized,
            _ => UpstreamErrorKind::Hostile,
        };
        return Err(refused_by_gateway(worker, under_way, reason, metric));
    }
    // Both are rare and read the body whole; boxed, so that other answers do not carry the room for them about.
    let small = call.length().is_some_and(|length| length <= UNKNOWN_PROFILE_MAX_BYTES);
    if head.status() == StatusCode::NOT_FOUND && small {
        return Box::pin(not_found(worker, head, under_way, kind)).await;
    }
    if kind == RouteKind::RunStart && head.status().is_success() && !is_stream {
        return Box::pin(run_started(worker, head, under_way, kind)).await;
    }
    if let Err(reason) = exchange.opened().await {
        return Err((abandoned(under_way), reason));
    }
    if exchange.is_revoked() {
        return Err((abandoned(under_way), Reason::SessionRevoked));
    }
    exchange.answers(head.status());
    let request_id = exchange.request_id().clone();
    Ok(respond::response(head, request_id, kind.is_turn(), EdgeBody::passing(under_way)))
}

/// A short 404: the gateway's word for a profile that it does not serve, or for something that the client asked of its own bot.
async fn not_found(
    worker: &Worker,
    head: Box<Answer>,
    mut under_way: UnderWay,
    kind: RouteKind,
) -> Result<Reply, Failed> {
    let body = match gathered(worker, &mut under_way, kind, UNKNOWN_PROFILE_MAX_BYTES).await {
        Ok(body) => body,
        Err(reason) => return Err((abandoned(under_way), reason)),
    };
    if respond::is_unknown_profile(&body) {
        let metric = UpstreamErrorKind::UnknownProfile;
        return Err(refused_by_gateway(worker, under_way, Reason::BotRefused, metric));
    }
    whole(head, body, abandoned(under_way), kind).await
}

/// The answer that names a started run, which is followed from here on.
async fn run_started(
    worker: &Worker,
    head: Box<Answer>,
    mut under_way: UnderWay,
    kind: RouteKind,
) -> Result<Reply, Failed> {
    let body = match gathered(worker, &mut under_way, kind, run_start::ANSWER_MAX_BYTES).await {
        Ok(body) => body,
        Err(reason) => return Err((abandoned(under_way), reason)),
    };
    let mut exchange = abandoned(under_way);
    // Once the run is followed its record is out of reach here, so it is waited for first. A run without one is stopped.
    let recorded = exchange.opened().await;
    run_start::follow(&mut exchange, head.status(), &body, recorded.is_ok());
    match recorded {
        Ok(()) => whole(head, body, exchange, kind).await,
        Err(reason) => Err((exchange, reason)),
    }
}

/// Only UnderWay's own drop takes its parts, and only a granted request is forwarded.
fn unreachable_parts() -> ! {
    unreachable!("a call under way has its exchange, and the exchange its grant")
}

/// Answers with a body that was read whole.
async fn whole(head: Box<Answer>, body: Bytes, mut exchange: Box<Exchange>, kind: RouteKind) -> Result<Reply, Failed> {
    if let Err(reason) = exchange.opened().await {
        return Err((exchange, reason));
    }
    if exchange.is_revoked() {
        return Err((exchange, Reason::SessionRevoked));
    }
    exchange.answers(head.status());
    exchange.ends(Outcome::Finished);
    let request_id = exchange.request_id().clone();
    Ok(respond::response(head, request_id, kind.is_turn(), EdgeBody::whole(body).ending(exchange)))
}

/// The gateway refuses the bot, or answers what must not pass: an alarm, and a proof of that bot anew.
fn refused_by_gateway(worker: &Worker, under_way: UnderWay, reason: Reason, kind: UpstreamErrorKind) -> Failed {
    let exchange = abandoned(under_way);
    if let Some(bot) = exchange.grant().map(|grant| grant.bot().clone()) {
        worker.edge.metrics().upstream_error(bot.gateway().index(), kind);
        tracing::error!(login = %bot.login(), bot = %bot.profile(), gateway = %bot.gateway().name(),
            kind = kind.as_str(), "the gateway's answer must not pass");
        (worker.edge.parts().suspect)(bot.login());
    }
    (exchange, reason)
}

/// Reads a short body whole, unless its session is revoked meanwhile.
async fn gathered(worker: &Worker, under_way: &mut UnderWay, kind: RouteKind, limit: u64) -> Result<Bytes, Reason> {
    let Some((call, exchange)) = under_way.parts() else { unreachable_parts() };
    let Some(grant) = exchange.grant() else { unreachable_parts() };
    let gathering = gather(worker, grant.bot(), call, limit);
    unless_revoked(grant.session().cancelled(), kind, gathering).await.and_then(|body| body)
}

async fn gather(worker: &Worker, bot: &Bot, call: &mut Call, limit: u64) -> Result<Bytes, Reason> {
    let failed = |kind, reason| {
        worker.edge.metrics().upstream_error(bot.gateway().index(), kind);
        tracing::warn!(bot = %bot.profile(), gateway = %bot.gateway().name(), ?kind, "a short answer cannot be used");
        reason
    };
    let mut body = BytesMut::new();
    while let Some(data) = call.data().await {
        body.extend_from_slice(&data.map_err(|error| failed(error.kind(), Reason::GatewayBroke))?);
        if body.len() as u64 > limit {
            return Err(failed(UpstreamErrorKind::Hostile, Reason::GatewayHostile));
        }
    }
    Ok(body.freeze())
}
