//! Loading: the whole state at start, each unusable row turned into a problem of its own person.

use std::collections::HashMap;

use rusqlite::{Row, Transaction};

use super::super::error::StoreError;
use super::super::model::{BotKey, Loaded, PersonRow, RowFault, RowProblem};
use super::super::now_ms;
use super::super::seal::{Binding, Sealer};
use super::read;
use crate::names::{GatewayName, Login, ProfileName};

/// A row of `bot_keys` before it is opened.
struct SealedKey {
    gateway: Option<GatewayName>,
    sealed: Vec<u8>,
    generation: i64,
}

pub(crate) fn load(tx: &Transaction<'_>, sealer: &Sealer) -> Result<Loaded, StoreError> {
    let mut problems = Vec::new();
    let now = now_ms();
    let people = rows(tx, "users", &format!("SELECT {} FROM users ORDER BY login", read::PERSON), 1, read::person)?;
    let people = keep(people, &mut problems);
    let bots = bots(tx, sealer, &people, &mut problems)?;
    // Of people who are not active nothing is loaded that could let them in.
    let active = "EXISTS (SELECT 1 FROM users WHERE users.uid = t.uid AND state = 'active')";
    let sql = format!(
        "SELECT {} FROM sessions AS t WHERE revoked_at IS NULL AND expires_at > {now}
         AND coalesce(idle_expires_at, {now} + 1) > {now} AND {active}",
        read::SESSION
    );
    let sessions = keep(rows(tx, "sessions", &sql, usize::MAX, read::session)?, &mut problems);
    let sql = format!("SELECT {} FROM bot_tokens AS t WHERE revoked_at IS NULL AND {active}", read::BOT_TOKEN);
    let bot_tokens = keep(rows(tx, "bot_tokens", &sql, usize::MAX, read::bot_token)?, &mut problems);
    let runs = rows(tx, "open_runs", &format!("SELECT {} FROM open_runs", read::RUN), usize::MAX, read::run)?;
    let runs = keep(runs, &mut problems);
    Ok(Loaded { people, bots, sessions, bot_tokens, runs, problems })
}

/// The rows of a table, readable or not. `login_at` is the login's column, where there is one.
fn rows<T>(
    tx: &Transaction<'_>,
    table: &'static str,
    sql: &str,
    login_at: usize,
    parse: fn(&Row<'_>) -> Option<T>,
) -> Result<Vec<Result<T, RowProblem>>, StoreError> {
    let mut statement = tx.prepare(sql)?;
    let mut rows = statement.query([])?;
    let mut out = Vec::new();
    while let Some(row) = rows.next()? {
        out.push(parse(row).ok_or_else(|| RowProblem {
            table,
            login: read::name(row, login_at, Login::parse),
            fault: RowFault::Malformed,
        }));
    }
    Ok(out)
}

fn keep<T>(rows: Vec<Result<T, RowProblem>>, problems: &mut Vec<RowProblem>) -> Vec<T> {
    rows.into_iter().filter_map(|row| row.map_err(|problem| problems.push(problem)).ok()).collect()
}

fn bots(
    tx: &Transaction<'_>,
    sealer: &Sealer,
    people: &[PersonRow],
    problems: &mut Vec<RowProblem>,
) -> Result<Vec<BotKey>, StoreError> {
    let mut sealed: HashMap<Vec<u8>, SealedKey> = HashMap::new();
    let mut statement = tx.prepare("SELECT profile, gateway, sealed, generation FROM bot_keys")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        // A column that cannot be read makes a key that does not open, and so a problem of its person alone.
        let key = SealedKey {
            gateway: read::name(row, 1, GatewayName::parse),
            sealed: row.get(2).unwrap_or_default(),
            generation: row.get(3).unwrap_or_default(),
        };
        sealed.insert(row.get_ref(0)?.as_bytes().map(<[u8]>::to_vec).unwrap_or_default(), key);
    }
    let mut bots = Vec::new();
    for person in people {
        let (Some(profile), Some(gateway)) = (&person.profile, &person.gateway) else { continue };
        match open(sealer, person, profile, gateway, sealed.remove(profile.as_str().as_bytes())) {
            Ok(bot) => bots.push(bot),
            Err(fault) => {
                problems.push(RowProblem { table: "bot_keys", login: Some(person.login.clone()), fault });
            }
        }
    }
    // What is left belongs to nobody, or to somebody whose own row cannot be read.
    problems.extend(sealed.iter().map(|_| RowProblem { table: "bot_keys", login: None, fault: RowFault::NoOwner }));
    Ok(bots)
}

fn open(
    sealer: &Sealer,
    person: &PersonRow,
    profile: &ProfileName,
    gateway: &GatewayName,
    row: Option<SealedKey>,
) -> Result<BotKey, RowFault> {
    if *profile != ProfileName::of(&person.login) {
        return Err(RowFault::WrongProfile);
    }
    let row = row.ok_or(RowFault::KeyMissing)?;
    if row.gateway.as_ref() != Some(gateway) {
        return Err(RowFault::GatewayDiffers);
    }
    let generation = row.generation;
    let binding = Binding { uid: &person.uid, login: &person.login, profile, gateway, generation };
    let key = sealer.open_key(&row.sealed, binding).ok_or(RowFault::NotOpened)?;
    let (uid, login) = (person.uid.clone(), person.login.clone());
    Ok(BotKey { uid, login, profile: profile.clone(), gateway: gateway.clone(), key, generation })
}
