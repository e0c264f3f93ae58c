//! Reading rows: columns become names again, or the row is malformed.

use rusqlite::{Params, Row, Transaction};

use super::super::error::StoreError;
use super::super::model::{BotTokenRow, PersonRow, PersonState, RunRow, SessionRow};
use crate::names::{GatewayName, Identifier, Login, ProfileName, Role, Uid};
use crate::secret::{TokenDigest, TokenKind};

/// Columns of [`person`], in its order.
pub(super) const PERSON: &str = "uid, login, role, state, gateway, bot_profile, adopted, created_at";
/// Columns of [`session`], in its order.
pub(super) const SESSION: &str =
    "id, digest, uid, kind, label, created_at, expires_at, idle_expires_at, last_used_at, revoked_at";
/// Columns of [`bot_token`], in its order.
pub(super) const BOT_TOKEN: &str = "id, uid, digest, created_at, last_used_at, revoked_at";
/// Columns of [`run`], in its order.
pub(super) const RUN: &str = "run_id, uid, session_id, profile, gateway, started_at";

/// A text column as a name; `None` when it is NULL, no text, or not such a name.
pub(super) fn name<T, E>(row: &Row<'_>, at: usize, parse: impl FnOnce(&str) -> Result<T, E>) -> Option<T> {
    parse(row.get_ref(at).ok()?.as_str().ok()?).ok()
}

/// The same for a column that may be NULL: the outer `None` is a malformed row.
fn optional<T, E>(row: &Row<'_>, at: usize, parse: impl FnOnce(&str) -> Result<T, E>) -> Option<Option<T>> {
    match row.get_ref(at).ok()?.as_str_or_null().ok()? {
        None => Some(None),
        Some(text) => parse(text).ok().map(Some),
    }
}

pub(super) fn digest(row: &Row<'_>, at: usize) -> Option<TokenDigest> {
    TokenDigest::from_stored(row.get_ref(at).ok()?.as_blob().ok()?)
}

/// A person from the columns [`PERSON`]; `None` when malformed.
pub(super) fn person(row: &Row<'_>) -> Option<PersonRow> {
    let state = match row.get_ref(3).ok()?.as_str().ok()? {
        "active" => PersonState::Active,
        "disabled" => PersonState::Disabled,
        "deleting" => PersonState::Deleting,
        _ => return None,
    };
    Some(PersonRow {
        uid: name(row, 0, Uid::parse)?,
        login: name(row, 1, Login::parse)?,
        role: name(row, 2, Role::parse)?,
        state,
        gateway: optional(row, 4, GatewayName::parse)?,
        profile: optional(row, 5, ProfileName::parse)?,
        adopted: row.get(6).ok()?,
        created_at: row.get(7).ok()?,
    })
}

/// A session from the columns [`SESSION`]; `None` when malformed.
pub(super) fn session(row: &Row<'_>) -> Option<SessionRow> {
    let kind = match row.get_ref(3).ok()?.as_str().ok()? {
        "session" => TokenKind::Session,
        "personal" => TokenKind::Personal,
        _ => return None,
    };
    Some(SessionRow {
        id: name(row, 0, Uid::parse)?,
        digest: digest(row, 1)?,
        uid: name(row, 2, Uid::parse)?,
        kind,
        label: row.get(4).ok()?,
        created_at: row.get(5).ok()?,
        expires_at: row.get(6).ok()?,
        idle_expires_at: row.get(7).ok()?,
        last_used_at: row.get(8).ok()?,
        revoked_at: row.get(9).ok()?,
    })
}

/// A bot token from the columns [`BOT_TOKEN`]; `None` when malformed.
pub(super) fn bot_token(row: &Row<'_>) -> Option<BotTokenRow> {
    Some(BotTokenRow {
        id: name(row, 0, Uid::parse)?,
        uid: name(row, 1, Uid::parse)?,
        digest: digest(row, 2)?,
        created_at: row.get(3).ok()?,
        last_used_at: row.get(4).ok()?,
        revoked_at: row.get(5).ok()?,
    })
}

/// A run from the columns [`RUN`]; `None` when malformed.
pub(super) fn run(row: &Row<'_>) -> Option<RunRow> {
    Some(RunRow {
        run_id: name(row, 0, Identifier::parse)?,
        uid: name(row, 1, Uid::parse)?,
        session_id: name(row, 2, Uid::parse)?,
        profile: name(row, 3, ProfileName::parse)?,
        gateway: name(row, 4, GatewayName::parse)?,
        started_at: row.get(5).ok()?,
    })
}

/// The first row of a query, if there is one.
pub(super) fn one<T>(
    transaction: &Transaction<'_>,
    sql: &str,
    params: impl Params,
    parse: fn(&Row<'_>) -> Option<T>,
) -> Result<Option<T>, StoreError> {
    let mut statement = transaction.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    match rows.next()? {
        None => Ok(None),
        Some(row) => parse(row).map(Some).ok_or(StoreError::MalformedRow),
    }
}

/// All rows of a query that can be read. One that cannot harms nobody else; it is told at the next start.
pub(super) fn all<T>(
    transaction: &Transaction<'_>,
    sql: &str,
    params: impl Params,
    parse: fn(&Row<'_>) -> Option<T>,
) -> Result<Vec<T>, StoreError> {
    let mut statement = transaction.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    let mut out = Vec::new();
    while let Some(row) = rows.next()? {
        out.extend(parse(row));
    }
    Ok(out)
}
