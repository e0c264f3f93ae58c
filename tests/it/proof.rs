//! The proof and the following of runs, on real gateways.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use botgate::config::GatewayUrl;
use botgate::directory::{Bot, BotStanding, Directory, GatewayStanding, GatewayTarget};
use botgate::gateway::probe::{DefaultKey, Isolation, ProofTimes, ProvedGateway, Prover, Verdict};
use botgate::gateway::runs::{OpenRun, RunEnd, RunLog, RunTimes, RunWatch, Runs};
use botgate::names::{GatewayName, Identifier, Login, ProfileName, Uid};
use botgate::secret::ApiServerKey;
use botgate::tasks::Cancellation;
use botgate::tasks::Tasks;
use botgate::telemetry::metrics::Metrics;
use serde_json::json;

use crate::support::hermes::{self, RealGateway};
use crate::support::http::Call;

const SOON: Duration = Duration::from_secs(60);

/// An edge's knowledge of one real gateway.
struct Edge {
    target: Arc<GatewayTarget>,
    directory: Arc<Directory>,
    prover: Prover,
    tasks: Tasks,
}

impl Edge {
    fn of(gateway: &RealGateway, default_key: Option<&str>) -> Self {
        let url = GatewayUrl::parse(&format!("http://{}", gateway.address())).unwrap();
        let target = Arc::new(GatewayTarget::new(GatewayName::parse("main").unwrap(), 0, url));
        let (directory, metrics) = (Arc::new(Directory::new()), Metrics::new(&[target.name().clone()], &[]));
        let default_key = default_key.map(|key| ApiServerKey::parse(key).unwrap());
        let proved = ProvedGateway { target: Arc::clone(&target), default_key };
        let prover = Prover::new(Arc::clone(&directory), vec![proved], metrics, ProofTimes::default());
        let edge = Edge { target, directory, prover, tasks: Tasks::new() };
        for login in ["alice", "bob"] {
            edge.adopt(login, &hermes::Bot::of(login).api_key);
        }
        edge
    }

    fn adopt(&self, login: &str, key: &str) {
        let login = Login::parse(login).unwrap();
        let (profile, key) = (ProfileName::of(&login), ApiServerKey::parse(key).unwrap());
        self.directory.insert(Bot::new(login, Uid::random(), profile, Arc::clone(&self.target), key));
    }

    fn bot(&self, login: &str) -> Arc<Bot> {
        self.directory.bot(&Login::parse(login).unwrap()).unwrap()
    }

    /// The first verdict that says something: a busy machine may answer too late.
    async fn prove(&self, login: &str) -> Verdict {
        let (login, deadline) = (Login::parse(login).unwrap(), Instant::now() + SOON);
        loop {
            let verdict = self.prover.prove_now(&login).await;
            if verdict != Verdict::Unreachable || Instant::now() > deadline {
                return verdict;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_current_gateway_is_proved_and_faults_of_bots_are_told_apart() {
    let gateway = tokio::task::block_in_place(RealGateway::shared);
    let edge = Edge::of(gateway, Some(gateway.default_key()));
    edge.prover.run(&edge.tasks);
    let proved = || edge.prover.report().gateways[0].bots_proved == 2;
    tokio::time::timeout(SOON, async {
        while !proved() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .expect("alice and bob are proved");
    let report = edge.prover.report();
    assert_eq!(report.gateways[0].standing, "proved");
    assert_eq!(report.gateways[0].default_key, DefaultKey::Shown);
    assert_eq!(report.gateways[0].isolation, Isolation::Proven);

    edge.adopt("nobody", "a-key-of-a-profile-that-is-not-there");
    assert_eq!(edge.prove("nobody").await, Verdict::UnservedProfile);
    edge.adopt("alice", "not-the-key-that-alice-has");
    assert_eq!(edge.prove("alice").await, Verdict::WrongKey);
    edge.adopt("alice", gateway.default_key());
    assert_eq!(edge.prove("alice").await, Verdict::WrongKey);
    edge.adopt("alice", &hermes::Bot::of("bob").api_key);
    assert_eq!(edge.prove("alice").await, Verdict::WrongKey);
    assert_eq!(edge.bot("alice").standing(), BotStanding::Refused);
    // None of these is the gateway's fault.
    assert_eq!(edge.target.standing(), GatewayStanding::Proved);
    edge.adopt("alice", &hermes::Bot::of("alice").api_key);
    assert_eq!(edge.prove("alice").await, Verdict::Proved);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_with_the_default_key_is_refused() {
    let mut shared = hermes::Bot::of("carol");
    let gateway = tokio::task::block_in_place(RealGateway::shared);
    shared.api_key = gateway.default_key().to_owned();
    gateway.add_bot(&shared);
    for default_key in [None, Some(gateway.default_key())] {
        let edge = Edge::of(gateway, default_key);
        edge.adopt("carol", &shared.api_key);
        assert_eq!(edge.prove("carol").await, Verdict::SharedKey);
        assert_eq!(edge.bot("carol").standing(), BotStanding::Refused);
        assert_eq!(edge.prove("alice").await, Verdict::Proved);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_old_gateway_is_refused_and_the_proof_says_why() {
    let gateway = tokio::task::block_in_place(RealGateway::shared_old);
    let edge = Edge::of(gateway, Some(gateway.default_key()));
    assert_eq!(edge.prove("alice").await, Verdict::DefaultKeyAccepted);
    assert_eq!(edge.target.standing(), GatewayStanding::ProofFailed);
    let report = edge.prover.report();
    assert_eq!((report.is_ready(), report.gateways[0].fault), (false, Some(Verdict::DefaultKeyAccepted)));

    // Without the default key it shows by the bots: their own keys open nothing, and nothing is served.
    let edge = Edge::of(gateway, None);
    assert_eq!(edge.prove("alice").await, Verdict::WrongKey);
    assert_eq!(edge.target.standing(), GatewayStanding::Starting);
    edge.adopt("alice", gateway.default_key());
    assert!(matches!(edge.prove("alice").await, Verdict::SharedKey | Verdict::PrefixIgnored));
    assert_ne!(edge.target.standing(), GatewayStanding::Proved);
}

#[derive(Default)]
struct Rows(Mutex<Vec<String>>);

impl RunLog for Rows {
    fn opened(&self, run: &OpenRun) {
        self.0.lock().unwrap().push(format!("+{}", run.run));
    }
    fn ended(&self, run: &Identifier) {
        self.0.lock().unwrap().push(format!("-{run}"));
    }
}

fn start(gateway: &RealGateway, input: &str) -> Identifier {
    let alice = hermes::Bot::of("alice");
    let call = Call::post(&alice.path("/v1/runs"), &json!({"input": input})).bearer(&alice.api_key);
    let answer = tokio::task::block_in_place(|| call.send(gateway.address()));
    assert_eq!(answer.status, 202, "{}", answer.body);
    Identifier::parse(answer.json()["run_id"].as_str().unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_are_followed_to_their_real_ends() {
    let gateway = tokio::task::block_in_place(RealGateway::shared);
    let edge = Edge::of(gateway, None);
    let rows = Arc::new(Rows::default());
    let log: Arc<dyn RunLog> = Arc::<Rows>::clone(&rows);
    let runs = Runs::start(Arc::clone(&edge.directory), log, RunTimes::default(), 10, &edge.tasks);
    let follow = |login: &str, run: &Identifier, revoked: &Cancellation| {
        let (sender, ended) = tokio::sync::oneshot::channel();
        let watch = RunWatch::new(edge.bot(login), run.clone());
        let on_end = Box::new(move |end| sender.send(end).unwrap());
        runs.reserve().unwrap().follow(watch, &Uid::random(), None, revoked.clone(), on_end);
        async move { tokio::time::timeout(SOON, ended).await.expect("it ends").unwrap() }
    };

    let never = Cancellation::new();
    let completes = start(gateway, "SLEEP:2 in a followed run");
    let end = follow("alice", &completes, &never);
    assert_eq!(runs.owner(&completes).as_ref(), Some(edge.bot("alice").uid()));
    assert_eq!(end.await, RunEnd::Completed);
    assert_eq!(*rows.0.lock().unwrap(), [format!("+{completes}"), format!("-{completes}")]);

    let (revoked, held) = (Cancellation::new(), start(gateway, "HOLD a run that is revoked"));
    let end = follow("alice", &held, &revoked);
    revoked.cancel();
    assert_eq!(end.await, RunEnd::Revoked);
    let alice = hermes::Bot::of("alice");
    let look = Call::get(&alice.path(&format!("/v1/runs/{held}"))).bearer(&alice.api_key);
    let answer = tokio::task::block_in_place(|| look.send(gateway.address()));
    assert_eq!(answer.json()["status"], "cancelled");

    let unknown = Identifier::parse("run_00000000000000000000000000000000").unwrap();
    assert_eq!(follow("alice", &unknown, &never).await, RunEnd::Lost);

    // Bob's watch does not see alice's run, and does not stop it.
    let (revoked, hers) = (Cancellation::new(), start(gateway, "SLEEP:2 in a run of alice alone"));
    revoked.cancel();
    assert_eq!(follow("bob", &hers, &revoked).await, RunEnd::Revoked);
    assert_eq!(follow("alice", &hers, &never).await, RunEnd::Completed);
    edge.tasks.drain(Duration::from_secs(1)).await;
}
