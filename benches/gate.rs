//! What a decision costs: credential and digest, session, directory, grant and rewrite, as the pipeline makes them, in time
//! and in allocations; for a token that opens its bot (hit), one that opens nothing (miss), and one on another's path (mismatch).
//!
//! Every decision takes the next of all tokens, so that with a million sessions hardly anything is in a cache, and with a
//! thousand everything is. Where there are writes, one operation in a hundred puts a session in or revokes one instead; its
//! time counts too. Two threads decide at once, each on tokens of its own part, and the time is that of one decision on one
//! of them. `cargo bench --bench gate` measures; without `--bench` each case runs once, on a small world.

use std::cell::LazyCell;
use std::hint::black_box;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use botgate::config::{GatewayUrl, Host};
use botgate::directory::{Bot, Directory, GatewayTarget};
use botgate::identity::{SessionParts, Sessions, credential};
use botgate::names::{GatewayName, Login, ProfileName, Role, Uid};
use botgate::proxy::{AllowedHosts, Client, Grant, HeadView, Line, Outbound, Screened, now_ms};
use botgate::secret::{ApiServerKey, FreshToken, TokenKind};
use botgate::telemetry::reason::Reason;
use criterion::{BenchmarkId, Criterion};

/// People, each with a bot, unless there are fewer sessions than that.
const PEOPLE: usize = 10_000;
/// Tokens of the right shape that open nothing.
const STRANGERS: usize = 65_536;
/// Sessions that a thread puts in and revokes in turn.
const SPARES: usize = 1_024;
/// Most threads at once.
const THREADS: usize = 2;
/// Operations of which one is a write, where there are any.
const WRITE_EACH: usize = 100;
/// `Bearer ` and a token.
const VALUE_BYTES: usize = 7 + 54;

const fn line(name: &'static str, value: &'static str) -> Line<'static> {
    Line { name, value: value.as_bytes() }
}

/// What OpenAI's SDK for Python sends.
const HEAD: [Line<'static>; 16] = [
    line("host", "edge.example"),
    line("accept-encoding", "gzip, deflate"),
    line("connection", "keep-alive"),
    line("accept", "application/json"),
    line("content-type", "application/json"),
    line("user-agent", "OpenAI/Python 2.8.0"),
    line("x-stainless-lang", "python"),
    line("x-stainless-package-version", "2.8.0"),
    line("x-stainless-os", "Linux"),
    line("x-stainless-arch", "x64"),
    line("x-stainless-runtime", "CPython"),
    line("x-stainless-runtime-version", "3.12.1"),
    line("x-stainless-async", "false"),
    line("x-stainless-retry-count", "0"),
    line("authorization", ""),
    line("content-length", "412"),
];

/// Value of an Authorization field.
type Value = [u8; VALUE_BYTES];

#[derive(Clone, Copy, PartialEq)]
enum Case {
    Hit,
    Miss,
    Mismatch,
}

impl Case {
    const ALL: [(Case, &str); 3] = [(Case::Hit, "hit"), (Case::Miss, "miss"), (Case::Mismatch, "mismatch")];

    fn target(self) -> &'static str {
        match self {
            Case::Hit | Case::Miss => "/v1/chat/completions",
            Case::Mismatch => "/p/bot-somebody-else/v1/chat/completions",
        }
    }

    fn outcome(self) -> Result<(), Reason> {
        match self {
            Case::Hit => Ok(()),
            Case::Miss => Err(Reason::CredentialUnknown),
            Case::Mismatch => Err(Reason::NotOwnBot),
        }
    }

    /// What a decision may allocate.
    fn allocations(self) -> u64 {
        match self {
            Case::Hit | Case::Miss | Case::Mismatch => 0,
        }
    }
}

/// An edge's tables.
struct World {
    hosts: AllowedHosts,
    sessions: Sessions,
    directory: Directory,
    known: Vec<Value>,
    strangers: Vec<Value>,
    writers: [Mutex<Writer>; THREADS],
    client: Client,
    // Where the next decision takes its token.
    next: AtomicUsize,
}

/// Puts a session in, then revokes it, then the next.
struct Writer {
    spares: Vec<(Uid, SessionParts)>,
    done: usize,
}

impl Writer {
    fn write(&mut self, sessions: &Sessions) {
        let (person, parts) = &self.spares[self.done / 2 % self.spares.len()];
        match self.done % 2 {
            0 => assert!(sessions.insert(person, parts.clone()).is_some()),
            _ => assert!(sessions.revoke_session(&parts.id)),
        }
        self.done += 1;
    }
}

fn fresh() -> (Value, SessionParts) {
    let token = FreshToken::generate(TokenKind::Session);
    let value = format!("Bearer {}", token.expose()).into_bytes().try_into().expect("a token has 54 characters");
    let parts = SessionParts {
        id: Uid::random(),
        digest: token.digest(),
        kind: TokenKind::Session,
        label: None,
        created_at: 0,
        expires_at: i64::MAX,
        idle: None,
    };
    (value, parts)
}

/// Time that this thread has run: what others do on the machine is not in it.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("the clock began at zero")
}

impl World {
    fn new(count: usize) -> Self {
        let (sessions, directory) = (Sessions::new(), Directory::new());
        let url = GatewayUrl::parse("http://127.0.0.1:8642").expect("a URL");
        let gateway = Arc::new(GatewayTarget::new(GatewayName::parse("main").expect("a name"), 0, url));
        let role = Role::parse("member").expect("a role");
        let person = |n: usize| {
            let (uid, login) = (Uid::random(), Login::parse(&format!("person-{n}")).expect("a login"));
            sessions.add_person(uid.clone(), login.clone(), role.clone(), true);
            let profile = ProfileName::of(&login);
            let bot = Bot::new(login, uid.clone(), profile, gateway.clone(), ApiServerKey::generate());
            (uid, bot.expect("the profile is the login's"))
        };
        let (people, bots): (Vec<_>, Vec<_>) = (0..PEOPLE.min(count)).map(person).unzip();
        directory.insert(bots);
        let known = (0..count).map(|n| {
            let (value, parts) = fresh();
            assert!(sessions.insert(&people[n % people.len()], parts).is_some());
            value
        });
        let known = known.collect();
        let spare = |n: usize| (people[n % people.len()].clone(), fresh().1);
        let writers = std::array::from_fn(|_| Mutex::new(Writer { spares: (0..SPARES).map(spare).collect(), done: 0 }));
        let strangers = (0..STRANGERS.min(count)).map(|_| fresh().0).collect();
        let hosts = AllowedHosts::new(&[Host::parse("edge.example", 443).expect("a host")]);
        World {
            hosts,
            sessions,
            directory,
            known,
            strangers,
            writers,
            client: Client::new(IpAddr::from([127, 0, 0, 1]), false),
            next: AtomicUsize::new(0),
        }
    }

    /// One decision on a screened head, with this Authorization in the place of its own.
    fn decide(&self, screened: &Screened<'_>, authorization: &Value) -> Result<(), Reason> {
        let lines = screened.head().lines.iter().map(|line| match line.name {
            "authorization" => (line.name.as_bytes(), &authorization[..]),
            name => (name.as_bytes(), line.value),
        });
        let credential = credential(lines, false)?;
        let session = self.sessions.lookup(&credential.token, now_ms()).map_err(|refused| refused.reason)?;
        let grant = Grant::new(session, &self.directory, screened.target().profile())?;
        black_box(Outbound::new(&grant, screened.head(), screened.asked(), &[], &self.client));
        Ok(())
    }

    fn values(&self, case: Case) -> &[Value] {
        if case == Case::Miss { &self.strangers } else { &self.known }
    }

    /// A head that has been screened, for another's path if that is the case.
    fn screened(&self, case: Case) -> Screened<'static> {
        let head = HeadView { method: "POST", authority: None, path_and_query: case.target(), lines: &HEAD };
        Screened::new(head, &self.hosts).expect("the head is a good one")
    }

    /// Allocations of one decision.
    fn allocations(&self, case: Case) -> u64 {
        let (screened, value) = (self.screened(case), &self.values(case)[0]);
        assert_eq!(self.decide(&screened, value), case.outcome());
        allocation_counter::measure(|| assert_eq!(self.decide(&screened, value), case.outcome())).count_total
    }

    /// The time of `count` operations on each of some threads.
    fn run(&self, case: Case, threads: usize, writes: bool, count: usize) -> Duration {
        let values = self.values(case);
        let start = self.next.fetch_add(count, Ordering::Relaxed);
        let (ready, screened) = (Barrier::new(threads), black_box(self.screened(case)));
        let work = |thread: usize| {
            let mut writer = self.writers[thread].lock().expect("no holder panics");
            let mut at = (start + thread * values.len() / threads) % values.len();
            ready.wait();
            let begun = cpu_time();
            for operation in 1..=count {
                if writes && operation % WRITE_EACH == 0 {
                    writer.write(&self.sessions);
                    continue;
                }
                assert!(self.decide(&screened, &values[at]) == case.outcome());
                at = if at + 1 == values.len() { 0 } else { at + 1 };
            }
            cpu_time() - begun
        };
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|thread| scope.spawn(move || work(thread))).collect();
            let own = work(0);
            others.into_iter().map(|other| other.join().expect("no thread panics")).fold(own, Duration::max)
        })
    }
}

fn main() {
    let measuring = std::env::args().any(|argument| argument == "--bench");
    let sizes: &[(usize, &str)] =
        if measuring { &[(1_000, "1 k"), (100_000, "100 k"), (1_000_000, "1 M")] } else { &[(1_000, "1 k")] };
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_millis(1_500))
        .sample_size(20)
        .configure_from_args();
    for &(count, name) in sizes {
        // Made when a case that is asked for needs it.
        let world = LazyCell::new(|| World::new(count));
        let mut group = criterion.benchmark_group(format!("{name} sessions"));
        for (case, case_name) in Case::ALL {
            for threads in 1..=THREADS {
                for (writes, written) in [(false, "0 %"), (true, "1 %")] {
                    let id = BenchmarkId::new(case_name, format!("{threads} threads, {written} writes"));
                    group.bench_function(id, |bencher| {
                        assert_eq!(world.allocations(case), case.allocations());
                        bencher.iter_custom(|count| world.run(case, threads, writes, count as usize));
                    });
                }
            }
        }
        group.finish();
    }
    criterion.final_summary();
}
