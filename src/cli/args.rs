//! What can be typed: names and flags only. What they do is in the file of each family.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::config::parse_duration;
use crate::names::{GatewayName, Login, Role, Uid};

/// Longest life of a session or token that can be asked for.
const TTL_MAX: Duration = Duration::from_secs(3650 * 86_400);
/// Most sessions that one call makes for a login.
const COUNT_MAX: i64 = 10_000;

/// The authenticating edge in front of a Hermes gateway: one person, one bot.
#[derive(Debug, Parser)]
#[command(name = "botgate", version, arg_required_else_help = true, max_term_width = 100)]
pub(super) struct Cli {
    /// Configuration file.
    #[arg(long, global = true, env = "BOTGATE_CONFIG", value_name = "F", default_value = "botgate.toml")]
    pub(super) config: PathBuf,
    /// Print JSON in place of text.
    #[arg(long, global = true)]
    pub(super) json: bool,
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Write a configuration file, a data directory and a master key.
    Init {
        /// Directory to write into; made when missing.
        #[arg(long, value_name = "D", default_value = ".")]
        dir: PathBuf,
    },
    /// Run the edge.
    Serve,
    /// Run beside the gateway, as its user.
    #[command(hide = true)]
    Keep(Anything),
    /// Validate the configuration file and print every error.
    Check,
    /// Try botgate out: a throw-away gateway with two people, alice and bob.
    Quickstart(super::quickstart::QuickstartArgs),
    /// Run a small stand-in for a gateway, for trying out, tests and benches.
    StandIn(super::stand_in::StandInArgs),
    /// People: who may sign in.
    #[command(subcommand)]
    User(UserCommand),
    /// Bots: the profile that belongs to a person.
    #[command(subcommand)]
    Bot(BotCommand),
    /// Sessions: signed-in credentials.
    #[command(subcommand)]
    Session(SessionCommand),
    /// Personal tokens: long-lived credentials for SDKs.
    #[command(subcommand)]
    Token(TokenCommand),
    /// Refuse and cut off one person, or everybody, at once.
    Lockdown {
        /// The person; everybody when left out.
        #[arg(value_parser = login)]
        login: Option<Login>,
    },
    /// Compare people and profiles, and tell what is left to do.
    Reconcile {
        /// Do it.
        #[arg(long)]
        apply: bool,
    },
    /// Check that everything is as it must be, and say what is not.
    Doctor {
        /// Check the facts about the gateway that botgate relies on.
        #[arg(long)]
        gateway_contract: bool,
        #[arg(long, hide = true)]
        canary: bool,
    },
    /// Read, follow or verify the audit log.
    Audit(AuditArgs),
    /// Attack your own deployment with two sessions of yours, and report what it let through.
    Attack(super::attack::AttackArgs),
    #[command(hide = true)]
    Explain(Anything),
    #[command(hide = true)]
    Gc(Anything),
    /// Copy the database to a new file, also while serving.
    Backup {
        /// The file, or a directory to make one in.
        path: PathBuf,
        /// Copy the master key beside it: both together open every bot's key.
        #[arg(long)]
        with_master_key: bool,
    },
    /// Put a backup in the database's place; what was revoked since stays revoked.
    Restore(RestoreArgs),
    /// The master key, under which bots' keys are sealed.
    #[command(subcommand)]
    Key(KeyCommand),
}

#[derive(Debug, Args)]
pub(super) struct RestoreArgs {
    /// The backup.
    pub(super) file: PathBuf,
    /// File with the master key that it was sealed with, when that is not the present one.
    #[arg(long, value_name = "FILE")]
    pub(super) master_key: Option<PathBuf>,
    /// Where no database tells who was disabled or deleted since, let people in as the backup has them.
    #[arg(long)]
    pub(super) trust_people: bool,
}

#[derive(Debug, Subcommand)]
pub(super) enum KeyCommand {
    /// Seal everything under a new master key; botgate must not be serving.
    Rotate {
        /// File with the new key, 64 hex digits; a fresh one is made when left out.
        #[arg(long, value_name = "FILE")]
        new_key: Option<PathBuf>,
    },
}

/// Arguments of a reserved command.
#[derive(Debug, Args)]
pub(super) struct Anything {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _rest: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub(super) enum UserCommand {
    /// Make a person known.
    Add {
        /// The person's name.
        #[arg(value_parser = login)]
        login: Login,
        /// Role towards the MCP server.
        #[arg(long, default_value = "member", value_parser = role)]
        role: Role,
    },
    /// Add many people, with or without their bots, from JSON lines: login, role, api_server_key.
    Import {
        /// The file; - for standard input.
        file: PathBuf,
        /// The gateway that serves their bots, when more than one is configured.
        #[arg(long, value_parser = gateway)]
        gateway: Option<GatewayName>,
    },
    /// List people.
    List,
    /// Refuse a person and cut what they run; their sessions count again once enabled.
    Disable {
        /// The person.
        #[arg(value_parser = login)]
        login: Login,
    },
    /// Let a disabled person back in.
    Enable {
        /// The person.
        #[arg(value_parser = login)]
        login: Login,
    },
    /// Cut a person off for good and delete their bot.
    Delete {
        /// The person.
        #[arg(value_parser = login)]
        login: Login,
    },
    #[command(hide = true)]
    Passwd(Anything),
}

#[derive(Debug, Subcommand)]
pub(super) enum BotCommand {
    /// Make a profile and give it to a person (needs a keeper).
    Create {
        /// The person.
        #[arg(value_parser = login)]
        login: Login,
    },
    /// Register a profile that exists at the gateway as the person's bot.
    Adopt {
        /// The person.
        #[arg(value_parser = login)]
        login: Login,
        /// Read the profile's API_SERVER_KEY from standard input.
        #[arg(long, required = true)]
        api_server_key_stdin: bool,
        /// The gateway that serves it, when more than one is configured.
        #[arg(long, value_parser = gateway)]
        gateway: Option<GatewayName>,
    },
    /// Change a bot's API_SERVER_KEY (needs a keeper).
    Rotate {
        /// The person.
        #[arg(value_parser = login)]
        login: Login,
    },
    /// Delete a bot and keep its person (needs a keeper).
    Delete {
        /// The person.
        #[arg(value_parser = login)]
        login: Login,
    },
    /// List bots and what the proof says about each.
    List,
    /// Prove at the gateway that the bot's key opens its path and no other key does.
    Prove {
        /// The person.
        #[arg(value_parser = login)]
        login: Login,
    },
    /// Issue the bot's MCP token and print it once; the one before it ends.
    Token {
        /// The person.
        #[arg(value_parser = login)]
        login: Login,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum SessionCommand {
    /// Issue sessions and print their tokens once.
    Create {
        /// The person.
        #[arg(value_parser = login, required_unless_present = "stdin", conflicts_with = "stdin")]
        login: Option<Login>,
        /// Read logins from standard input, one a line; prints login, tab, token.
        #[arg(long)]
        stdin: bool,
        /// How long they count.
        #[arg(long, default_value = "12h", value_parser = ttl)]
        ttl: Duration,
        /// How many for each login.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=COUNT_MAX))]
        count: u32,
    },
    /// List live sessions.
    List {
        /// Only this person's.
        #[arg(value_parser = login)]
        login: Option<Login>,
    },
    /// Revoke sessions; streams that they opened end at once.
    Revoke(RevokeArgs),
}

#[derive(Debug, Subcommand)]
pub(super) enum TokenCommand {
    /// Issue a personal token and print it once.
    Create {
        /// The person.
        #[arg(value_parser = login)]
        login: Login,
        /// What it is for, 1 to 100 characters.
        #[arg(long, value_parser = label)]
        label: String,
        /// How long it counts.
        #[arg(long, default_value = "90d", value_parser = ttl)]
        ttl: Duration,
    },
    /// List live personal tokens.
    List {
        /// Only this person's.
        #[arg(value_parser = login)]
        login: Option<Login>,
    },
    /// Revoke personal tokens; streams that they opened end at once.
    Revoke(RevokeArgs),
}

/// What to revoke: some by id, or all of one person.
#[derive(Debug, Args)]
pub(super) struct RevokeArgs {
    /// Their ids, as list shows them.
    #[arg(value_parser = uid, required_unless_present = "login", conflicts_with = "login", num_args = 1..=1000)]
    pub(super) ids: Vec<Uid>,
    /// All of this person's.
    #[arg(long, value_parser = login)]
    pub(super) login: Option<Login>,
}

#[derive(Debug, Args)]
pub(super) struct AuditArgs {
    /// Only records about this person.
    #[arg(long, value_parser = login)]
    pub(super) login: Option<Login>,
    /// Only records from then on: a time such as 2026-01-31T08:00:00Z, or an age such as 24h.
    #[arg(long, value_parser = since)]
    pub(super) since: Option<i64>,
    /// Go on with new records as they are written.
    #[arg(short, long)]
    pub(super) follow: bool,
    /// Verify the chain in place of printing it.
    #[arg(long, conflicts_with_all = ["login", "since", "follow"])]
    pub(super) verify: bool,
    /// The chain must reach this head, SEQ:HASH, as --verify printed it earlier.
    #[arg(long, requires = "verify", value_name = "H")]
    pub(super) head: Option<String>,
    #[arg(long, hide = true)]
    pub(super) export: bool,
}

fn login(text: &str) -> Result<Login, String> {
    Login::parse(text).map_err(|error| format!("a login {error}"))
}

fn role(text: &str) -> Result<Role, String> {
    Role::parse(text).map_err(|error| format!("a role {error}"))
}

fn gateway(text: &str) -> Result<GatewayName, String> {
    GatewayName::parse(text).map_err(|error| format!("a gateway's name {error}"))
}

fn uid(text: &str) -> Result<Uid, String> {
    Uid::parse(text).map_err(|error| format!("an id {error}"))
}

fn label(text: &str) -> Result<String, &'static str> {
    let fine = !text.trim().is_empty() && text.chars().count() <= 100 && !text.chars().any(char::is_control);
    if fine { Ok(text.to_owned()) } else { Err("give 1 to 100 characters without control characters") }
}

fn ttl(text: &str) -> Result<Duration, &'static str> {
    let allowed = "give a duration such as 30m, 12h or 90d, from 1s to 3650d";
    let ttl = parse_duration(text).ok_or(allowed)?;
    if ttl < Duration::from_secs(1) || ttl > TTL_MAX { Err(allowed) } else { Ok(ttl) }
}

fn since(text: &str) -> Result<i64, &'static str> {
    if let Some(age) = parse_duration(text) {
        let age = i64::try_from(age.as_millis()).map_err(|_| "give a shorter age")?;
        return Ok(jiff::Timestamp::now().as_millisecond().saturating_sub(age));
    }
    let time: jiff::Timestamp =
        text.parse().map_err(|_| "give a time such as 2026-01-31T08:00:00Z or an age such as 24h")?;
    Ok(time.as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn wrong_usage_is_told_by_clap() {
        for line in [
            "session create",
            "session create alice --stdin",
            "session create alice --ttl soon",
            "session create alice --count 0",
            "session revoke",
            "token create alice",
            "bot adopt alice",
            "user add",
            "audit --head 1:ab",
            "audit --verify --login alice",
            "lockdown alice bob",
        ] {
            let words = std::iter::once("botgate").chain(line.split(' '));
            assert!(Cli::try_parse_from(words).is_err(), "{line}");
        }
    }
}
