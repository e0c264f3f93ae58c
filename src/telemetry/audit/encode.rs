//! The fields of each kind of record.

use std::sync::Arc;

use super::line::Fields;
use super::queue::OwnedRefusal;
use super::records::{ActionRecord, Actor, CloseRecord, DETAILS_MAX, OpenRecord, Outcome, TEXT_MAX_BYTES};
use super::recover::OpenTurnRow;
use super::refusals::Summary;
use crate::names::Identifier;
use crate::telemetry::reason::Reason;

pub(super) fn open(line: &mut Fields<'_>, record: &OpenRecord) {
    line.text("request_id", &record.request_id);
    line.text("login", record.login.as_str());
    line.plain("uid", &record.uid);
    line.plain("session", &record.session_id);
    line.plain("credential", record.credential.as_str());
    line.plain("profile", &record.profile);
    line.plain("gateway", &record.gateway);
    line.text("method", record.method);
    line.text("route", record.route);
    line.boolean("tunnel", record.tunnel);
    line.plain("peer", record.peer.to_canonical());
}

/// What later records say of an open turn.
pub(super) fn row(record: &OpenRecord, seq: u64) -> OpenTurnRow {
    OpenTurnRow {
        open: seq,
        request_id: Arc::clone(&record.request_id),
        login: record.login.clone(),
        uid: record.uid.clone(),
        profile: record.profile.clone(),
        gateway: record.gateway.clone(),
    }
}

pub(super) fn close(line: &mut Fields<'_>, open: u64, opened: &OpenRecord, close: Option<&CloseRecord>) {
    line.number("open", open);
    line.text("request_id", &opened.request_id);
    line.text("login", opened.login.as_str());
    line.plain("uid", &opened.uid);
    line.plain("profile", &opened.profile);
    line.plain("gateway", &opened.gateway);
    line.plain("outcome", close.map_or(Outcome::Interrupted, |close| close.outcome).as_str());
    let Some(close) = close else { return };
    line.optional_number("status", close.status);
    line.optional_text("reason", close.reason.map(Reason::as_str));
    line.number("bytes_in", close.bytes_in);
    line.number("bytes_out", close.bytes_out);
    line.number("duration_ms", close.duration.as_millis().min(u128::from(u64::MAX)) as u64);
    line.optional_text("run_id", close.run_id.as_ref().map(Identifier::as_str));
}

pub(super) fn lost(line: &mut Fields<'_>, turn: &OpenTurnRow) {
    line.number("open", turn.open);
    line.text("request_id", &turn.request_id);
    line.text("login", turn.login.as_str());
    line.plain("uid", &turn.uid);
    line.plain("profile", &turn.profile);
    line.plain("gateway", &turn.gateway);
    line.plain("outcome", Outcome::Lost.as_str());
}

pub(super) fn action(line: &mut Fields<'_>, record: &ActionRecord) {
    match &record.by {
        Actor::Person { login, uid } => {
            line.plain("by", "person");
            line.text("login", login.as_str());
            line.plain("uid", uid);
        }
        Actor::Operator { unix_uid } => {
            line.plain("by", "operator");
            line.number("unix_uid", *unix_uid);
        }
        Actor::Edge => line.plain("by", "edge"),
    }
    line.text("action", record.action);
    line.text("object", &record.object);
    line.plain("outcome", record.outcome.as_str());
    line.optional_text("request_id", record.request_id.as_deref());
    line.optional_number("status", record.status);
    let detail: serde_json::Map<String, serde_json::Value> = record
        .detail
        .iter()
        .take(DETAILS_MAX)
        .map(|(name, value)| ((*name).to_owned(), value[..value.floor_char_boundary(TEXT_MAX_BYTES)].into()))
        .collect();
    line.value("detail", &detail);
}

pub(super) fn refusal(line: &mut Fields<'_>, refusal: &OwnedRefusal) {
    line.text("request_id", &refusal.request_id);
    line.text("login", refusal.login.as_str());
    line.plain("uid", &refusal.uid);
    line.plain("reason", refusal.reason.as_str());
    line.optional_text("route", refusal.route);
    line.plain("peer", refusal.peer.to_canonical());
}

pub(super) fn summary(line: &mut Fields<'_>, summary: &Summary) {
    line.value("people", &summary.people());
    line.value("networks", &summary.networks());
    line.value("others", &summary.others());
}
