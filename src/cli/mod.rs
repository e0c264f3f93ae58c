//! The command line: arguments become calls on the admin API, answers become text or JSON.
//!
//! Invariants: a secret is printed alone on standard output and only when the command issues it; no secret is taken from
//! the arguments; the exit code is 0 for done, 1 for failed, 2 for wrong usage. This room changes nothing itself.

mod args;
pub mod attack;
mod audit;
mod backup;
mod bot;
mod check;
mod client;
mod contract;
mod doctor;
mod init;
mod key;
mod offline;
mod out;
pub mod quickstart;
mod reconcile;
pub mod serve;
mod session;
pub mod stand_in;
mod user;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use args::{Cli, Command, KeyCommand, UserCommand};
use out::{Failure, Out};

/// Longest wait for the last diagnostics to reach standard error.
const DIAGNOSTICS_WITHIN: Duration = Duration::from_secs(1);

/// Runs the command that was typed.
pub fn main() -> ExitCode {
    // clap tells wrong usage itself and exits 2; --help and --version exit 0.
    let cli = Cli::parse();
    crate::listener::tls::install_provider();
    let done = run(cli);
    crate::telemetry::trace::flush(DIAGNOSTICS_WITHIN);
    match done {
        Ok(code) => code,
        Err(failure) => failure.tell(),
    }
}

fn run(cli: Cli) -> Result<ExitCode, Failure> {
    let out = Out::new(cli.json);
    let load = || check::load(&cli.config);
    let done = match cli.command {
        Command::Quickstart(args) => return until_done("warn", quickstart::run(args)),
        Command::StandIn(args) => return until_done("info", stand_in::run(args)),
        Command::Init { dir } => init::run(&dir, out),
        Command::Check => check::run(&cli.config, out),
        Command::Serve => serve::run(load()?, &cli.config).map_err(|error| Failure::from_error(&error)),
        Command::User(UserCommand::Passwd(_)) => reserved("user passwd"),
        Command::User(command) => user::run(command, &load()?, out),
        Command::Bot(command) => bot::run(command, &load()?, out),
        Command::Session(command) => session::run(command, &load()?, out),
        Command::Token(command) => session::run_token(command, &load()?, out),
        Command::Lockdown { login } => user::lockdown(login, &load()?, out),
        Command::Reconcile { apply } => reconcile::run(apply, &load()?, out),
        Command::Doctor { canary: true, .. } => reserved("doctor --canary"),
        Command::Doctor { gateway_contract: true, .. } => contract::run(&load()?, out),
        Command::Doctor { .. } => doctor::run(&cli.config, out),
        Command::Audit(args) if args.export => reserved("audit --export"),
        Command::Audit(args) => audit::run(&args, &load()?, out),
        Command::Keep(_) => reserved("keep"),
        Command::Explain(_) => reserved("explain"),
        Command::Attack(args) => attack::run(&args, out),
        Command::Gc(_) => reserved("gc"),
        Command::Backup { path, with_master_key } => backup::run(&path, with_master_key, &load()?, out),
        Command::Restore(args) => backup::restored(&args, &load()?, out),
        Command::Key(KeyCommand::Rotate { new_key }) => key::rotate(new_key.as_deref(), &load()?, out),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// Runs a command that lives until it is told to stop, with diagnostics from a level on upwards on standard error.
fn until_done<E: std::error::Error + 'static>(
    level: &str,
    command: impl Future<Output = Result<ExitCode, E>>,
) -> Result<ExitCode, Failure> {
    // A subscriber that is there already serves as well.
    let _ = crate::telemetry::trace::init(Some(level));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.map_err(Failure::new)?.block_on(command).map_err(|error| Failure::from_error(&error))
}

fn reserved(name: &str) -> Result<(), Failure> {
    Err(Failure::Usage(format!("{name}: not in this version; the name is reserved")))
}
