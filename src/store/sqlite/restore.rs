//! SQL about a restore: the backup's rows lose every right that the database in place does not confirm.
//!
//! The backup is `main`; the database that was there until then, if there is one, is attached as `present`.

use rusqlite::{Transaction, params};

use super::super::error::StoreError;
use super::super::now_ms;

/// What the backup lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Lost {
    pub(crate) people: usize,
    pub(crate) credentials: usize,
}

/// Confirms the backup's rows by the database in place. Who is not in it any more was deleted.
pub(crate) fn confirm(tx: &Transaction<'_>) -> Result<Lost, StoreError> {
    let now = now_ms();
    let deleted = "NOT EXISTS (SELECT 1 FROM present.users AS p
                   WHERE p.uid = main.users.uid AND p.login = main.users.login AND p.state <> 'deleting')";
    let disabled = "EXISTS (SELECT 1 FROM present.users AS p WHERE p.uid = main.users.uid AND p.state = 'disabled')";
    let mut people = tx.execute(
        &format!(
            "UPDATE main.users SET state = 'deleting', bot_token_id = NULL WHERE state <> 'deleting' AND {deleted}"
        ),
        [],
    )?;
    people +=
        tx.execute(&format!("UPDATE main.users SET state = 'disabled' WHERE state = 'active' AND {disabled}"), [])?;
    let mut credentials = 0;
    for table in ["sessions", "bot_tokens"] {
        credentials += tx.execute(
            &format!(
                "UPDATE main.{table} SET revoked_at = ?1 WHERE revoked_at IS NULL AND NOT (
                   EXISTS (SELECT 1 FROM present.{table} AS p WHERE p.id = main.{table}.id
                           AND p.digest = main.{table}.digest AND p.uid = main.{table}.uid AND p.revoked_at IS NULL)
                   AND EXISTS (SELECT 1 FROM main.users AS u WHERE u.uid = main.{table}.uid AND u.state <> 'deleting'))"
            ),
            [now],
        )?;
    }
    drop_revoked_tokens(tx)?;
    // The key that the gateway knows is the newer one.
    tx.execute(
        "UPDATE main.bot_keys SET sealed = p.sealed, generation = p.generation
         FROM present.bot_keys AS p JOIN present.users AS was ON was.bot_profile = p.profile AND was.gateway = p.gateway
         JOIN main.users AS u ON u.uid = was.uid AND u.login = was.login AND u.bot_profile = was.bot_profile
         WHERE main.bot_keys.profile = p.profile AND main.bot_keys.gateway = p.gateway
         AND p.generation > main.bot_keys.generation",
        [],
    )?;
    tx.execute("DELETE FROM main.open_runs", [])?;
    tx.execute(
        "INSERT INTO main.open_runs (run_id, uid, session_id, profile, gateway, started_at)
         SELECT run_id, uid, session_id, profile, gateway, started_at FROM present.open_runs
         WHERE uid IN (SELECT uid FROM main.users)",
        [],
    )?;
    // The audit log went on under keys that the backup may not know.
    tx.execute(
        "INSERT INTO main.meta (name, value) SELECT name, value FROM present.meta WHERE name = ?1
         ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        [super::reseal::AUDIT_KEYS],
    )?;
    Ok(Lost { people, credentials })
}

/// Nothing confirms the backup: no credential counts, and nobody comes in unless the operator vouches for the people.
pub(crate) fn distrust(tx: &Transaction<'_>, trust_people: bool) -> Result<Lost, StoreError> {
    let now = now_ms();
    let people = match trust_people {
        true => 0,
        false => tx.execute("UPDATE users SET state = 'disabled' WHERE state = 'active'", [])?,
    };
    let mut credentials = 0;
    for table in ["sessions", "bot_tokens"] {
        let sql = format!("UPDATE {table} SET revoked_at = ?1 WHERE revoked_at IS NULL");
        credentials += tx.execute(&sql, [now])?;
    }
    drop_revoked_tokens(tx)?;
    Ok(Lost { people, credentials })
}

fn drop_revoked_tokens(tx: &Transaction<'_>) -> Result<(), StoreError> {
    tx.execute(
        "UPDATE main.users SET bot_token_id = NULL
         WHERE bot_token_id IN (SELECT id FROM main.bot_tokens WHERE revoked_at IS NOT NULL)",
        [],
    )?;
    Ok(())
}

/// People, and sessions and personal tokens that count.
pub(crate) fn counts(tx: &Transaction<'_>) -> Result<(usize, usize), StoreError> {
    let people: i64 = tx.query_row("SELECT count(*) FROM main.users", [], |row| row.get(0))?;
    let sessions: i64 = tx.query_row(
        "SELECT count(*) FROM main.sessions AS s JOIN main.users AS u ON u.uid = s.uid
         WHERE s.revoked_at IS NULL AND s.expires_at > ?1 AND u.state = 'active'",
        params![now_ms()],
        |row| row.get(0),
    )?;
    Ok((usize::try_from(people).unwrap_or(0), usize::try_from(sessions).unwrap_or(0)))
}
