//! Ten thousand people at once, while others are served.

use std::time::{Duration, Instant};

use super::Pair;
use crate::support::http::Call;
use crate::support::poll_for;

const PEOPLE: usize = 10_000;
/// For an unoptimised build on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

#[test]
fn ten_thousand_people_are_imported_and_signed_in_within_seconds_while_others_are_served() {
    let pair = Pair::serve();
    let botgate = &pair.botgate;
    let line = |n| {
        format!(
            "{{\"login\":\"p{n}\",\"role\":\"member\",\"api_server_key\":\"fixture-bulk-key-of-p{n}-0123456789\"}}\n"
        )
    };
    std::fs::write(botgate.path("people.jsonl"), (0..PEOPLE).map(line).collect::<String>()).expect("a file");
    let served = || Call::get("/v1/models").bearer(&pair.alice).send(botgate.address()).status;

    let timed = |what: &str, command: &(dyn Fn() -> String + Sync)| {
        let since = Instant::now();
        let printed = std::thread::scope(|scope| {
            let running = scope.spawn(command);
            while !running.is_finished() {
                assert_eq!(served(), 200, "during {what}");
            }
            running.join().expect("the command succeeds")
        });
        let took = since.elapsed();
        println!("{what}: {took:.1?}");
        assert!(took < LIMIT, "{what} takes {took:?}");
        printed
    };

    let told = timed("user import", &|| botgate.run(&["user", "import", "people.jsonl"]).done());
    assert!(told.contains("10000 added, 10000 with a bot; 0 refused"), "{told}");
    let logins: String = (0..PEOPLE).map(|n| format!("p{n}\n")).collect();
    let tokens =
        timed("session create --stdin", &|| botgate.run_with(&["session", "create", "--stdin"], &logins).done());
    let lines: Vec<_> = tokens.lines().collect();
    assert_eq!(lines.len(), PEOPLE);
    let unique: std::collections::HashSet<_> = lines.iter().filter_map(|line| line.split_once('\t')).collect();
    assert_eq!(unique.len(), PEOPLE);
    assert!(lines.iter().enumerate().all(|(n, line)| line.starts_with(&format!("p{n}\tbgs_"))));
    assert_eq!(botgate.metric("botgate_sessions"), (PEOPLE + 2) as f64);
    // Their profiles do not exist at this gateway: each gets the one 401, and nobody else is affected.
    let (_, last) = lines[PEOPLE - 1].split_once('\t').expect("login, tab, token");
    assert_eq!(Call::get("/v1/models").bearer(last).send(botgate.address()).status, 401);
    assert_eq!(botgate.readyz().status, 200);
    assert_eq!(served(), 200);

    // At the next start nothing is known, and nearly all of these bots cannot prove the gateway: who asks for one that
    // can is not made to wait for its turn among them.
    let mut pair = pair;
    assert!(pair.botgate.stop(), "{}", pair.botgate.output());
    let since = Instant::now();
    pair.botgate.serve();
    let served = || Call::get("/v1/models").bearer(&pair.alice).send(pair.botgate.address()).status;
    assert!(poll_for(LIMIT, || (served() == 200).then_some(())).is_some(), "{}", pair.botgate.readyz().body);
    println!("start until served, with ten thousand bots: {:.1?}", since.elapsed());
    assert_eq!(pair.botgate.readyz().status, 200);
}
