//! The fields of each kind of record.

use super::line::Fields;
use super::queue::OwnedRefusal;
use super::records::{ActionRecord, Actor, CloseRecord, DETAILS_MAX, OpenRecord, Outcome, TEXT_MAX_BYTES};
use super::recover::OpenTurnRow;
use super::refusals::Summary;
use crate::names::Identifier;

/// Room for the fields of an `open` record next to its texts, about.
const OPEN_BYTES: usize = 192;

/// The fields of an `open` record, written where the turn begins: threads that share a person or a bot would contend
/// for the counts of its names, and the writer would do their work.
pub(super) struct OpenFields {
    bytes: Vec<u8>,
    /// Length of those that name the turn, which its later records repeat.
    naming: usize,
}

impl OpenFields {
    pub(super) fn of(record: &OpenRecord<'_>) -> Self {
        let OpenRecord {
            request_id,
            login,
            uid,
            session_id,
            credential,
            profile,
            gateway,
            method,
            route,
            tunnel,
            peer,
        } = *record;
        let texts = [request_id, login.as_str(), uid.as_str(), session_id.as_str(), profile.as_str(), gateway.as_str()];
        let length = texts.iter().map(|text| text.len()).sum::<usize>() + method.len() + route.len();
        let mut bytes = Vec::with_capacity(OPEN_BYTES + length);
        let mut line = Fields(&mut bytes);
        line.text("request_id", request_id);
        line.text("login", login.as_str());
        line.plain("uid", uid.as_str());
        line.plain("profile", profile.as_str());
        line.plain("gateway", gateway.as_str());
        let naming = line.0.len();
        line.plain("session", session_id.as_str());
        line.plain("credential", credential.as_str());
        line.text("method", method);
        line.text("route", route);
        line.boolean("tunnel", tunnel);
        line.address("peer", peer);
        OpenFields { bytes, naming }
    }

    fn naming(&self) -> &[u8] {
        &self.bytes[..self.naming]
    }
}

pub(super) fn open(line: &mut Fields<'_>, opened: &OpenFields) {
    line.written(&opened.bytes);
}

/// What later segments say of open turns.
pub(super) fn carried(line: &mut Fields<'_>, turns: &[(u64, &OpenFields)]) {
    line.objects("turns", turns, |row, (open, opened)| {
        row.number("open", *open);
        row.written(opened.naming());
    });
}

pub(super) fn close(line: &mut Fields<'_>, open: u64, opened: &OpenFields, close: Option<&CloseRecord>) {
    line.number("open", open);
    line.written(opened.naming());
    line.plain("outcome", close.map_or(Outcome::Interrupted, |close| close.outcome).as_str());
    let Some(close) = close else { return };
    line.optional_number("status", close.status);
    match close.reason {
        Some(reason) => line.plain("reason", reason.as_str()),
        None => line.null("reason"),
    }
    line.number("bytes_in", close.bytes_in);
    line.number("bytes_out", close.bytes_out);
    line.number("duration_ms", close.duration.as_millis().min(u128::from(u64::MAX)) as u64);
    line.optional_text("run_id", close.run_id.as_ref().map(Identifier::as_str));
}

pub(super) fn lost(line: &mut Fields<'_>, turn: &OpenTurnRow) {
    line.number("open", turn.open);
    line.text("request_id", &turn.request_id);
    line.text("login", turn.login.as_str());
    line.plain("uid", turn.uid.as_str());
    line.plain("profile", turn.profile.as_str());
    line.plain("gateway", turn.gateway.as_str());
    line.plain("outcome", Outcome::Lost.as_str());
}

pub(super) fn action(line: &mut Fields<'_>, record: &ActionRecord) {
    match &record.by {
        Actor::Person { login, uid } => {
            line.plain("by", "person");
            line.text("login", login.as_str());
            line.plain("uid", uid.as_str());
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
    line.plain("uid", refusal.uid.as_str());
    line.plain("reason", refusal.reason.as_str());
    line.optional_text("route", refusal.route);
    line.address("peer", refusal.peer);
}

pub(super) fn summary(line: &mut Fields<'_>, summary: &Summary) {
    line.value("people", &summary.people());
    line.value("networks", &summary.networks());
    line.value("others", &summary.others());
}
