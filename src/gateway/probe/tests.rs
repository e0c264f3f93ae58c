use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::directory::{BotStanding, Directory, GatewayStanding};
use crate::gateway::test_gateway::{Asked, TestGateway, bot, bot_with_key, eventually};
use crate::secret::ApiServerKey;
use crate::tasks::Tasks;
use crate::telemetry::metrics::Metrics;

const OK: (u16, &str) = (200, r#"{"object":"list","data":[]}"#);
const REFUSED: (u16, &str) =
    (401, r#"{"error":{"message":"x","type":"gateway_auth_error","code":"gateway_auth_failed"}}"#);
const UNKNOWN: (u16, &str) = (404, r#"{"error":"Unknown or unconfigured profile"}"#);

/// Answers as Hermes 0.22 does: every profile has its own key.
fn hermes(keys: HashMap<String, String>) -> impl Fn(&Asked) -> (u16, &'static str) {
    move |asked| {
        let path = asked.line.strip_prefix("GET ").unwrap();
        if path == "/health" {
            return OK;
        }
        let Some(prefix) = path.strip_suffix("/v1/models") else { return UNKNOWN };
        match keys.get(prefix) {
            Some(key) if asked.key.as_ref() == Some(key) => OK,
            Some(_) => REFUSED,
            None => UNKNOWN,
        }
    }
}

/// An edge with alice and bob on one gateway.
struct Edge {
    gateway: TestGateway,
    directory: Arc<Directory>,
    target: Arc<GatewayTarget>,
    metrics: Arc<Metrics>,
    prover: Prover,
    default_key: String,
    tasks: Tasks,
}

impl Edge {
    async fn new() -> Self {
        Self::with(true, ProofTimes::default()).await
    }

    async fn with(knows_default: bool, times: ProofTimes) -> Self {
        let gateway = TestGateway::start(|_| (500, String::new())).await;
        let (directory, target) = (Arc::new(Directory::new()), gateway.target());
        directory.insert([bot("alice", &target), bot("bob", &target)]);
        let metrics = Metrics::new(&[target.name().clone()], &[]);
        let default_key = ApiServerKey::generate();
        let text = default_key.expose().to_owned();
        let proved = ProvedGateway { target: Arc::clone(&target), default_key: knows_default.then_some(default_key) };
        let prover = Prover::new(Arc::clone(&directory), vec![proved], Arc::clone(&metrics), times);
        let edge = Edge { gateway, directory, target, metrics, prover, default_key: text, tasks: Tasks::new() };
        edge.answers(hermes(edge.keys()));
        edge
    }

    /// Who may open what, as it should be.
    fn keys(&self) -> HashMap<String, String> {
        let bots = self.directory.snapshot();
        let own = bots.values().map(|bot| (bot.prefix().to_owned(), bot.key().expose().to_owned()));
        own.chain([(String::new(), self.default_key.clone())]).collect()
    }

    fn answers(&self, answer: impl Fn(&Asked) -> (u16, &'static str) + Send + 'static) {
        self.gateway.answers(move |asked| {
            let (status, body) = answer(asked);
            (status, body.to_owned())
        });
    }

    fn bot(&self, login: &str) -> Arc<Bot> {
        self.directory.bot(&Login::parse(login).unwrap()).unwrap()
    }

    async fn prove(&self, login: &str) -> Verdict {
        self.prover.prove_now(&Login::parse(login).unwrap()).await
    }

    fn standings(&self) -> (GatewayStanding, BotStanding) {
        (self.target.standing(), self.bot("alice").standing())
    }
}

#[tokio::test]
async fn a_gateway_that_binds_keys_to_paths_is_proved() {
    let edge = Edge::new().await;
    assert_eq!(edge.standings(), (GatewayStanding::Starting, BotStanding::Unproved));
    assert_eq!(edge.prove("alice").await, Verdict::Proved);
    assert_eq!(edge.standings(), (GatewayStanding::Proved, BotStanding::Proved));
    let (alice, bob) = (edge.bot("alice"), edge.bot("bob"));
    let asked = edge.gateway.asked();
    assert!(asked.iter().all(|asked| asked.user_agent == "botgate-proof"));
    let asked: Vec<_> = asked.iter().map(|asked| (asked.line.as_str(), asked.key.as_deref())).collect();
    let own = "GET /p/bot-alice/v1/models";
    assert_eq!(
        asked,
        [
            (own, Some(alice.key().expose())),
            (own, None),
            (own, Some(bob.key().expose())),
            (own, Some(edge.default_key.as_str())),
            ("GET /v1/models", Some(alice.key().expose())),
        ]
    );
    assert!(edge.metrics.render().contains("botgate_binding_proof_success{gateway=\"main\"} 1"));
}

#[tokio::test]
async fn faults_of_one_bot_are_told_apart_and_refuse_that_bot_alone() {
    let edge = Edge::new().await;
    assert_eq!(edge.prove("bob").await, Verdict::Proved);
    let mut keys = edge.keys();
    keys.remove("/p/bot-alice");
    edge.answers(hermes(keys.clone()));
    assert_eq!(edge.prove("alice").await, Verdict::UnservedProfile);
    assert_eq!(edge.standings(), (GatewayStanding::Proved, BotStanding::Refused));
    keys.insert("/p/bot-alice".to_owned(), "another key of that profile".to_owned());
    edge.answers(hermes(keys.clone()));
    assert_eq!(edge.prove("alice").await, Verdict::WrongKey);
    assert_eq!(edge.standings(), (GatewayStanding::Proved, BotStanding::Refused));
    // The key comes right again.
    edge.answers(hermes(edge.keys()));
    assert_eq!(edge.prove("alice").await, Verdict::Proved);
    assert_eq!(edge.standings(), (GatewayStanding::Proved, BotStanding::Proved));
}

#[tokio::test]
async fn a_weak_or_missing_key_is_named_when_it_can_be_known() {
    let edge = Edge::new().await;
    // Hermes takes placeholders for no key at all, long as they are.
    for weak in ["hf_xxxxxxxxxxxxxxxxxxxx", "xxxx-xxxx-xxxx-xxxx"] {
        edge.directory.insert([bot_with_key("alice", &edge.target, ApiServerKey::parse(weak).unwrap())]);
        edge.answers(|_| REFUSED);
        assert_eq!(edge.prove("alice").await, Verdict::MissingOrWeakKey, "{weak}");
    }
    edge.directory.insert([bot("alice", &edge.target)]);
    edge.answers(|_| (401, r#"{"error":{"code":"api_key_missing"}}"#));
    assert_eq!(edge.prove("alice").await, Verdict::MissingOrWeakKey);
    assert_eq!(edge.standings(), (GatewayStanding::Starting, BotStanding::Refused));
}

#[tokio::test]
async fn a_key_of_two_profiles_refuses_the_bot() {
    let edge = Edge::new().await;
    edge.directory.insert([bot_with_key("bob", &edge.target, edge.bot("alice").key().clone())]);
    edge.answers(hermes(edge.keys()));
    assert_eq!(edge.prove("alice").await, Verdict::SharedKey);
    assert_eq!(edge.standings(), (GatewayStanding::Starting, BotStanding::Refused));

    let edge = Edge::with(false, ProofTimes::default()).await;
    let mut keys = edge.keys();
    keys.insert(String::new(), edge.bot("alice").key().expose().to_owned());
    edge.answers(hermes(keys));
    assert_eq!(edge.prove("alice").await, Verdict::SharedKey);
}

#[tokio::test]
async fn a_wrong_key_accepted_takes_the_gateway_out_of_service() {
    let edge = Edge::new().await;
    let (alice, bob) = (edge.bot("alice").key().expose().to_owned(), edge.bot("bob").key().expose().to_owned());
    let default_key = edge.default_key.clone();
    type Misbehaviour = Box<dyn Fn(&Asked) -> bool + Send>;
    let own = alice.clone();
    let faults: [(Verdict, Misbehaviour); 5] = [
        (Verdict::NoKeyAccepted, Box::new(|_| true)),
        (Verdict::NoKeyAccepted, Box::new(|asked| asked.key.is_none() || asked.key.as_ref().unwrap().len() == 64)),
        (
            Verdict::NeighbourKeyAccepted,
            Box::new(move |asked| asked.key == Some(alice.clone()) || asked.key == Some(bob.clone())),
        ),
        // Hermes before 0.20: the default key everywhere, and the bot's own nowhere.
        (Verdict::DefaultKeyAccepted, Box::new(move |asked| asked.key.as_ref() == Some(&default_key))),
        (Verdict::PrefixIgnored, Box::new(move |asked| asked.key.as_ref() == Some(&own))),
    ];
    for (verdict, opens) in faults {
        edge.answers(hermes(edge.keys()));
        assert_eq!(edge.prove("alice").await, Verdict::Proved);
        assert_eq!(edge.target.standing(), GatewayStanding::Proved);
        edge.answers(move |asked| if opens(asked) { OK } else { REFUSED });
        assert_eq!(edge.prove("alice").await, verdict);
        assert_eq!(edge.target.standing(), GatewayStanding::ProofFailed, "{verdict}");
        let report = edge.prover.report();
        assert_eq!((report.is_ready(), report.gateways[0].fault), (false, Some(verdict)));
        assert_eq!(report.gateways[0].isolation, Isolation::Broken);
        assert!(edge.metrics.render().contains("botgate_binding_proof_success{gateway=\"main\"} 0"));
        // Silence does not bring it back.
        edge.answers(|_| (503, ""));
        assert_eq!(edge.prove("alice").await, Verdict::Unexpected(503));
        assert_eq!(edge.target.standing(), GatewayStanding::ProofFailed);
    }
}

#[tokio::test]
async fn a_barred_gateway_is_not_said_to_take_wrong_keys() {
    let edge = Edge::new().await;
    assert_eq!(edge.prove("alice").await, Verdict::Proved);
    assert!(edge.target.bar(true));
    let report = &edge.prover.report().gateways[0];
    assert_eq!((report.standing, report.servable, report.isolation), ("barred", false, Isolation::Unproven));
    assert!(edge.target.bar(false));
    assert_eq!(edge.prover.report().gateways[0].standing, "proved");
}

#[tokio::test]
async fn without_a_neighbour_a_made_up_key_is_tried() {
    let edge = Edge::new().await;
    edge.directory.remove(&Login::parse("bob").unwrap());
    edge.answers(|asked| if asked.key.is_some() { OK } else { REFUSED });
    assert_eq!(edge.prove("alice").await, Verdict::NoKeyAccepted);
}

#[tokio::test]
async fn silence_and_failures_leave_the_last_result() {
    let edge = Edge::with(true, ProofTimes { longest: Duration::from_millis(100), ..ProofTimes::default() }).await;
    assert_eq!(edge.prove("alice").await, Verdict::Proved);
    for (status, verdict) in [
        (500, Verdict::Unexpected(500)),
        (302, Verdict::Unexpected(302)),
        (429, Verdict::Unexpected(429)),
        (0, Verdict::Unreachable),
    ] {
        edge.answers(move |_| (status, ""));
        assert_eq!(edge.prove("alice").await, verdict);
        assert_eq!(edge.standings(), (GatewayStanding::Proved, BotStanding::Proved), "{status}");
    }
    // An answer to the right key alone proves nothing.
    let own = edge.bot("alice").key().expose().to_owned();
    edge.answers(move |asked| match asked.key.as_ref() == Some(&own) {
        true if asked.line.contains("/p/bot-alice/") => OK,
        true => REFUSED,
        false => (500, ""),
    });
    assert_eq!(edge.prove("alice").await, Verdict::Unexpected(500));
    edge.gateway.stop().await;
    assert_eq!(edge.prove("alice").await, Verdict::Unreachable);
    assert_eq!(edge.standings(), (GatewayStanding::Proved, BotStanding::Proved));
    assert!(!edge.prover.report().gateways[0].reachable);
}

#[tokio::test]
async fn silence_that_lasts_takes_the_proof_away() {
    let times = ProofTimes { stands: Duration::ZERO, ..ProofTimes::default() };
    let edge = Edge::with(true, times).await;
    assert_eq!(edge.prove("alice").await, Verdict::Proved);
    edge.answers(|_| (500, ""));
    edge.prove("alice").await;
    assert_eq!(edge.standings(), (GatewayStanding::Starting, BotStanding::Proved));
    edge.answers(hermes(edge.keys()));
    edge.prove("alice").await;
    assert_eq!(edge.target.standing(), GatewayStanding::Proved);
}

#[tokio::test]
async fn a_bot_that_is_replaced_during_its_proof_is_not_judged_by_it() {
    let edge = Edge::new().await;
    let (directory, target) = (Arc::clone(&edge.directory), Arc::clone(&edge.target));
    edge.answers(move |_| {
        directory.insert([bot("alice", &target)]);
        UNKNOWN
    });
    assert_eq!(edge.prove("alice").await, Verdict::UnservedProfile);
    assert_eq!(edge.standings(), (GatewayStanding::Starting, BotStanding::Unproved));
}

fn short() -> ProofTimes {
    let interval = Duration::from_millis(10);
    ProofTimes {
        interval,
        interval_open: interval,
        interval_starting: interval,
        share: 2,
        suspicion: Duration::from_millis(300),
        ..ProofTimes::default()
    }
}

#[tokio::test]
async fn passes_prove_all_and_show_the_default_key() {
    let edge = Edge::with(true, short()).await;
    edge.directory.insert((0..20).map(|n| bot(&format!("p{n}"), &edge.target)));
    edge.answers(|_| (503, ""));
    edge.prover.run(&edge.tasks);
    eventually("a failed pass", || edge.gateway.count("GET /v1/models") >= 3).await;
    assert_eq!(edge.target.standing(), GatewayStanding::Starting);
    assert!(!edge.prover.report().is_ready());
    edge.answers(hermes(edge.keys()));
    eventually("all proved", || edge.prover.report().gateways[0].bots_proved == 22).await;
    let report = edge.prover.report();
    let gateway = &report.gateways[0];
    assert_eq!((gateway.default_key, gateway.isolation), (DefaultKey::Shown, Isolation::Proven));
    assert!(report.is_ready() && gateway.not_proved.is_empty());
    assert!(edge.tasks.drain(Duration::from_secs(5)).await);
}

#[tokio::test]
async fn without_the_default_key_isolation_is_unproven() {
    let edge = Edge::with(false, short()).await;
    assert_eq!(edge.prove("alice").await, Verdict::Proved);
    let report = edge.prover.report();
    assert_eq!(report.gateways[0].default_key, DefaultKey::NotConfigured);
    assert_eq!(report.gateways[0].isolation, Isolation::Unproven);
    // A file with another key than the default profile's shows nothing either.
    let edge = Edge::with(true, short()).await;
    let mut keys = edge.keys();
    keys.insert(String::new(), "a key that the edge does not know".to_owned());
    edge.answers(hermes(keys));
    edge.prover.run(&edge.tasks);
    eventually("a pass", || edge.target.standing() == GatewayStanding::Proved).await;
    let report = edge.prover.report();
    assert_eq!(report.gateways[0].default_key, DefaultKey::Refused);
    assert_eq!(report.gateways[0].isolation, Isolation::Unproven);
}

#[tokio::test]
async fn a_gateway_without_bots_is_ready_when_it_answers() {
    let edge = Edge::with(false, short()).await;
    for login in ["alice", "bob"] {
        edge.directory.remove(&Login::parse(login).unwrap());
    }
    assert!(!edge.prover.report().is_ready());
    edge.prover.run(&edge.tasks);
    eventually("readiness", || edge.prover.report().is_ready()).await;
    assert_eq!(edge.prove("alice").await, Verdict::NoBot);
}

#[tokio::test]
async fn a_suspected_bot_is_proved_once_however_often_it_is_suspected() {
    let long = Duration::from_secs(3600);
    let times = ProofTimes { interval: long, interval_open: long, ..short() };
    let edge = Edge::with(false, times).await;
    edge.prover.run(&edge.tasks);
    eventually("the first pass", || edge.prover.report().gateways[0].bots_proved == 2).await;
    let own = "GET /p/bot-alice/v1/models";
    let before = edge.gateway.count(own);
    let mut keys = edge.keys();
    keys.remove("/p/bot-alice");
    edge.answers(hermes(keys));
    let alice = Login::parse("alice").unwrap();
    for _ in 0..100 {
        edge.prover.suspect(&alice);
    }
    eventually("a refusal", || edge.bot("alice").standing() == BotStanding::Refused).await;
    assert_eq!(edge.gateway.count(own), before + 1);
    edge.answers(hermes(edge.keys()));
    eventually("a second proof", || {
        edge.prover.suspect(&alice);
        edge.bot("alice").standing() == BotStanding::Proved
    })
    .await;
}

#[tokio::test]
async fn looking_at_a_bot_changes_nothing() {
    let edge = Edge::new().await;
    let gone = bot("carol", &edge.target);
    assert_eq!(edge.prover.look_at(&gone).await, Verdict::UnservedProfile);
    assert_eq!(edge.prover.look_at(&edge.bot("alice")).await, Verdict::Proved);
    assert_eq!(edge.standings(), (GatewayStanding::Starting, BotStanding::Unproved));
}

#[tokio::test]
async fn reports_and_debug_output_hold_no_key() {
    let edge = Edge::new().await;
    edge.answers(|_| REFUSED);
    assert_eq!(edge.prove("alice").await, Verdict::WrongKey);
    let report = serde_json::to_string(&edge.prover.report()).unwrap();
    assert!(report.contains(r#"{"login":"alice","verdict":"wrong_key"}"#), "{report}");
    let shown = format!("{report}{:?}", edge.prover);
    assert!(edge.keys().values().all(|key| !shown.contains(key)));
}

#[tokio::test]
async fn passes_keep_to_their_share_of_the_time() {
    let edge = Edge::with(false, ProofTimes { share: 1_000_000, ..short() }).await;
    edge.prover.run(&edge.tasks);
    eventually("the first pass", || edge.prover.report().gateways[0].bots_proved == 2).await;
    let asked = edge.gateway.asked().len();
    tokio::time::timeout(Duration::from_millis(200), std::future::pending::<()>()).await.unwrap_err();
    assert_eq!(edge.gateway.asked().len(), asked);
}
