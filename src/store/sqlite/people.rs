//! SQL about people.

use rusqlite::{Transaction, params};

use super::super::error::StoreError;
use super::super::model::{Deleting, ImportLine, ImportOutcome, LockedDown, NewPerson, PersonRow, PersonState};
use super::super::now_ms;
use super::super::seal::Sealer;
use super::{bots, read, sessions};
use crate::names::{Login, Uid};

pub(crate) fn find(tx: &Transaction<'_>, login: &Login) -> Result<Option<PersonRow>, StoreError> {
    let sql = format!("SELECT {} FROM users WHERE login = ?1", read::PERSON);
    read::one(tx, &sql, [login.as_str()], read::person)
}

pub(super) fn find_uid(tx: &Transaction<'_>, uid: &Uid) -> Result<Option<PersonRow>, StoreError> {
    let sql = format!("SELECT {} FROM users WHERE uid = ?1", read::PERSON);
    read::one(tx, &sql, [uid.as_str()], read::person)
}

/// The person of a login, who must exist.
pub(super) fn require(tx: &Transaction<'_>, login: &Login) -> Result<PersonRow, StoreError> {
    find(tx, login)?.ok_or(StoreError::NoSuchPerson)
}

pub(crate) fn list(tx: &Transaction<'_>) -> Result<Vec<PersonRow>, StoreError> {
    read::all(tx, &format!("SELECT {} FROM users ORDER BY login", read::PERSON), [], read::person)
}

pub(crate) fn add(tx: &Transaction<'_>, new: &NewPerson) -> Result<PersonRow, StoreError> {
    match find(tx, &new.login)? {
        Some(taken) => Err(StoreError::LoginTaken { login: taken.login, state: taken.state }),
        None => insert(tx, new),
    }
}

fn insert(tx: &Transaction<'_>, new: &NewPerson) -> Result<PersonRow, StoreError> {
    let person = PersonRow {
        uid: Uid::random(),
        login: new.login.clone(),
        role: new.role.clone(),
        state: PersonState::Active,
        gateway: new.gateway.clone(),
        profile: None,
        adopted: false,
        created_at: now_ms(),
    };
    tx.prepare_cached(
        "INSERT INTO users (uid, login, role, state, gateway, created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![
        person.uid.as_str(),
        person.login.as_str(),
        person.role.as_str(),
        person.state.as_str(),
        person.gateway.as_ref().map(|gateway| gateway.as_str()),
        person.created_at
    ])?;
    Ok(person)
}

pub(crate) fn import(
    tx: &Transaction<'_>,
    sealer: &Sealer,
    lines: &[ImportLine],
) -> Result<Vec<ImportOutcome>, StoreError> {
    lines.iter().map(|line| import_line(tx, sealer, line)).collect()
}

fn import_line(tx: &Transaction<'_>, sealer: &Sealer, line: &ImportLine) -> Result<ImportOutcome, StoreError> {
    if let Some(taken) = find(tx, &line.login)? {
        return Ok(ImportOutcome::Exists(taken));
    }
    let new = NewPerson { login: line.login.clone(), role: line.role.clone(), gateway: Some(line.gateway.clone()) };
    let mut person = insert(tx, &new)?;
    let bot = match &line.key {
        None => None,
        Some(key) => Some(bots::attach(tx, sealer, &mut person, &line.gateway, key)?),
    };
    Ok(ImportOutcome::Added { person, bot })
}

pub(crate) fn set_state(tx: &Transaction<'_>, login: &Login, state: PersonState) -> Result<PersonRow, StoreError> {
    let mut person = require(tx, login)?;
    if person.state == PersonState::Deleting || state == PersonState::Deleting {
        return Err(StoreError::WrongState(person.state));
    }
    tx.execute("UPDATE users SET state = ?2 WHERE uid = ?1", [person.uid.as_str(), state.as_str()])?;
    person.state = state;
    Ok(person)
}

pub(crate) fn delete(tx: &Transaction<'_>, login: &Login) -> Result<Deleting, StoreError> {
    let mut person = require(tx, login)?;
    tx.execute("UPDATE users SET state = 'deleting', bot_token_id = NULL WHERE uid = ?1", [person.uid.as_str()])?;
    person.state = PersonState::Deleting;
    let sessions = sessions::revoke_all(tx, Some(&person.uid))?;
    let bot_tokens = bots::revoke_all(tx, Some(&person.uid))?;
    Ok(Deleting { person, sessions, bot_tokens })
}

pub(crate) fn finish_delete(tx: &Transaction<'_>, uid: &Uid) -> Result<(), StoreError> {
    let person = find_uid(tx, uid)?.ok_or(StoreError::NoSuchPerson)?;
    if person.state != PersonState::Deleting {
        return Err(StoreError::WrongState(person.state));
    }
    for sql in [
        "DELETE FROM sessions WHERE uid = ?1",
        "DELETE FROM open_runs WHERE uid = ?1",
        "DELETE FROM bot_tokens WHERE uid = ?1",
        "DELETE FROM bot_keys WHERE profile = (SELECT bot_profile FROM users WHERE uid = ?1)",
        "DELETE FROM users WHERE uid = ?1",
    ] {
        tx.execute(sql, [uid.as_str()])?;
    }
    Ok(())
}

pub(crate) fn lockdown(tx: &Transaction<'_>, login: Option<&Login>) -> Result<LockedDown, StoreError> {
    // Whole tables, not the rows that can be read: a row that this version cannot read is locked too.
    let one = login.map(|login| require(tx, login)).transpose()?.map(|person| person.uid);
    tx.execute(
        "UPDATE users SET state = CASE state WHEN 'active' THEN 'disabled' ELSE state END, bot_token_id = NULL
         WHERE ?1 IS NULL OR uid = ?1",
        [one.as_ref().map(|uid| uid.as_str())],
    )?;
    let sessions = sessions::revoke_all(tx, one.as_ref())?;
    let bot_tokens = bots::revoke_all(tx, one.as_ref())?;
    let people = match &one {
        Some(uid) => find_uid(tx, uid)?.into_iter().collect(),
        None => list(tx)?,
    };
    Ok(LockedDown { people, sessions, bot_tokens })
}
