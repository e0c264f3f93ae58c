//! `attack`: the safe part of the attack corpus against an operator's own deployment, with two sessions of theirs.
//!
//! Invariants: bounded in time and requests; no turn is started, nothing is flooded or held open; a token comes from a file or
//! standard input and is never printed. What only the gateway could see, it cannot judge: the tests of this program do.

pub mod corpus;
mod report;
mod target;
mod trial;
pub mod wire;

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;

use super::out::{Failure, Out};
use crate::names::{Login, ProfileName};
use target::Target;

/// Most bytes of a file with sessions.
const SESSIONS_MAX_BYTES: u64 = 64 * 1024;

/// What to attack, and as whom.
#[derive(Debug, Args)]
pub(super) struct AttackArgs {
    /// Scheme, host and port of the deployment.
    url: String,
    /// Two sessions, the attacker's and the neighbour's, as `session create --stdin` prints them; - for standard input.
    #[arg(long, value_name = "F", default_value = "-")]
    sessions: PathBuf,
    /// Only the cases of this class; may be given more than once.
    #[arg(long, value_name = "CLASS")]
    only: Vec<String>,
    /// The deployment is your own, although it is not on loopback.
    #[arg(long)]
    i_operate_this: bool,
    /// Certificates to trust in place of the system's.
    #[arg(long, value_name = "F")]
    ca: Option<PathBuf>,
}

/// One signed-in person.
struct Person {
    profile: ProfileName,
    token: String,
}

/// Attacks and reports; any case that fails is a failure.
pub(super) fn run(args: &AttackArgs, out: Out) -> Result<(), Failure> {
    let target = Target::new(&args.url, args.i_operate_this, args.ca.as_deref()).map_err(Failure::Usage)?;
    let mut cases = corpus::safe().map_err(|error| Failure::new(format!("the corpus: {error}")))?;
    cases.retain(|case| args.only.is_empty() || args.only.iter().any(|class| class == case.class()));
    if cases.is_empty() {
        return Err(Failure::Usage("no case of this class".to_owned()));
    }
    let [attacker, neighbour] = sessions(&args.sessions)?;
    let report = trial::run(&args.url, &target, &attacker, &neighbour, &cases).map_err(Failure::new)?;
    out.show(&report, || report.text())?;
    match report.failed {
        0 => Ok(()),
        failed => Err(Failure::new(format!("{failed} cases failed"))),
    }
}

/// Reads two lines of login, tab, token.
fn sessions(file: &Path) -> Result<[Person; 2], Failure> {
    let mut text = String::new();
    let read = match file.as_os_str() == "-" {
        true => std::io::stdin().lock().take(SESSIONS_MAX_BYTES).read_to_string(&mut text),
        false => std::fs::File::open(file).and_then(|file| file.take(SESSIONS_MAX_BYTES).read_to_string(&mut text)),
    };
    read.map_err(|error| Failure::new(format!("{}: {error}", file.display())))?;
    two(&text).map_err(|what| {
        Failure::with_next(
            format!("sessions: {what}"),
            "printf 'alice\\nbob\\n' | botgate session create --stdin prints them",
        )
    })
}

fn two(text: &str) -> Result<[Person; 2], &'static str> {
    let people: Vec<Person> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| {
            let (login, token) = line.split_once('\t').ok_or("a line is login, tab, token")?;
            let login = Login::parse(login).map_err(|_| "a line does not begin with a login")?;
            Ok(Person { profile: ProfileName::of(&login), token: token.trim().to_owned() })
        })
        .collect::<Result<_, &'static str>>()?;
    let people: [Person; 2] =
        people.try_into().map_err(|_| "two lines are needed, the attacker's and the neighbour's")?;
    if people[0].profile == people[1].profile { Err("two different people are needed") } else { Ok(people) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_two_lines_of_two_people() {
        assert!(two("alice\ta\nbob\tb\n").is_ok());
        for text in ["", "alice\ta\n", "alice\ta\nbob b\n", "alice\ta\nalice\tb\n", "a\ta\nb\tb\nc\tc\n"] {
            assert!(two(text).is_err(), "{text:?}");
        }
    }
}
