//! `session …` and `token …`: the credentials that people and their SDKs present.

use std::io::{BufRead, Write};
use std::time::Duration;

use super::args::{RevokeArgs, SessionCommand, TokenCommand};
use super::client::{Admin, with_admin};
use super::out::{Failure, Out, or_dash, table, time, written};
use crate::admin::wire::{
    CreateSessions, Issued, Kind, ListSessions, RefusedLogin, Revoke, Revoked, SessionInfo, SessionPage,
};
use crate::config::Config;
use crate::lifecycle::ISSUE_MAX;
use crate::names::Login;

/// Most logins on standard input.
const LOGINS_MAX: usize = 1_000_000;
/// Logins that nothing was issued for and that are told one by one.
const REFUSED_TOLD: usize = 100;

pub(super) fn run(command: SessionCommand, config: &Config, out: Out) -> Result<(), Failure> {
    match command {
        SessionCommand::Create { login: Some(login), ttl, count, .. } => {
            with_admin(config, |admin| create(admin, &[login], ttl, count, None, false, out))
        }
        SessionCommand::Create { login: None, ttl, count, .. } => {
            let logins = logins_on_stdin()?;
            with_admin(config, |admin| create(admin, &logins, ttl, count, None, true, out))
        }
        SessionCommand::List { login } => list(Kind::Session, login, config, out),
        SessionCommand::Revoke(args) => revoke(Kind::Session, args, config, out),
    }
}

fn create_token(login: &Login, label: String, ttl: Duration, config: &Config, out: Out) -> Result<(), Failure> {
    with_admin(config, |admin| create(admin, std::slice::from_ref(login), ttl, 1, Some(label), false, out))
}

pub(super) fn run_token(command: TokenCommand, config: &Config, out: Out) -> Result<(), Failure> {
    match command {
        TokenCommand::Create { login, label, ttl } => create_token(&login, label, ttl, config, out),
        TokenCommand::List { login } => list(Kind::Personal, login, config, out),
        TokenCommand::Revoke(args) => revoke(Kind::Personal, args, config, out),
    }
}

fn logins_on_stdin() -> Result<Vec<Login>, Failure> {
    let mut logins = Vec::new();
    for (at, line) in std::io::stdin().lock().lines().enumerate() {
        let line = line.map_err(|error| Failure::new(format!("standard input: {error}")))?;
        if line.is_empty() {
            continue;
        }
        let login = Login::parse(&line)
            .map_err(|error| Failure::new(format!("line {}: the login {error}; nothing was issued", at + 1)))?;
        if logins.len() == LOGINS_MAX {
            return Err(Failure::new(format!("more than {LOGINS_MAX} logins; nothing was issued")));
        }
        logins.push(login);
    }
    Ok(logins)
}

/// Issues in calls of bounded size and prints each call's tokens before the next.
fn create(
    admin: &Admin,
    logins: &[Login],
    ttl: Duration,
    count: u32,
    label: Option<String>,
    with_login: bool,
    out: Out,
) -> Result<(), Failure> {
    let ttl_ms = i64::try_from(ttl.as_millis()).map_err(Failure::new)?;
    let at_once = (ISSUE_MAX / usize::try_from(count).unwrap_or(ISSUE_MAX).max(1)).max(1);
    let mut refused: Vec<RefusedLogin> = Vec::new();
    for logins in logins.chunks(at_once) {
        let asked = CreateSessions { logins: logins.to_vec(), count, ttl_ms, label: label.clone() };
        let issued: Issued = admin.call("/session/create", &asked)?;
        print(&issued, with_login, out)?;
        refused.extend(issued.refused);
    }
    if refused.is_empty() {
        return Ok(());
    }
    let more = refused.len().saturating_sub(REFUSED_TOLD);
    let lines = refused.iter().take(REFUSED_TOLD).map(|r| format!("{}: {}", r.login, r.message));
    let mut message = lines.collect::<Vec<_>>().join("\n  ");
    if more > 0 {
        message.push_str(&format!("\n  and {more} more"));
    }
    Err(Failure::with_next(message, "see who is known and active: botgate user list"))
}

fn print(issued: &Issued, with_login: bool, out: Out) -> Result<(), Failure> {
    let mut to = std::io::BufWriter::new(std::io::stdout().lock());
    for one in &issued.tokens {
        let line = match (out.is_json(), with_login) {
            (true, _) => serde_json::to_string(one).map_err(Failure::new)?,
            (false, true) => format!("{}\t{}", one.login, one.token),
            (false, false) => one.token.clone(),
        };
        written(writeln!(to, "{line}"))?;
    }
    written(to.flush())
}

fn list(kind: Kind, login: Option<Login>, config: &Config, out: Out) -> Result<(), Failure> {
    let sessions = with_admin(config, |admin| {
        let mut all: Vec<SessionInfo> = Vec::new();
        loop {
            let after = all.last().map(|session| session.id.clone());
            let page: SessionPage = admin.call("/session/list", &ListSessions { kind, login: login.clone(), after })?;
            let more = page.more && !page.sessions.is_empty();
            all.extend(page.sessions);
            if !more {
                return Ok(all);
            }
        }
    })?;
    out.show(&sessions, || match kind {
        Kind::Session => {
            let row = |s: &SessionInfo| {
                [
                    s.id.to_string(),
                    s.login.to_string(),
                    time(s.created_at),
                    time(s.expires_at),
                    or_dash(s.last_used_at.map(time)),
                ]
            };
            let rows: Vec<_> = sessions.iter().map(row).collect();
            table(["ID", "LOGIN", "ISSUED", "EXPIRES", "USED"], &rows, "no live sessions")
        }
        Kind::Personal => {
            let row = |s: &SessionInfo| {
                let label = or_dash(s.label.as_ref());
                [
                    s.id.to_string(),
                    s.login.to_string(),
                    time(s.created_at),
                    time(s.expires_at),
                    or_dash(s.last_used_at.map(time)),
                    label,
                ]
            };
            let rows: Vec<_> = sessions.iter().map(row).collect();
            table(["ID", "LOGIN", "ISSUED", "EXPIRES", "USED", "LABEL"], &rows, "no live personal tokens")
        }
    })
}

fn revoke(kind: Kind, args: RevokeArgs, config: &Config, out: Out) -> Result<(), Failure> {
    let asked = Revoke { kind, ids: args.ids, login: args.login };
    let done: Revoked = with_admin(config, |admin| admin.call("/session/revoke", &asked))?;
    out.show(&done, || format!("{} revoked", done.revoked))?;
    if done.unknown.is_empty() {
        return Ok(());
    }
    let unknown: Vec<String> = done.unknown.iter().map(ToString::to_string).collect();
    let word = if kind == Kind::Session { "session" } else { "token" };
    Err(Failure::with_next(format!("unknown: {}", unknown.join(" ")), format!("ids are those of: botgate {word} list")))
}
