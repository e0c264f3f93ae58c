//! `user …` and `lockdown`: who may sign in.

use std::fs::File;
use std::io;
use std::path::Path;

use super::args::UserCommand;
use super::client::with_admin;
use super::out::{Failure, Out, or_dash, table, time};
use crate::admin::wire::{AddPerson, ByLogin, Deleted, Empty, Imported, LockedDown, MaybeLogin, PersonInfo};
use crate::config::Config;
use crate::lifecycle::quoted;
use crate::names::{GatewayName, Login};

pub(super) fn run(command: UserCommand, config: &Config, out: Out) -> Result<(), Failure> {
    match command {
        UserCommand::Add { login, role } => {
            let asked = AddPerson { login, role };
            let person: PersonInfo = with_admin(config, |admin| admin.call("/user/add", &asked))?;
            let next = quoted(&person.login);
            out.show(&person, || {
                format!("{}: added\n  next: botgate bot adopt --api-server-key-stdin {next}", person.login)
            })
        }
        UserCommand::Import { file, gateway } => import(&file, gateway.as_ref(), config, out),
        UserCommand::List => {
            let people: Vec<PersonInfo> = with_admin(config, |admin| admin.call("/user/list", &Empty {}))?;
            let row = |p: &PersonInfo| {
                let (gateway, profile) = (or_dash(p.gateway.as_ref()), or_dash(p.profile.as_ref()));
                [p.login.to_string(), p.role.to_string(), p.state.clone(), gateway, profile, time(p.created_at)]
            };
            out.show(&people, || {
                let rows: Vec<_> = people.iter().map(row).collect();
                table(["LOGIN", "ROLE", "STATE", "GATEWAY", "PROFILE", "SINCE"], &rows, "no people")
            })
        }
        UserCommand::Disable { login } => state("/user/disable", "disabled", login, config, out),
        UserCommand::Enable { login } => state("/user/enable", "enabled", login, config, out),
        UserCommand::Delete { login } => delete(login, config, out),
        // Told by the caller: not in this version.
        UserCommand::Passwd(_) => Ok(()),
    }
}

fn state(path: &str, done: &str, login: Login, config: &Config, out: Out) -> Result<(), Failure> {
    let person: PersonInfo = with_admin(config, |admin| admin.call(path, &ByLogin { login }))?;
    out.show(&person, || format!("{}: {done}", person.login))
}

fn import(file: &Path, gateway: Option<&GatewayName>, config: &Config, out: Out) -> Result<(), Failure> {
    let path = match gateway {
        // A gateway's name needs no escaping in a query.
        Some(name) => format!("/user/import?gateway={name}"),
        None => "/user/import".to_owned(),
    };
    let imported: Imported = with_admin(config, |admin| {
        if file == Path::new("-") {
            return admin.upload(&path, io::stdin());
        }
        let lines = open(file).map_err(|error| Failure::new(format!("{}: {error}", file.display())))?;
        admin.upload(&path, lines)
    })?;
    out.show(&imported, || {
        format!("{} added, {} with a bot; {} refused", imported.added, imported.bots, imported.refused)
    })?;
    if imported.refused == 0 {
        return Ok(());
    }
    let mut message = format!("{} of the lines changed nothing", imported.refused);
    for problem in &imported.problems {
        message.push_str(&format!("\n  line {}: {}", problem.line, problem.message));
    }
    let more = imported.refused - imported.problems.len();
    if more > 0 {
        message.push_str(&format!("\n  and {more} more"));
    }
    Err(Failure::with_next(message, "mend those lines and import them again; the others are in"))
}

/// A directory can be opened like a file, and fails only where nobody would look for the reason.
fn open(file: &Path) -> io::Result<File> {
    let lines = File::open(file)?;
    if lines.metadata()?.is_dir() { Err(io::ErrorKind::IsADirectory.into()) } else { Ok(lines) }
}

fn delete(login: Login, config: &Config, out: Out) -> Result<(), Failure> {
    let deleted: Deleted = with_admin(config, |admin| admin.call("/user/delete", &ByLogin { login }))?;
    if deleted.finished {
        return out.show(&deleted, || format!("{}: deleted", deleted.login));
    }
    if out.is_json() {
        out.show(&deleted, String::new)?;
    }
    Err(unfinished(&deleted))
}

/// Why a deletion is not finished, and what to do.
pub(super) fn unfinished(deleted: &Deleted) -> Failure {
    let said = deleted.message.as_deref().unwrap_or("not finished");
    let Deleted { login, profile: Some(profile), gateway: Some(gateway), .. } = deleted else {
        return Failure::with_next(format!("{}: {said}", deleted.login), "botgate reconcile --apply");
    };
    Failure::with_next(
        format!("{login}: cut off; profile {profile} at gateway {gateway} is not gone for certain: {said}"),
        format!("delete it there (hermes profile delete {profile} -y), then: botgate reconcile --apply"),
    )
}

pub(super) fn lockdown(login: Option<Login>, config: &Config, out: Out) -> Result<(), Failure> {
    let done: LockedDown = with_admin(config, |admin| admin.call("/lockdown", &MaybeLogin { login }))?;
    out.show(&done, || {
        let mut text =
            format!("people refused and cut off: {}; sessions and tokens revoked: {}\n", done.people, done.sessions);
        if !done.keys.is_empty() {
            text.push_str(
                "\nAn agent may know these keys. Change API_SERVER_KEY in each profile's .env, then for each:\n",
            );
            text.push_str("botgate bot adopt LOGIN --api-server-key-stdin, and botgate user enable LOGIN\n\n");
            let rows: Vec<_> = (done.keys.iter())
                .map(|key| [key.login.to_string(), key.profile.to_string(), key.gateway.to_string()])
                .collect();
            text.push_str(&table(["LOGIN", "PROFILE", "GATEWAY"], &rows, ""));
        }
        text
    })
}
