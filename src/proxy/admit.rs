//! admit: the last decision before a request leaves: the person's rate, drain, gateway state, permit, room for the audit records.
//!
//! Invariants: what is admitted holds its permit and its room in the exchange, which gives both back; revocation is looked
//! at again after every wait.

use super::Worker;
use super::authorize::Grant;
use super::exchange::{AuditState, Exchange};
use super::routes::RouteKind;
use super::settings::Settings;
use crate::directory::GatewayStanding;
use crate::gateway::permits::{AdmitError, TurnPermit};
use crate::telemetry::reason::Reason;

/// Admits a request, after waiting for a permit where it is a turn.
pub(super) async fn admit(
    worker: &Worker,
    settings: &Settings,
    exchange: &mut Exchange,
    grant: &Grant,
    kind: RouteKind,
) -> Result<(), Reason> {
    let edge = worker.edge.parts();
    let person = grant.session().person().uid();
    settings.rates.asks(person)?;
    // What is no turn is short, and its connection ends with it.
    let drained = || kind.is_turn() && edge.ending.draining().is_cancelled();
    if drained() {
        return Err(Reason::Draining);
    }
    servable(worker, grant)?;
    let permit = match kind.is_turn() {
        true => Some(permit(worker, grant).await?),
        false => None,
    };
    let audit = match kind {
        RouteKind::Read => Ok(AuditState::None),
        RouteKind::Change => edge.audit.reserve_one(person).map(AuditState::Change),
        RouteKind::Turn | RouteKind::RunStart => edge.audit.reserve(person).map(AuditState::Reserved),
    };
    let audit = audit.map_err(|full| full.reason())?;
    let follow = match kind {
        RouteKind::RunStart => Some(edge.runs.reserve().ok_or(Reason::QueueFull)?),
        RouteKind::Read | RouteKind::Change | RouteKind::Turn => None,
    };
    if grant.session().cancelled().is_cancelled() {
        return Err(Reason::SessionRevoked);
    }
    if drained() {
        return Err(Reason::Draining);
    }
    servable(worker, grant)?;
    exchange.admitted(permit, follow, audit);
    Ok(())
}

fn servable(worker: &Worker, grant: &Grant) -> Result<(), Reason> {
    match grant.bot().gateway().standing() {
        GatewayStanding::Proved => Ok(()),
        GatewayStanding::Starting => {
            // Whoever asks has a bot in use: among many that are not there it is the one to prove first.
            (worker.edge.parts().suspect)(grant.bot().login());
            Err(Reason::GatewayStarting)
        }
        GatewayStanding::ProofFailed => Err(Reason::ProofFailed),
    }
}

async fn permit(worker: &Worker, grant: &Grant) -> Result<TurnPermit, Reason> {
    let edge = worker.edge.parts();
    let Some(turns) = edge.turns.get(grant.bot().gateway().index()) else { return Err(Reason::GatewayUnreachable) };
    let cancelled = grant.session().cancelled();
    // Whoever waits when the drain begins is told at once.
    let admitted =
        edge.ending.draining().run_until_cancelled(turns.admit(grant.session().person().uid(), cancelled)).await;
    let permit = admitted.ok_or(Reason::Draining)?.map_err(|error| match error {
        AdmitError::QueueFull => Reason::QueueFull,
        AdmitError::Timeout => Reason::QueueTimeout,
        AdmitError::Revoked => Reason::SessionRevoked,
    })?;
    edge.metrics.queue_waited(permit.waited());
    Ok(permit)
}
