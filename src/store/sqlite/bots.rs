//! SQL about bots: their sealed keys and their MCP tokens.

use rusqlite::{OptionalExtension, Transaction, params};

use super::super::error::StoreError;
use super::super::model::{BotKey, BotTokenRow, PersonRow, PersonState};
use super::super::now_ms;
use super::super::seal::{Binding, Sealer};
use super::{people, read};
use crate::names::{GatewayName, Login, ProfileName, Uid};
use crate::secret::{ApiServerKey, TokenDigest};

pub(crate) fn adopt(
    tx: &Transaction<'_>,
    sealer: &Sealer,
    login: &Login,
    gateway: &GatewayName,
    key: &ApiServerKey,
) -> Result<(PersonRow, BotKey), StoreError> {
    let mut person = people::require(tx, login)?;
    if person.state == PersonState::Deleting {
        return Err(StoreError::WrongState(person.state));
    }
    if person.profile.is_some() {
        return Err(StoreError::BotExists);
    }
    let bot = attach(tx, sealer, &mut person, gateway, key)?;
    Ok((person, bot))
}

/// Gives a person without a bot the profile that the login maps to, as an adopted one.
pub(super) fn attach(
    tx: &Transaction<'_>,
    sealer: &Sealer,
    person: &mut PersonRow,
    gateway: &GatewayName,
    key: &ApiServerKey,
) -> Result<BotKey, StoreError> {
    let profile = ProfileName::of(&person.login);
    tx.prepare_cached("UPDATE users SET bot_profile = ?2, gateway = ?3, adopted = 1 WHERE uid = ?1")?.execute([
        person.uid.as_str(),
        profile.as_str(),
        gateway.as_str(),
    ])?;
    person.profile = Some(profile.clone());
    person.gateway = Some(gateway.clone());
    person.adopted = true;
    seal(tx, sealer, person, profile, gateway.clone(), key, 1)
}

pub(crate) fn set_key(
    tx: &Transaction<'_>,
    sealer: &Sealer,
    login: &Login,
    key: &ApiServerKey,
) -> Result<BotKey, StoreError> {
    let person = people::require(tx, login)?;
    let (Some(profile), Some(gateway)) = (person.profile.clone(), person.gateway.clone()) else {
        return Err(StoreError::NoBot);
    };
    if profile != ProfileName::of(login) {
        return Err(StoreError::MalformedRow);
    }
    let last: Option<i64> = tx
        .query_row("SELECT generation FROM bot_keys WHERE profile = ?1", [profile.as_str()], |row| row.get(0))
        .optional()?;
    seal(tx, sealer, &person, profile, gateway, key, last.unwrap_or(0) + 1)
}

fn seal(
    tx: &Transaction<'_>,
    sealer: &Sealer,
    person: &PersonRow,
    profile: ProfileName,
    gateway: GatewayName,
    key: &ApiServerKey,
    generation: i64,
) -> Result<BotKey, StoreError> {
    let binding = Binding { uid: &person.uid, login: &person.login, profile: &profile, gateway: &gateway, generation };
    tx.prepare_cached(
        "INSERT INTO bot_keys (profile, gateway, sealed, generation) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (profile) DO UPDATE
         SET gateway = excluded.gateway, sealed = excluded.sealed, generation = excluded.generation",
    )?
    .execute(params![profile.as_str(), gateway.as_str(), sealer.seal_key(key, binding), generation])?;
    let (uid, login) = (person.uid.clone(), person.login.clone());
    Ok(BotKey { uid, login, profile, gateway, key: key.clone(), generation })
}

pub(crate) fn issue_token(
    tx: &Transaction<'_>,
    uid: &Uid,
    digest: TokenDigest,
    keep_current: bool,
) -> Result<BotTokenRow, StoreError> {
    let person = people::find_uid(tx, uid)?.ok_or(StoreError::NoSuchPerson)?;
    if person.state != PersonState::Active {
        return Err(StoreError::WrongState(person.state));
    }
    if person.profile.is_none() {
        return Err(StoreError::NoBot);
    }
    let now = now_ms();
    tx.execute(
        "UPDATE bot_tokens SET revoked_at = ?2 WHERE uid = ?1 AND revoked_at IS NULL
         AND NOT (?3 AND id IS (SELECT bot_token_id FROM users WHERE uid = ?1))",
        params![uid.as_str(), now, keep_current],
    )?;
    let token = BotTokenRow {
        id: Uid::random(),
        uid: uid.clone(),
        digest,
        created_at: now,
        last_used_at: None,
        revoked_at: None,
    };
    tx.execute(
        "INSERT INTO bot_tokens (id, uid, digest, created_at) VALUES (?1, ?2, ?3, ?4)",
        params![token.id.as_str(), uid.as_str(), digest.as_bytes(), now],
    )?;
    tx.execute("UPDATE users SET bot_token_id = ?2 WHERE uid = ?1", [uid.as_str(), token.id.as_str()])?;
    Ok(token)
}

pub(crate) fn revoke_token(tx: &Transaction<'_>, id: &Uid) -> Result<BotTokenRow, StoreError> {
    tx.execute("UPDATE users SET bot_token_id = NULL WHERE bot_token_id = ?1", [id.as_str()])?;
    tx.execute(
        "UPDATE bot_tokens SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL",
        params![id.as_str(), now_ms()],
    )?;
    let sql = format!("SELECT {} FROM bot_tokens WHERE id = ?1", read::BOT_TOKEN);
    read::one(tx, &sql, [id.as_str()], read::bot_token)?.ok_or(StoreError::NoSuchToken)
}

/// Revokes one person's bot tokens or everybody's; the caller clears what points at them.
pub(super) fn revoke_all(tx: &Transaction<'_>, uid: Option<&Uid>) -> Result<usize, StoreError> {
    Ok(tx.execute(
        "UPDATE bot_tokens SET revoked_at = ?2 WHERE (?1 IS NULL OR uid = ?1) AND revoked_at IS NULL",
        params![uid.map(|uid| uid.as_str()), now_ms()],
    )?)
}

pub(crate) fn valid_tokens(tx: &Transaction<'_>, uid: &Uid) -> Result<Vec<BotTokenRow>, StoreError> {
    let sql = format!(
        "SELECT {} FROM bot_tokens WHERE uid = ?1 AND revoked_at IS NULL
         ORDER BY id IS (SELECT bot_token_id FROM users WHERE uid = ?1) DESC, created_at DESC",
        read::BOT_TOKEN
    );
    read::all(tx, &sql, [uid.as_str()], read::bot_token)
}

pub(crate) fn flush_tokens(tx: &Transaction<'_>, used: &[(Uid, i64)]) -> Result<(), StoreError> {
    let mut update = tx.prepare_cached(
        "UPDATE bot_tokens SET last_used_at = max(coalesce(last_used_at, 0), ?2) WHERE id = ?1 AND revoked_at IS NULL",
    )?;
    for (id, at) in used {
        update.execute(params![id.as_str(), at])?;
    }
    Ok(())
}
