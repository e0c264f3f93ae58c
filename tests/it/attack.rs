//! The attack corpus against the running binary. Of every case: no request reaches the gateway with any pair of path and key
//! but the session's own, no refused request reaches it at all, no answer reaches another client.

mod command;
mod edge;
mod gateway;
mod hostile;
mod peers;

use std::collections::HashMap;

use botgate::cli::attack::corpus::{self, Case, Told};
use edge::{Attacked, own_answer};

/// Least cases that there must be, of all classes.
const LEAST: usize = 400;

#[test]
fn whatever_a_client_sends_it_reaches_its_own_bot_or_nothing() {
    let cases = corpus::safe().expect("the corpus is readable");
    let strict = corpus::strict().expect("the corpus is readable");
    let excepted: HashMap<&str, &Case> = cases
        .iter()
        .zip(&strict)
        .filter(|(today, asked)| today.expected() != asked.expected())
        .map(|(today, asked)| (today.name(), asked))
        .collect();
    assert!(excepted.len() < 30, "exceptions are to become fewer");
    let attacked = Attacked::start();
    let tally =
        attacked.run(&cases, |case, nonce| of_client(&attacked, case, excepted.get(case.name()).copied(), nonce));
    println!(
        "{} cases, {} requests passed on, {} answers to the neighbour",
        tally.cases, tally.passed_on, tally.neighbour
    );
    let failures = &tally.failures;
    assert!(failures.is_empty(), "{} of {} cases:\n{}", failures.len(), cases.len(), failures.join("\n"));
    assert!(tally.cases >= LEAST && tally.passed_on > 100 && tally.neighbour > 100, "{tally:?}");
    let known = |nonce: &str| nonce == "last" || nonce.starts_with('c') || nonce.starts_with("bob");
    attacked.still_serves();
    for (nonce, asked) in attacked.gateway.asked() {
        assert!(known(&nonce), "a request of nobody's reached the gateway: {asked:?}");
    }
    assert!(!attacked.output().contains("panicked"), "{}", attacked.output());
}

/// One case of a client's, with what the corpus asks of it where it is an exception: how many requests it had passed on.
fn of_client(attacked: &Attacked, case: &Case, strict: Option<&Case>, nonce: &str) -> Result<usize, String> {
    let seen = attacked.play(&case.bytes(&attacked.names(nonce)), case.expected());
    let Some(outcome) = case.expected().iter().find(|outcome| seen.meets(outcome)) else {
        return Err(format!("seen {}, not {:?}", seen.text(), case.expected()));
    };
    if strict.is_some_and(|case| case.expected().iter().any(|outcome| seen.meets(outcome))) {
        return Err(format!("seen {} as the corpus asks: it is no exception any more", seen.text()));
    }
    let mut served = 0;
    for (told, answer) in outcome.answers.iter().zip(&seen.answers) {
        if *told == Told::Served || (answer.status == 200 && *told != Told::Early) {
            own_answer(answer, "bot-alice", nonce)?;
            served += 1;
        }
        if [&attacked.token, &attacked.other_token, &attacked.key].iter().any(|secret| holds(answer, secret)) {
            return Err("a secret came back".to_owned());
        }
    }
    // What was refused has not reached the gateway, nor has a request that was hidden in another.
    let asked = attacked.gateway.asked().remove(nonce).unwrap_or_default();
    let whole = asked.iter().filter(|asked| asked.whole).count();
    match whole == served
        && asked.iter().all(|asked| asked.owner == "alice" && (served == 2 || !asked.line.contains("?hidden=")))
    {
        true => Ok(served),
        false => Err(format!("seen {}, and the gateway was asked {asked:?}", seen.text())),
    }
}

fn holds(answer: &botgate::cli::attack::wire::Answer, text: &str) -> bool {
    let contains = |bytes: &[u8]| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    contains(&answer.body) || answer.head.iter().any(|line| contains(line.as_bytes()))
}
