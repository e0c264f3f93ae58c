//! What botgate costs beside nginx, HAProxy and a Pingora proxy that do exactly the same job. `benches/load/run` is the
//! command.
//!
//! The job: 10,000 tokens, one for each person; a request goes to that person's own path with that bot's own key, without
//! the client's credential, cookies and forwarding lines; everything else is 401. One upstream checks every request of every
//! proxy. A scenario starts each proxy afresh and drives them in interleaved rounds; what counts is the CPU time of the whole
//! process tree for each request, and its ratio to the peers' in the same round.

mod alone;
mod args;
mod chart;
mod drivers;
mod peers;
mod people;
mod process;
mod report;
mod results;
mod rounds;
mod scenarios;
mod table;
mod trouble;
mod upstream;
mod wire;

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;

use args::Args;
use peers::{Botgate, Certificate, Ground};
use results::Results;
use rounds::Bench;
use scenarios::Drive;
use trouble::{Outcome, Trouble};
use upstream::Upstream;

fn main() -> ExitCode {
    match run(Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(trouble) => {
            eprintln!("load: {trouble}");
            ExitCode::FAILURE
        }
    }
}

/// Measures and tells; false when a target was missed and that is to be a failure.
fn run(args: Args) -> Outcome<bool> {
    process::raise_open_files();
    botgate::listener::tls::install_provider();
    let dir = tempfile::tempdir()?;
    let cores = std::thread::available_parallelism()?.get();
    let mut people = people::invite()?;
    let upstream = Upstream::start(&people)?;
    eprintln!("making {} people with bots and sessions", people.len());
    let botgate = Botgate::init(&dir.path().join("edge"), upstream.address(), &people)?;
    let tokens = botgate.sign_in(&people, 1)?;
    if tokens.len() != people.len() {
        return Err(Trouble::new(format!("{} tokens for {} people", tokens.len(), people.len())));
    }
    people.iter_mut().zip(tokens).for_each(|(person, token)| person.token = token);
    let pingora = args.pingora.clone();
    let certificate = Certificate::make(dir.path())?;
    let (address, dir) = (upstream.address(), dir.path().to_owned());
    let ground = Ground { people, upstream: address, cores, dir, pingora, certificate, botgate };
    let bench = Bench { args, upstream, ground };
    let (since, mut samples) = (Instant::now(), Vec::new());
    for scenario in bench.args.scenarios() {
        eprintln!("{} ({} s)", scenario.title(), since.elapsed().as_secs());
        match scenario.drive() {
            Drive::Sessions => samples.extend(bench.sessions()?),
            Drive::Creations => samples.extend(bench.creations()?),
            _ => samples.extend(bench.compare(scenario)?),
        }
    }
    let missed = report::tell(&Results(samples), &bench.args)?;
    Ok(missed == 0 || !bench.args.check)
}
