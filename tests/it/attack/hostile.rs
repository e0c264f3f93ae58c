//! Hostile answers of the gateway: none reaches a client as something that it is not, none reaches another's.

use botgate::cli::attack::corpus::{self, Case, Outcome, Told};

use super::edge::{Attacked, own_answer};
use super::gateway::Script;
use super::holds;

const CASES: &str = include_str!("../../corpus/gateway.txt");
/// Fields that a client may see.
const SEEN: [&str; 11] = [
    "content-type",
    "content-length",
    "cache-control",
    "retry-after",
    "transfer-encoding",
    "connection",
    "date",
    "x-request-id",
    "x-content-type-options",
    "x-should-retry",
    "x-accel-buffering",
];

#[test]
fn whatever_the_gateway_says_its_client_gets_an_answer_of_its_own_or_a_broken_one() {
    let cases = corpus::parse(CASES).expect("the corpus is readable");
    let attacked = Attacked::start();
    let tally = attacked.run(&cases, |case, nonce| {
        for (mark, bytewise) in [("a", false), ("b", true)] {
            of_gateway(&attacked, case, &format!("{nonce}{mark}"), bytewise)
                .map_err(|what| format!("{what}, bytewise: {bytewise}"))?;
        }
        Ok(0)
    });
    println!("{} cases, {} answers to the neighbour", tally.cases, tally.neighbour);
    let failures = &tally.failures;
    assert!(failures.is_empty(), "{} of {} cases:\n{}", failures.len(), cases.len(), failures.join("\n"));
    assert!(tally.cases >= 120 && tally.neighbour > 100, "{tally:?}");
    attacked.still_serves();
    assert!(attacked.metric("botgate_upstream_errors_total{gateway=\"main\",kind=\"hostile\"}") > 10.0);
    assert!(!attacked.output().contains("panicked"), "{}", attacked.output());
}

fn of_gateway(attacked: &Attacked, case: &Case, nonce: &str, bytewise: bool) -> Result<(), String> {
    let names = corpus::Names { other_token: &attacked.key, ..attacked.names(nonce) };
    let early = case.class().ends_with("early");
    let script = Script { bytes: case.bytes(&names), bytewise, closes: case.class().ends_with("closes"), early };
    attacked.gateway.says(nonce, script);
    let request = match early {
        false => attacked.plain(nonce),
        true => format!(
            "POST /v1/runs/{nonce}/steer HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nX-Hermes-Session-Id: {nonce}\r\n\
             Content-Length: 50000\r\n\r\nGET /",
            attacked.host, attacked.token
        ),
    };
    let seen = attacked.play(request.as_bytes(), case.expected());
    if !case.expected().iter().any(|outcome| seen.meets(outcome)) {
        return Err(format!("seen {}, not {:?}: {:?}", seen.text(), case.expected(), seen.answers));
    }
    for answer in &seen.answers {
        if holds(answer, "stale") || holds(answer, &attacked.key) || holds(answer, "elsewhere.example") {
            return Err(format!("what must not pass has passed: {answer:?}"));
        }
        for line in answer.head.iter().skip(1) {
            let name = line.split(':').next().unwrap_or_default().to_ascii_lowercase();
            if !SEEN.contains(&name.as_str()) && !name.starts_with("x-hermes-") {
                return Err(format!("a field that is not listed: {line}"));
            }
        }
        if answer.status >= 500 && answer.header("x-should-retry") == Some("true") {
            return Err("what may have run is to be repeated".to_owned());
        }
    }
    // The next request has the next answer.
    let next = format!("{nonce}z");
    let expected = [Outcome { answers: vec![Told::Status(200)], end: false, cut: false }];
    let seen = attacked.play(attacked.plain(&next).as_bytes(), &expected);
    let [answer] = seen.answers.as_slice() else { return Err(format!("afterwards: {}", seen.text())) };
    own_answer(answer, "bot-alice", &next)
}
