//! The cases one after the other, the neighbour asked in between, and a judgement of each.

use std::time::{Duration, Instant};

use super::Person;
use super::corpus::{Case, Names, Outcome, Told};
use super::report::{Line, Report};
use super::target::Target;
use super::wire::{Answer, Connection, Seen, Waits, play};

/// Longest time for all cases together.
const RUN_LIMIT: Duration = Duration::from_secs(600);
/// A header section may take ten seconds.
const EXPECTED_WITHIN: Duration = Duration::from_secs(15);
const END_WITHIN: Duration = Duration::from_secs(3);
/// How long more may take to come than what is expected.
const MORE_NEARBY: Duration = Duration::from_millis(20);
const MORE_FAR_AWAY: Duration = Duration::from_millis(200);
/// How often a case is tried again that met a rate limit, and how long to wait before.
const TRIES: usize = 5;
const BEFORE_AGAIN: Duration = Duration::from_secs(1);

/// Runs these cases.
pub(super) fn run(
    url: &str,
    target: &Target,
    attacker: &Person,
    neighbour: &Person,
    cases: &[Case],
) -> Result<Report, String> {
    let mut trial = Trial::prepare(target, attacker, neighbour)?;
    let mut report = Report {
        url: url.to_owned(),
        passed: 0,
        failed: 0,
        left_out: 0,
        neighbour: 0,
        notes: std::mem::take(&mut trial.notes),
        cases: Vec::new(),
    };
    let deadline = Instant::now() + RUN_LIMIT;
    for case in cases {
        if case.needs_cookies() && !trial.cookies_count {
            report.left_out += 1;
            continue;
        }
        let (seen, failure) = match Instant::now() < deadline {
            true => trial.case(case),
            false => ("nothing".to_owned(), Some(format!("not tried within {} s", RUN_LIMIT.as_secs()))),
        };
        match failure {
            Some(_) => report.failed += 1,
            None => report.passed += 1,
        }
        report.cases.push(Line {
            class: case.class().to_owned(),
            name: case.name().to_owned(),
            source: case.source().to_owned(),
            expected: expected(case.expected()),
            seen,
            failure,
        });
    }
    report.neighbour = trial.answered;
    Ok(report)
}

/// What a run knows and keeps.
struct Trial<'t> {
    target: &'t Target,
    attacker: &'t Person,
    neighbour: &'t Person,
    /// What the attacker and the neighbour get for `/v1/models`.
    own_answer: Vec<u8>,
    others_answer: Vec<u8>,
    refusal: String,
    cookies_count: bool,
    waits: Waits,
    kept: Option<Box<dyn Connection>>,
    answered: usize,
    number: usize,
    notes: Vec<String>,
}

impl<'t> Trial<'t> {
    /// Makes sure that both sessions work, and learns what their answers look like.
    fn prepare(target: &'t Target, attacker: &'t Person, neighbour: &'t Person) -> Result<Self, String> {
        let mut trial = Trial {
            target,
            attacker,
            neighbour,
            own_answer: Vec::new(),
            others_answer: Vec::new(),
            refusal: String::new(),
            cookies_count: false,
            waits: Waits {
                expected: EXPECTED_WITHIN,
                end: END_WITHIN,
                more: if target.is_nearby() { MORE_NEARBY } else { MORE_FAR_AWAY },
            },
            kept: None,
            answered: 0,
            number: 0,
            notes: Vec::new(),
        };
        trial.own_answer = trial.models(&attacker.bearer(), 200, &attacker.profile.to_string())?.body;
        trial.others_answer = trial.models(&neighbour.bearer(), 200, &neighbour.profile.to_string())?.body;
        trial.refusal = trial.models("", 401, "a client without a credential")?.blanked();
        trial.cookies_count = trial.models(&format!("Cookie: __Host-botgate={}\r\n", attacker.token), 200, "").is_ok();
        if trial.own_answer == trial.others_answer {
            trial.notes.push("both bots list the same models, so that answers cannot be told apart by them".to_owned());
        }
        if !trial.cookies_count {
            trial.notes.push("the session cookie does not count here; its cases are left out".to_owned());
        }
        Ok(trial)
    }

    /// Asks for the models on a connection of its own.
    fn models(&self, credential: &str, status: u16, whose: &str) -> Result<Answer, String> {
        let mut connection = self.target.connect().map_err(|error| format!("no connection: {error}"))?;
        let expected = [Outcome { answers: vec![Told::Status(status)], end: false, cut: false }];
        let seen = play(&mut *connection, self.plain(credential).as_bytes(), &expected, self.waits);
        match <[Answer; 1]>::try_from(seen.answers) {
            Ok([answer]) if answer.status == status => Ok(answer),
            Ok([answer]) => Err(format!("{whose}: GET /v1/models is {} in place of {status}", answer.status)),
            Err(_) => Err(format!("{whose}: no answer to GET /v1/models")),
        }
    }

    fn plain(&self, credential: &str) -> String {
        format!("GET /v1/models HTTP/1.1\r\nHost: {}\r\n{credential}\r\n", self.target.authority())
    }

    /// Runs one case and asks the neighbour after it: what came of it, and why it failed.
    fn case(&mut self, case: &Case) -> (String, Option<String>) {
        self.number += 1;
        let nonce = format!("attack{:05}", self.number);
        let names = Names {
            token: &self.attacker.token,
            own: self.attacker.profile.as_str(),
            other_token: &self.neighbour.token,
            other: self.neighbour.profile.as_str(),
            scheme: self.target.scheme(),
            host: self.target.authority(),
            port: self.target.port(),
            nonce: &nonce,
        };
        let bytes = case.bytes(&names);
        let mut tries = 0;
        let seen = loop {
            let mut connection = match self.target.connect() {
                Ok(connection) => connection,
                Err(error) => return ("nothing".to_owned(), Some(format!("no connection: {error}"))),
            };
            let seen = play(&mut *connection, &bytes, case.expected(), self.waits);
            let limited = seen.answers.iter().any(|answer| answer.status == 429);
            tries += 1;
            if !limited || tries == TRIES {
                break seen;
            }
            std::thread::sleep(BEFORE_AGAIN);
        };
        let failure = self.judge(case, &seen).or_else(|| self.ask_neighbour());
        (seen.text(), failure)
    }

    fn judge(&self, case: &Case, seen: &Seen) -> Option<String> {
        if !case.expected().iter().any(|outcome| seen.meets(outcome)) {
            return Some("another outcome".to_owned());
        }
        for answer in &seen.answers {
            let held = |text: &[u8]| {
                let answer = [answer.head.join("\n").as_bytes(), &answer.body].concat();
                answer.windows(text.len()).any(|window| window == text)
            };
            if held(self.attacker.token.as_bytes()) || held(self.neighbour.token.as_bytes()) {
                return Some("a token came back".to_owned());
            }
            if answer.status == 401 && answer.blanked() != self.refusal {
                return Some("another 401 than that of a client without a credential".to_owned());
            }
            let differ = self.own_answer != self.others_answer;
            if answer.status == 200 && differ && answer.body == self.others_answer {
                return Some("the neighbour's answer came".to_owned());
            }
            let of_models = case.expected().iter().any(|outcome| outcome.answers.contains(&Told::Status(200)));
            if answer.status == 200 && of_models && answer.body != self.own_answer {
                return Some("another answer than the attacker's own".to_owned());
            }
        }
        None
    }

    /// The neighbour asks on a connection that is kept; something wrong with the answer is told.
    fn ask_neighbour(&mut self) -> Option<String> {
        let request = self.plain(&self.neighbour.bearer());
        let expected = [Outcome { answers: vec![Told::Status(200)], end: false, cut: false }];
        for _ in 0..TRIES {
            let mut connection = match self.kept.take().map_or_else(|| self.target.connect(), Ok) {
                Ok(connection) => connection,
                Err(error) => return Some(format!("no connection for the neighbour: {error}")),
            };
            // What follows an answer is seen before the next one.
            let waits = Waits { more: Duration::from_millis(1), ..self.waits };
            let seen = play(&mut *connection, request.as_bytes(), &expected, waits);
            match seen.answers.as_slice() {
                [answer] if answer.status == 200 && answer.body == self.others_answer && !seen.rest => {
                    self.answered += 1;
                    self.kept = Some(connection);
                    return None;
                }
                [answer] if answer.status == 429 => std::thread::sleep(BEFORE_AGAIN),
                // An idle connection may have been closed meanwhile.
                [] if !seen.rest => {}
                _ => return Some(format!("the neighbour's answer is not their own: {}", seen.text())),
            }
        }
        Some("the neighbour gets no answer".to_owned())
    }
}

impl Person {
    fn bearer(&self) -> String {
        format!("Authorization: Bearer {}\r\n", self.token)
    }
}

fn expected(outcomes: &[Outcome]) -> String {
    let word = |told: &Told| match told {
        Told::Status(status) => status.to_string(),
        Told::Served => "served".to_owned(),
        Told::Early => "early".to_owned(),
        Told::Refused => "refused".to_owned(),
    };
    let one = |outcome: &Outcome| {
        let end = outcome.end.then(|| if outcome.cut { "cut" } else { "end" }.to_owned());
        let words = outcome.answers.iter().map(word).chain(end);
        words.collect::<Vec<_>>().join(" ")
    };
    outcomes.iter().map(one).collect::<Vec<_>>().join(" or ")
}
