//! Calls about sessions and personal tokens.

use std::time::Duration;

use axum::extract::State;
use axum::{Extension, Json};

use super::answer::{Answer, Body, Refused};
use super::wire::{
    CreateSessions, Issued, IssuedToken, Kind, ListSessions, RefusedLogin, Revoke, Revoked, SessionInfo, SessionPage,
};
use crate::lifecycle::{Caller, Control, Issue};
use crate::secret::TokenKind;

/// Rows of one page.
const PAGE: usize = 1_000;
/// Longest life that can be asked for, in milliseconds: ten years.
const TTL_MAX_MS: i64 = 3650 * 86_400_000;
/// Longest label, in characters.
const LABEL_MAX_CHARS: usize = 100;
/// Most rows that one call revokes.
const REVOKE_MAX: usize = 1_000;

type Ctl = State<Control>;
type By = Extension<Caller>;

pub(super) async fn create(ctl: Ctl, by: By, Body(asked): Body<CreateSessions>) -> Answer<Issued> {
    let ttl = u64::try_from(asked.ttl_ms).ok().filter(|_| (1..=TTL_MAX_MS).contains(&asked.ttl_ms));
    let ttl = ttl.map(Duration::from_millis).ok_or_else(|| Refused::bad_request("ttl_ms is out of bounds"))?;
    let labelled = asked.label.as_ref().map_or(1, |label| label.chars().count());
    if labelled == 0 || labelled > LABEL_MAX_CHARS {
        return Err(Refused::bad_request(format!("a label has 1 to {LABEL_MAX_CHARS} characters")));
    }
    let count = usize::try_from(asked.count).unwrap_or(usize::MAX);
    let issue = Issue { logins: asked.logins, count, ttl, label: asked.label };
    let (issued, refused) = ctl.issue(*by, issue).await?;
    let tokens = issued.into_iter().map(|one| IssuedToken {
        login: one.login,
        id: one.row.id,
        token: one.token.expose().to_owned(),
        expires_at: Some(one.row.expires_at),
    });
    let refused = refused.into_iter().map(|(login, message)| RefusedLogin { login, message });
    Ok(Json(Issued { tokens: tokens.collect(), refused: refused.collect() }))
}

pub(super) async fn list(ctl: Ctl, Body(asked): Body<ListSessions>) -> Answer<SessionPage> {
    let (rows, more) = ctl.list_sessions(kind(asked.kind), asked.login.as_ref(), asked.after, PAGE).await?;
    let sessions = rows.into_iter().map(|(login, row)| SessionInfo {
        id: row.id,
        login,
        label: row.label,
        created_at: row.created_at,
        expires_at: row.expires_at,
        last_used_at: row.last_used_at,
    });
    Ok(Json(SessionPage { sessions: sessions.collect(), more }))
}

pub(super) async fn revoke(ctl: Ctl, by: By, Body(asked): Body<Revoke>) -> Answer<Revoked> {
    let done = match asked.login {
        Some(login) if asked.ids.is_empty() => ctl.revoke_of(*by, kind(asked.kind), &login).await?,
        None if asked.ids.len() <= REVOKE_MAX => ctl.revoke_ids(*by, asked.ids).await?,
        _ => return Err(Refused::bad_request(format!("give a login, or up to {REVOKE_MAX} ids"))),
    };
    Ok(Json(Revoked { revoked: done.revoked, unknown: done.unknown }))
}

fn kind(kind: Kind) -> TokenKind {
    match kind {
        Kind::Session => TokenKind::Session,
        Kind::Personal => TokenKind::Personal,
    }
}
