//! The exchange: one request from its first decision to its last byte.
//!
//! Invariants: it is a guard. Permit, in-flight counts, duration, byte counts, access log and audit records end when it is
//! dropped, however that comes about: answered, refused, client gone, cut. Nothing here is a pair of calls.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use http::{HeaderValue, Method, StatusCode};

use super::Worker;
use super::authorize::Grant;
use super::edge::Edge;
use super::refusal::Refusal;
use super::routes::NO_ROUTE;
use crate::gateway::permits::TurnPermit;
use crate::gateway::request_body::BodyProgress;
use crate::gateway::runs::{FollowSlot, RunEnd, RunWatch};
use crate::identity::Person;
use crate::names::Identifier;
use crate::tasks::{Cancellation, Tasks};
use crate::telemetry::access::AccessRecord;
use crate::telemetry::audit::{
    ActionRecord, ActionSlot, Actor, AuditSlots, CloseRecord, OpenRecord, OpenTurn, Outcome, RefusalRecord,
};
use crate::telemetry::reason::Reason;

/// Status under which a request counts whose client left before any answer; never sent.
const CLIENT_GONE: u16 = 499;

/// One request under way.
pub struct Exchange {
    // Its count is this thread's own; the edge's would be everybody's.
    worker: Arc<Worker>,
    request_id: HeaderValue,
    peer: IpAddr,
    method: Method,
    started: Instant,
    first_byte: Option<Duration>,
    route: usize,
    template: &'static str,
    // The route's own word: records outlive the request.
    route_method: &'static str,
    // Whom records name; no right follows from it.
    person: Option<Arc<Person>>,
    grant: Option<Grant>,
    status: Option<StatusCode>,
    reason: Option<Reason>,
    outcome: Outcome,
    bytes_out: u64,
    body: Option<Arc<BodyProgress>>,
    run: Option<Identifier>,
    // A run that the request may have ended: whoever follows it asks again at once.
    nudged: Option<Identifier>,
    // Fields drop in order: the permit passes on only after the turn's record is closed.
    audit: AuditState,
    permit: Option<TurnPermit>,
    follow: Option<FollowSlot>,
}

/// How far the request's records are.
pub(super) enum AuditState {
    /// No record, or it is written.
    None,
    /// Room for a change's one record.
    Change(ActionSlot),
    /// Room for a turn's two records, none of which is written yet.
    Reserved(AuditSlots),
    /// The turn is open.
    Open(OpenTurn),
}

impl Exchange {
    /// A request that has just been read.
    pub fn open(worker: Arc<Worker>, request_id: HeaderValue, peer: IpAddr, method: Method) -> Self {
        Exchange {
            worker,
            request_id,
            peer,
            method,
            started: Instant::now(),
            first_byte: None,
            route: NO_ROUTE,
            template: "none",
            route_method: "none",
            person: None,
            grant: None,
            status: None,
            reason: None,
            outcome: Outcome::ClientGone,
            bytes_out: 0,
            body: None,
            run: None,
            nudged: None,
            audit: AuditState::None,
            permit: None,
            follow: None,
        }
    }

    /// The shared state of the edge.
    pub fn edge(&self) -> &Edge {
        &self.worker.edge
    }

    /// Where what outlives the request's client runs.
    pub fn tasks(&self) -> &Tasks {
        &self.worker.tasks
    }

    /// When it was read.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Value of X-Request-Id.
    pub fn request_id(&self) -> &HeaderValue {
        &self.request_id
    }

    /// The request is on this route.
    pub fn on_route(&mut self, label: usize, method: &'static str, template: &'static str) {
        (self.route, self.route_method, self.template) = (label, method, template);
    }

    /// The client's address.
    pub fn peer(&self) -> IpAddr {
        self.peer
    }

    /// The credential is, or was, this person's.
    pub fn concerns(&mut self, person: Option<Arc<Person>>) {
        self.person = person;
    }

    /// The session may use this bot.
    pub fn granted(&mut self, grant: Grant) {
        self.grant = Some(grant);
    }

    /// The grant, once authorized.
    pub fn grant(&self) -> Option<&Grant> {
        self.grant.as_ref()
    }

    /// Whether the session, or its person, has been revoked since the lookup.
    pub fn is_revoked(&self) -> bool {
        self.grant.as_ref().is_some_and(|grant| grant.session().cancelled().is_cancelled())
    }

    /// The request holds a permit and room for its records until it ends.
    pub(super) fn admitted(&mut self, permit: Option<TurnPermit>, follow: Option<FollowSlot>, audit: AuditState) {
        (self.permit, self.follow, self.audit) = (permit, follow, audit);
    }

    /// Takes the permit out, for whoever waits until the gateway has let go of the turn.
    pub(super) fn take_permit(&mut self) -> Option<TurnPermit> {
        self.permit.take()
    }

    /// Where to read how much of the request body has been taken.
    pub fn sends(&mut self, body: Option<Arc<BodyProgress>>) {
        self.body = body;
    }

    /// Writes the turn's `open` record; does not wait for it.
    pub fn open_turn(&mut self) {
        match (std::mem::replace(&mut self.audit, AuditState::None), &self.grant) {
            (AuditState::Reserved(slots), Some(grant)) => {
                let (session, bot) = (grant.session(), grant.bot());
                self.audit = AuditState::Open(slots.open(&OpenRecord {
                    request_id: self.request_text(),
                    login: session.person().login(),
                    uid: session.person().uid(),
                    session_id: session.id(),
                    credential: session.kind(),
                    profile: bot.profile(),
                    gateway: bot.gateway().name(),
                    method: self.route_method,
                    route: self.template,
                    peer: self.peer,
                    tunnel: false,
                }));
            }
            (audit, _) => self.audit = audit,
        }
    }

    /// Waits until the turn's `open` record is written; at once when there is none.
    ///
    /// # Errors
    /// [`Reason::AuditFailed`]
    pub async fn opened(&self) -> Result<(), Reason> {
        match &self.audit {
            AuditState::Open(turn) => turn.written().await.map_err(|error| {
                tracing::debug!(request_id = self.request_text(), %error, "a turn is refused for want of its record");
                Reason::AuditFailed
            }),
            AuditState::None | AuditState::Change(_) | AuditState::Reserved(_) => Ok(()),
        }
    }

    /// The answer's head goes out.
    pub fn answers(&mut self, status: StatusCode) {
        self.status = Some(status);
        self.first_byte = Some(self.started.elapsed());
    }

    /// The answer is a refusal.
    pub fn refuses(&mut self, refusal: &Refusal) {
        self.reason = Some(refusal.reason());
        self.outcome = Outcome::Refused;
        self.answers(refusal.status());
    }

    /// Bytes of the answer went out.
    pub fn sent(&mut self, bytes: usize) {
        self.bytes_out += bytes as u64;
    }

    /// How it ended; without a call the client went away.
    pub fn ends(&mut self, outcome: Outcome) {
        self.outcome = outcome;
    }

    /// The request may end this run.
    pub fn may_end(&mut self, run: Identifier) {
        self.nudged = Some(run);
    }

    /// The request started a run: permit and record go to whoever follows it to its end.
    pub fn run_started(&mut self, run: Identifier, watch: RunWatch, revoked: Cancellation, status: StatusCode) {
        let Some(slot) = self.follow.take() else { return };
        let Some(session) = self.grant.as_ref().map(|grant| grant.session().id().clone()) else { return };
        self.run = Some(run.clone());
        let turn = match std::mem::replace(&mut self.audit, AuditState::None) {
            AuditState::Open(turn) => Some(turn),
            AuditState::None | AuditState::Change(_) | AuditState::Reserved(_) => None,
        };
        let (started, bytes_in) = (self.started, self.bytes_in());
        slot.follow(
            watch,
            &session,
            self.permit.take(),
            revoked,
            Box::new(move |end| {
                if let Some(turn) = turn {
                    turn.close(CloseRecord {
                        status: Some(status.as_u16()),
                        outcome: outcome_of(end),
                        reason: None,
                        bytes_in,
                        bytes_out: 0,
                        duration: started.elapsed(),
                        run_id: Some(run),
                    });
                }
            }),
        );
    }

    fn bytes_in(&self) -> u64 {
        self.body.as_ref().map_or(0, |body| body.bytes())
    }

    fn request_text(&self) -> &str {
        self.request_id.to_str().unwrap_or_default()
    }

    fn record(&mut self, duration: Duration) {
        let status = self.status.map(|status| status.as_u16());
        match std::mem::replace(&mut self.audit, AuditState::None) {
            AuditState::Open(turn) => turn.close(CloseRecord {
                status,
                outcome: self.outcome,
                reason: self.reason,
                bytes_in: self.bytes_in(),
                bytes_out: self.bytes_out,
                duration,
                run_id: self.run.clone(),
            }),
            AuditState::Change(slot) => {
                if let Some(grant) = &self.grant {
                    let person = grant.session().person();
                    let by = Actor::Person { login: person.login().clone(), uid: person.uid().clone() };
                    let mut record = ActionRecord::new(by, "request", grant.bot().profile().as_str(), self.outcome)
                        .with("method", self.method.as_str())
                        .with("route", self.template);
                    record.request_id = Some(self.request_text().into());
                    record.status = status;
                    slot.record(record);
                }
            }
            AuditState::Reserved(_) | AuditState::None => {}
        }
        if self.outcome == Outcome::Revoked
            && let Some(since) = self.grant.as_ref().and_then(|grant| grant.session().revoked_for())
        {
            self.edge().metrics().revocation(since);
        }
        if let (Some(reason), Outcome::Refused) = (self.reason, self.outcome) {
            self.worker.counts.refused(reason);
            let person = self.person.as_ref();
            self.edge().audit().refusal(&RefusalRecord {
                person: person.map(|person| (person.login(), person.uid())),
                peer: self.peer,
                reason,
                request_id: self.request_text(),
                route: (self.route != NO_ROUTE).then_some(self.template),
            });
        }
    }
}

/// A run's end in the audit log's words.
fn outcome_of(end: RunEnd) -> Outcome {
    match end {
        RunEnd::Completed | RunEnd::Cancelled | RunEnd::Repeated => Outcome::Finished,
        RunEnd::Failed => Outcome::Failed,
        RunEnd::Revoked => Outcome::Revoked,
        RunEnd::Interrupted => Outcome::Interrupted,
        RunEnd::Lost => Outcome::Lost,
        RunEnd::Abandoned => Outcome::TimedOut,
        RunEnd::EdgeStopped => Outcome::Shutdown,
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let duration = self.started.elapsed();
        if self.outcome == Outcome::ClientGone && self.worker.tasks.is_aborted() {
            self.outcome = Outcome::Shutdown;
        }
        if self.outcome == Outcome::Shutdown {
            self.worker.cut.fetch_add(1, Ordering::Relaxed);
        }
        if let (Some(run), Some(grant)) = (&self.nudged, &self.grant) {
            self.edge().parts().runs.nudge(grant.bot().uid(), run);
        }
        let status = self.status.map_or(CLIENT_GONE, |status| status.as_u16());
        self.record(duration);
        self.worker.counts.request_finished(self.route, self.method.as_str(), status, duration, self.first_byte);
        if let Some(log) = self.edge().access_log() {
            log.access(&AccessRecord {
                request_id: self.request_text(),
                login: self.person.as_ref().map(|person| person.login()),
                bot: self.grant.as_ref().map(|grant| grant.bot().profile()),
                method: self.method.as_str(),
                route: self.template,
                status: self.status.map(|status| status.as_u16()),
                duration,
                bytes_in: self.bytes_in(),
                bytes_out: self.bytes_out,
                reason: self.reason,
                peer: self.peer,
            });
        }
    }
}
