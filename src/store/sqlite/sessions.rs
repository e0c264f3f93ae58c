//! SQL about sessions and personal tokens.

use rusqlite::{OptionalExtension, Transaction, params};

use super::super::error::StoreError;
use super::super::model::{IdleFlush, NewSession, SessionFilter, SessionRefused, SessionRow};
use super::super::{MAX_BATCH, now_ms};
use super::read;
use crate::names::Uid;
use crate::secret::TokenKind;

/// Longest label, in bytes.
const LABEL_MAX_BYTES: usize = 200;
/// Most rows of one page.
const PAGE_MAX: usize = 10_000;

pub(crate) fn create(
    tx: &Transaction<'_>,
    sessions: &[NewSession],
) -> Result<Vec<Result<SessionRow, SessionRefused>>, StoreError> {
    sessions.iter().map(|new| create_one(tx, new)).collect()
}

fn create_one(tx: &Transaction<'_>, new: &NewSession) -> Result<Result<SessionRow, SessionRefused>, StoreError> {
    let label_fits = new.label.as_ref().is_none_or(|label| label.len() <= LABEL_MAX_BYTES && !label.contains('\0'));
    if new.kind == TokenKind::Bot || !label_fits || new.created_at < 0 || new.expires_at <= new.created_at {
        return Ok(Err(SessionRefused::Invalid));
    }
    let state: Option<String> = tx
        .prepare_cached("SELECT state FROM users WHERE uid = ?1")?
        .query_row([new.uid.as_str()], |row| row.get(0))
        .optional()?;
    match state.as_deref() {
        Some("active") => {}
        Some(_) => return Ok(Err(SessionRefused::PersonNotActive)),
        None => return Ok(Err(SessionRefused::NoSuchPerson)),
    }
    let row = SessionRow {
        id: Uid::random(),
        digest: new.digest,
        uid: new.uid.clone(),
        kind: new.kind,
        label: new.label.clone(),
        created_at: new.created_at,
        expires_at: new.expires_at,
        idle_expires_at: new.idle_expires_at,
        last_used_at: None,
        revoked_at: None,
    };
    let inserted = tx
        .prepare_cached(
            "INSERT INTO sessions (id, digest, uid, kind, label, created_at, expires_at, idle_expires_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (digest) DO NOTHING",
        )?
        .execute(params![
            row.id.as_str(),
            row.digest.as_bytes(),
            row.uid.as_str(),
            row.kind.as_str(),
            row.label,
            row.created_at,
            row.expires_at,
            row.idle_expires_at
        ])?;
    Ok(if inserted == 1 { Ok(row) } else { Err(SessionRefused::DigestTaken) })
}

pub(crate) fn revoke(tx: &Transaction<'_>, id: &Uid) -> Result<SessionRow, StoreError> {
    tx.execute(
        "UPDATE sessions SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL",
        params![id.as_str(), now_ms()],
    )?;
    let sql = format!("SELECT {} FROM sessions WHERE id = ?1", read::SESSION);
    read::one(tx, &sql, [id.as_str()], read::session)?.ok_or(StoreError::NoSuchToken)
}

pub(crate) fn revoke_of(tx: &Transaction<'_>, uid: &Uid, kinds: &[TokenKind]) -> Result<Vec<SessionRow>, StoreError> {
    let now = now_ms();
    let sql = format!(
        "UPDATE sessions SET revoked_at = ?3 WHERE uid = ?1 AND kind = ?2 AND revoked_at IS NULL RETURNING {}",
        read::SESSION
    );
    let mut revoked = Vec::new();
    for kind in kinds {
        revoked.extend(read::all(tx, &sql, params![uid.as_str(), kind.as_str(), now], read::session)?);
    }
    Ok(revoked)
}

/// Revokes one person's sessions and personal tokens, or everybody's.
pub(super) fn revoke_all(tx: &Transaction<'_>, uid: Option<&Uid>) -> Result<usize, StoreError> {
    Ok(tx.execute(
        "UPDATE sessions SET revoked_at = ?2 WHERE (?1 IS NULL OR uid = ?1) AND revoked_at IS NULL",
        params![uid.map(|uid| uid.as_str()), now_ms()],
    )?)
}

pub(crate) fn list(tx: &Transaction<'_>, filter: &SessionFilter) -> Result<Vec<SessionRow>, StoreError> {
    let sql = format!(
        "SELECT {} FROM sessions
         WHERE (?1 IS NULL OR uid = ?1) AND (?2 IS NULL OR kind = ?2) AND (?3 IS NULL OR id > ?3)
         AND (NOT ?4 OR (revoked_at IS NULL AND expires_at > ?5 AND coalesce(idle_expires_at, ?5 + 1) > ?5))
         ORDER BY id LIMIT ?6",
        read::SESSION
    );
    let params = params![
        filter.uid.as_ref().map(|uid| uid.as_str()),
        filter.kind.map(|kind| kind.as_str()),
        filter.after.as_ref().map(|id| id.as_str()),
        filter.live_only,
        now_ms(),
        filter.limit.min(PAGE_MAX) as i64
    ];
    read::all(tx, &sql, params, read::session)
}

pub(crate) fn flush_idle(tx: &Transaction<'_>, used: &[IdleFlush]) -> Result<(), StoreError> {
    let mut update = tx.prepare_cached(
        "UPDATE sessions SET idle_expires_at = max(idle_expires_at, coalesce(?2, idle_expires_at)),
         last_used_at = max(coalesce(last_used_at, 0), ?3) WHERE id = ?1 AND revoked_at IS NULL",
    )?;
    for flush in used {
        update.execute(params![flush.id.as_str(), flush.idle_expires_at, flush.last_used_at])?;
    }
    Ok(())
}

pub(crate) fn prune(tx: &Transaction<'_>, ended_before: i64) -> Result<usize, StoreError> {
    Ok(tx.execute(
        "DELETE FROM sessions WHERE id IN (SELECT id FROM sessions WHERE expires_at < ?1 LIMIT ?2)",
        [ended_before, MAX_BATCH as i64],
    )?)
}
