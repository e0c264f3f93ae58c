//! `bot …`: the profile that belongs to a person.

use std::io::Read;

use zeroize::Zeroizing;

use super::args::BotCommand;
use super::client::with_admin;
use super::out::{Failure, Out, table};
use crate::admin::wire::{Adopt, Adopted, BotInfo, ByLogin, Empty, IssuedToken, ProofInfo};
use crate::config::Config;
use crate::lifecycle::ControlError;
use crate::names::{GatewayName, Login};

/// Longest key on standard input, in bytes.
const KEY_MAX_BYTES: u64 = 8 * 1024;

pub(super) fn run(command: BotCommand, config: &Config, out: Out) -> Result<(), Failure> {
    match command {
        BotCommand::Adopt { login, gateway, .. } => adopt(login, gateway, config, out),
        BotCommand::List => list(config, out),
        BotCommand::Prove { login } => {
            let proof: ProofInfo = with_admin(config, |admin| admin.call("/bot/prove", &ByLogin { login }))?;
            told(&proof, &proof, out)
        }
        BotCommand::Token { login } => {
            let issued: IssuedToken = with_admin(config, |admin| admin.call("/bot/token", &ByLogin { login }))?;
            out.show(&issued, || issued.token.clone())
        }
        BotCommand::Create { .. } => needs_keeper("bot create"),
        BotCommand::Rotate { .. } => needs_keeper("bot rotate"),
        BotCommand::Delete { .. } => needs_keeper("bot delete"),
    }
}

fn needs_keeper(command: &'static str) -> Result<(), Failure> {
    let error = ControlError::NeedsKeeper(command);
    Err(Failure::with_next(&error, error.next().unwrap_or_default()))
}

fn adopt(login: Login, gateway: Option<GatewayName>, config: &Config, out: Out) -> Result<(), Failure> {
    let mut key = Zeroizing::new(String::new());
    let read = std::io::stdin().take(KEY_MAX_BYTES).read_to_string(&mut key);
    read.map_err(|error| Failure::new(format!("the key on standard input: {error}")))?;
    let asked = Adopt { login, gateway, api_server_key: key.trim().to_owned() };
    let (adopted, running): (Adopted, bool) =
        with_admin(config, |admin| Ok((admin.call("/bot/adopt", &asked)?, admin.is_running())))?;
    match &adopted.proof {
        Some(proof) => told(&adopted, proof, out),
        None => out.show(&adopted, || {
            let when = if running { "soon" } else { "when botgate serve starts" };
            format!("{}: registered at gateway {}; it is proved {when}", adopted.profile, adopted.gateway)
        }),
    }
}

/// What the proof says; a bot that is not proved is a failure.
fn told<T: serde::Serialize>(value: &T, proof: &ProofInfo, out: Out) -> Result<(), Failure> {
    if proof.proved {
        return out.show(value, || format!("{} at gateway {}: {}", proof.profile, proof.gateway, proof.message));
    }
    if out.is_json() {
        out.show(value, String::new)?;
    }
    let next = match proof.verdict.as_str() {
        "unreachable" => "start the gateway; botgate goes on trying",
        "unserved_profile" => "make the profile at the gateway; botgate goes on trying",
        "default_key_accepted" | "prefix_ignored" | "neighbour_key_accepted" | "no_key_accepted" => {
            "nothing is served from this gateway until it refuses: Hermes 0.20 or later binds keys to profiles"
        }
        _ => "give the key that stands in the profile's .env: botgate bot adopt LOGIN --api-server-key-stdin",
    };
    Err(Failure::with_next(format!("{} at gateway {}: {}", proof.profile, proof.gateway, proof.message), next))
}

fn list(config: &Config, out: Out) -> Result<(), Failure> {
    let bots: Vec<BotInfo> = with_admin(config, |admin| admin.call("/bot/list", &Empty {}))?;
    out.show(&bots, || {
        let rows: Vec<_> = (bots.iter())
            .map(|bot| [bot.login.to_string(), bot.profile.to_string(), bot.gateway.to_string(), bot.standing.clone()])
            .collect();
        table(["LOGIN", "PROFILE", "GATEWAY", "STANDING"], &rows, "no bots")
    })
}
