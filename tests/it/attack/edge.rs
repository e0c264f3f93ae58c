//! The running binary before the strict gateway, attacked by alice while bob goes on with his work.

use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use botgate::cli::attack::corpus::{Case, Names, Outcome, Told};
use botgate::cli::attack::wire::{Answer, Seen, Waits, play};
use botgate::secret::ApiServerKey;
use serde_json::Value;

use super::gateway::StrictGateway;
use crate::support::botgate::{Botgate, Setup};
use crate::support::hermes::Bot;

/// Cases at a time.
const WORKERS: usize = 6;
const WAITS: Waits =
    Waits { expected: Duration::from_secs(8), end: Duration::from_secs(4), more: Duration::from_millis(40) };
/// Deadlines short enough to be waited for.
const LIMITS: &str = "turns_per_person = 10\nqueue_per_person = 1000\n[deadlines]\nfirst_byte = \"2s\"\nheader = \"2s\"\nbody = \"2s\"\n\
                      response_head = \"3s\"\nidle = \"3s\"\n";

/// Who is there, and what is known of them.
pub(crate) struct Attacked {
    pub(crate) gateway: StrictGateway,
    pub(crate) address: SocketAddr,
    pub(crate) host: String,
    pub(crate) token: String,
    pub(crate) other_token: String,
    pub(crate) key: String,
    botgate: Botgate,
}

/// What a run of cases came to.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) cases: usize,
    pub(crate) passed_on: usize,
    pub(crate) neighbour: usize,
    pub(crate) failures: Vec<String>,
}

impl Attacked {
    #[track_caller]
    pub(crate) fn start() -> Self {
        let keys = ["alice", "bob"].map(|login| (login, ApiServerKey::generate().expose().to_owned()));
        let gateway = StrictGateway::start(&[(keys[0].0, &keys[0].1), (keys[1].0, &keys[1].1)]);
        let mut botgate = Botgate::new(&Setup { limits: LIMITS.to_owned(), ..Setup::at(gateway.address()) });
        for (login, key) in &keys {
            botgate.add(
                login,
                &Bot { profile: format!("bot-{login}"), api_key: key.clone(), provider_key: String::new(), mcp: None },
            );
        }
        botgate.serve_until_ready();
        let [token, other_token] = ["alice", "bob"].map(|login| botgate.session(login));
        gateway.never(&[&token, &other_token]);
        let address = botgate.address();
        let [(_, key), _] = keys;
        Attacked { gateway, address, host: address.to_string(), token, other_token, key, botgate }
    }

    pub(crate) fn names<'n>(&'n self, nonce: &'n str) -> Names<'n> {
        Names {
            token: &self.token,
            own: "bot-alice",
            other_token: &self.other_token,
            other: "bot-bob",
            scheme: "http",
            host: &self.host,
            port: self.address.port(),
            nonce,
        }
    }

    /// Plays these bytes on a connection of their own.
    pub(crate) fn play(&self, bytes: &[u8], expected: &[Outcome]) -> Seen {
        let mut stream = TcpStream::connect(self.address).expect("the edge accepts");
        stream.set_nodelay(true).expect("a socket takes the option");
        play(&mut stream, bytes, expected, WAITS)
    }

    /// A plain request of alice's.
    pub(crate) fn plain(&self, nonce: &str) -> String {
        format!(
            "GET /v1/models?{nonce} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nX-Hermes-Session-Id: {nonce}\r\n\r\n",
            self.host, self.token
        )
    }

    /// Runs the cases, some at a time, each with a number of its own; bob works meanwhile. `one` gives what went wrong.
    pub(crate) fn run(&self, cases: &[Case], one: impl Fn(&Case, &str) -> Result<usize, String> + Sync) -> Tally {
        let (next, over, passed_on) = (AtomicUsize::new(0), AtomicBool::new(false), AtomicUsize::new(0));
        let failures = Mutex::new(Vec::new());
        let failed = |what: String| failures.lock().expect("no holder panics").push(what);
        let neighbour = std::thread::scope(|scope| {
            let bob = scope.spawn(|| self.neighbour(&over));
            let workers: Vec<_> = (0..WORKERS)
                .map(|_| {
                    scope.spawn(|| {
                        while let Some(case) = cases.get(next.fetch_add(1, Ordering::SeqCst)) {
                            let nonce = format!("c{}", short(case.name()));
                            match one(case, &nonce) {
                                Ok(count) => drop(passed_on.fetch_add(count, Ordering::SeqCst)),
                                Err(what) => failed(format!("{}: {what} ({})", case.name(), case.source())),
                            }
                        }
                    })
                })
                .collect();
            for worker in workers {
                worker.join().expect("a worker ends");
            }
            over.store(true, Ordering::SeqCst);
            bob.join().expect("bob ends")
        });
        let neighbour = neighbour.unwrap_or_else(|what| {
            failed(format!("bob: {what}"));
            0
        });
        for what in self.gateway.wrong() {
            failed(format!("the gateway: {what}"));
        }
        let mut failures = failures.into_inner().expect("no holder panics");
        failures.sort();
        Tally { cases: cases.len(), passed_on: passed_on.into_inner(), neighbour, failures }
    }

    /// Bob asks on a kept connection until it is over: how often he got his own answer.
    fn neighbour(&self, over: &AtomicBool) -> Result<usize, String> {
        let connect = || TcpStream::connect(self.address).map_err(|error| error.to_string());
        let (mut stream, mut count) = (connect()?, 0);
        let expected = [Outcome { answers: vec![Told::Status(200)], end: false, cut: false }];
        while !over.load(Ordering::SeqCst) || count < 20 {
            let nonce = format!("bob{count}");
            let request = format!(
                "GET /p/bot-bob/v1/models?{nonce} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\
                 X-Hermes-Session-Id: {nonce}\r\n\r\n",
                self.host, self.other_token
            );
            let seen =
                play(&mut stream, request.as_bytes(), &expected, Waits { more: Duration::from_millis(2), ..WAITS });
            let [answer] = seen.answers.as_slice() else { return Err(format!("{nonce}: {}", seen.text())) };
            own_answer(answer, "bot-bob", &nonce)?;
            count += 1;
        }
        Ok(count)
    }

    /// Waits until nothing runs, and makes sure that both are still served.
    #[track_caller]
    pub(crate) fn still_serves(&self) {
        self.botgate.settles();
        let expected = [Outcome { answers: vec![Told::Status(200)], end: false, cut: false }];
        let seen = self.play(self.plain("last").as_bytes(), &expected);
        own_answer(&seen.answers[0], "bot-alice", "last").expect("alice is served as before");
    }

    pub(crate) fn metric(&self, line: &str) -> f64 {
        self.botgate.metric(line)
    }

    pub(crate) fn output(&self) -> String {
        self.botgate.output()
    }
}

/// Whether the gateway's answer is for this bot and this request.
pub(crate) fn own_answer(answer: &Answer, bot: &str, nonce: &str) -> Result<(), String> {
    let told: Value = serde_json::from_slice(&answer.body).map_err(|error| format!("{nonce}: {error}: {answer:?}"))?;
    match told["bot"] == bot && told["nonce"] == nonce {
        true => Ok(()),
        false => Err(format!("{nonce} of {bot} got {told}")),
    }
}

/// A name that can stand in a path, different for different texts.
fn short(text: &str) -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}
