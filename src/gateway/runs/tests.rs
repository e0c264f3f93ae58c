use std::sync::Mutex;

use metrics::Gauge;

use super::*;
use crate::directory::Bot;
use crate::gateway::permits::{QueueRoom, TurnLimits, Turns};
use crate::gateway::test_gateway::{self, Asked, TestGateway, eventually};
use crate::secret::ApiServerKey;

const SHORT: Duration = Duration::from_millis(20);
const GET: &str = "GET /p/bot-alice/v1/runs/run_1";
const STOP: &str = "POST /p/bot-alice/v1/runs/run_1/stop";

fn status(word: &str) -> (u16, String) {
    (200, format!(r#"{{"object":"hermes.run","run_id":"run_1","status":"{word}"}}"#))
}

fn unknown_run() -> (u16, String) {
    (404, r#"{"error":{"message":"Run not found: run_1","code":"run_not_found"}}"#.to_owned())
}

#[derive(Default)]
struct Rows(Mutex<Vec<String>>);

impl RunLog for Rows {
    fn opened(&self, run: &OpenRun) {
        self.0.lock().unwrap().push(format!("+{} {}", run.run, run.profile));
    }
    fn ended(&self, run: &Identifier) {
        self.0.lock().unwrap().push(format!("-{run}"));
    }
}

/// An edge's view of one gateway with alice's bot on it, with short times.
struct Edge {
    gateway: TestGateway,
    directory: Arc<Directory>,
    rows: Arc<Rows>,
    runs: Runs,
    turns: Turns,
    tasks: Tasks,
    alice: Arc<Bot>,
    ends: Arc<Mutex<Vec<RunEnd>>>,
}

impl Edge {
    async fn with(most: usize, times: RunTimes, answer: impl FnMut(&Asked) -> (u16, String) + Send + 'static) -> Self {
        let gateway = TestGateway::start(answer).await;
        let (directory, rows, tasks) = (Arc::new(Directory::new()), Arc::new(Rows::default()), Tasks::new());
        let bot = test_gateway::bot("alice", &gateway.target());
        let login = bot.login().clone();
        directory.insert([bot]);
        let alice = directory.bot(&login).unwrap();
        let log: Arc<dyn RunLog> = Arc::<Rows>::clone(&rows);
        let runs = Runs::start(Arc::clone(&directory), log, times, most, &tasks);
        let limits = TurnLimits {
            max_turns: 1,
            per_person: 1,
            queue_per_person: 1,
            queue_total: QueueRoom::new(1),
            queue_wait: SHORT,
        };
        let turns = Turns::new(limits, Gauge::noop(), Gauge::noop());
        Edge { gateway, directory, rows, runs, turns, tasks, alice, ends: Arc::default() }
    }

    async fn start(answer: impl FnMut(&Asked) -> (u16, String) + Send + 'static) -> Self {
        Self::with(10, times(), answer).await
    }

    fn watch(&self) -> RunWatch {
        RunWatch::new(Arc::clone(&self.alice), Identifier::parse("run_1").unwrap())
    }

    fn follow(&self, revoked: &Cancellation) {
        let permit = self.turns.take_over(self.alice.uid());
        let ends = Arc::clone(&self.ends);
        let on_end: OnEnd = Box::new(move |end| ends.lock().unwrap().push(end));
        self.runs.reserve().unwrap().follow(self.watch(), &Uid::random(), Some(permit), revoked.clone(), on_end);
    }

    /// Waits for the next end, and checks that nothing of the run is left.
    async fn end(&self) -> RunEnd {
        eventually("an end", || !self.ends.lock().unwrap().is_empty() && self.runs.open() == 0).await;
        assert_eq!(self.turns.in_flight(), 0);
        let mut ends = self.ends.lock().unwrap();
        assert_eq!(ends.len(), 1);
        ends.remove(0)
    }

    fn rows(&self) -> Vec<String> {
        self.rows.0.lock().unwrap().clone()
    }
}

fn times() -> RunTimes {
    RunTimes {
        first_poll: SHORT,
        slowest_poll: SHORT,
        fastest_poll: SHORT / 4,
        unknown_run: 3 * SHORT,
        unknown_profile: 5 * SHORT,
        refused: 5 * SHORT,
        stop_again: 2 * SHORT,
        longest: Duration::from_secs(60),
    }
}

#[tokio::test]
async fn a_run_keeps_permit_and_owner_until_the_gateway_says_it_has_ended() {
    let edge = Edge::start(|_| status("running")).await;
    edge.follow(&Cancellation::new());
    let run = Identifier::parse("run_1").unwrap();
    eventually("some questions", || edge.gateway.count(GET) >= 3).await;
    assert_eq!((edge.turns.in_flight(), edge.runs.owner(&run)), (1, Some(edge.alice.uid().clone())));
    assert_eq!(edge.rows(), ["+run_1 bot-alice"]);
    edge.gateway.answers(|_| status("completed"));
    assert_eq!(edge.end().await, RunEnd::Completed);
    assert_eq!(edge.runs.owner(&run), None);
    assert_eq!(edge.rows(), ["+run_1 bot-alice", "-run_1"]);
    assert!(edge.gateway.asked().iter().all(|asked| asked.line == GET
        && asked.user_agent == "botgate-run"
        && asked.key.as_deref() == Some(edge.alice.key().expose())));
}

#[tokio::test]
async fn a_revoked_run_is_stopped_and_keeps_its_permit_until_it_has_ended() {
    let edge = Edge::start(|_| status("running")).await;
    let revoked = Cancellation::new();
    edge.follow(&revoked);
    eventually("a question", || edge.gateway.count(GET) >= 1).await;
    assert_eq!(edge.gateway.count(STOP), 0);
    revoked.cancel();
    // The gateway goes on: it is told again, and the permit stays with its work.
    eventually("repeated stops", || edge.gateway.count(STOP) >= 3).await;
    assert_eq!(edge.turns.in_flight(), 1);
    edge.gateway.answers(|_| status("cancelled"));
    assert_eq!(edge.end().await, RunEnd::Revoked);
}

#[tokio::test]
async fn a_stop_that_fails_is_tried_again() {
    let mut failures = 3;
    let edge = Edge::start(move |asked| match asked.line.as_str() {
        STOP if failures > 0 => {
            failures -= 1;
            (503, String::new())
        }
        STOP => status("stopping"),
        _ => status("running"),
    })
    .await;
    let revoked = Cancellation::new();
    revoked.cancel();
    edge.follow(&revoked);
    eventually("stops", || edge.gateway.count(STOP) >= 4).await;
    edge.gateway.answers(|_| status("cancelled"));
    assert_eq!(edge.end().await, RunEnd::Revoked);
}

#[tokio::test]
async fn a_slow_answer_does_not_delay_the_stop() {
    let edge = Edge::start(|asked| if asked.line == GET { (0, String::new()) } else { status("stopping") }).await;
    let revoked = Cancellation::new();
    edge.follow(&revoked);
    eventually("a question", || edge.gateway.count(GET) >= 1).await;
    let since = std::time::Instant::now();
    revoked.cancel();
    eventually("the stop", || edge.gateway.count(STOP) >= 1).await;
    assert!(since.elapsed() < Duration::from_secs(1));
}

#[tokio::test]
async fn a_gateway_that_is_down_or_failing_ends_nothing() {
    let edge = Edge::start(|_| (500, String::new())).await;
    edge.follow(&Cancellation::new());
    eventually("some questions", || edge.gateway.count(GET) >= 10).await;
    assert_eq!((edge.turns.in_flight(), edge.runs.open()), (1, 1));
    edge.gateway.stop().await;
    tokio::time::timeout(10 * SHORT, std::future::pending::<()>()).await.unwrap_err();
    assert_eq!((edge.turns.in_flight(), edge.runs.open()), (1, 1));
}

#[tokio::test]
async fn a_run_that_the_gateway_does_not_know_is_lost_but_not_at_the_first_word() {
    let edge = Edge::start(|_| unknown_run()).await;
    edge.follow(&Cancellation::new());
    assert_eq!(edge.end().await, RunEnd::Lost);
    assert!(edge.gateway.count(GET) >= 2);
    let edge = Edge::start(|_| (404, r#"{"error":"Unknown or unconfigured profile"}"#.to_owned())).await;
    edge.follow(&Cancellation::new());
    assert_eq!(edge.end().await, RunEnd::Lost);
    assert!(edge.gateway.count(GET) >= 4);
}

#[tokio::test]
async fn a_rotated_key_is_taken_up() {
    let edge = Edge::start(|_| (401, String::new())).await;
    let old = edge.alice.key().expose().to_owned();
    edge.follow(&Cancellation::new());
    eventually("a refusal", || edge.gateway.count(GET) >= 1).await;
    edge.gateway.answers(move |asked| match asked.key.as_deref() == Some(&old) {
        true => (401, String::new()),
        false => status("completed"),
    });
    let (login, uid, profile) = (edge.alice.login(), edge.alice.uid(), edge.alice.profile());
    let gateway = Arc::clone(edge.alice.gateway());
    let renewed = Bot::new(login.clone(), uid.clone(), profile.clone(), gateway, ApiServerKey::generate());
    edge.directory.insert(renewed);
    assert_eq!(edge.end().await, RunEnd::Completed);
}

#[tokio::test]
async fn a_key_that_stays_refused_abandons_the_run_and_never_uses_another_persons() {
    let edge = Edge::start(|_| (401, String::new())).await;
    // The same login, but another person's row: not this run's owner.
    edge.directory.insert([test_gateway::bot("alice", edge.alice.gateway())]);
    edge.follow(&Cancellation::new());
    assert_eq!(edge.end().await, RunEnd::Abandoned);
    let own = edge.alice.key().expose();
    assert!(edge.gateway.asked().iter().all(|asked| asked.key.as_deref() == Some(own)));
}

#[tokio::test]
async fn following_has_an_end() {
    let edge = Edge::with(1, RunTimes { longest: 5 * SHORT, ..times() }, |_| status("running")).await;
    edge.follow(&Cancellation::new());
    assert_eq!(edge.end().await, RunEnd::Abandoned);
    assert!(edge.runs.reserve().is_some());
}

#[tokio::test]
async fn the_number_of_runs_followed_is_bounded() {
    let edge = Edge::with(1, times(), |_| status("running")).await;
    let slot = edge.runs.reserve().unwrap();
    assert!(edge.runs.reserve().is_none());
    drop(slot);
    edge.follow(&Cancellation::new());
    assert!(edge.runs.reserve().is_none());
    edge.gateway.answers(|_| status("failed"));
    assert_eq!(edge.end().await, RunEnd::Failed);
    eventually("room", || edge.runs.reserve().is_some()).await;
}

#[tokio::test]
async fn a_replayed_answer_holds_no_second_permit() {
    let edge = Edge::start(|_| status("running")).await;
    edge.follow(&Cancellation::new());
    edge.follow(&Cancellation::new());
    assert_eq!(std::mem::take(&mut *edge.ends.lock().unwrap()), [RunEnd::Repeated]);
    assert_eq!((edge.turns.in_flight(), edge.rows().len()), (1, 1));
    edge.gateway.answers(|_| status("completed"));
    assert_eq!(edge.end().await, RunEnd::Completed);
}

#[tokio::test]
async fn a_nudge_asks_at_once_and_only_its_owner_may() {
    let slow = Duration::from_secs(60);
    let edge = Edge::with(1, RunTimes { first_poll: slow, ..times() }, |_| status("completed")).await;
    edge.follow(&Cancellation::new());
    let run = Identifier::parse("run_1").unwrap();
    edge.runs.nudge(&Uid::random(), &run);
    tokio::time::timeout(5 * SHORT, std::future::pending::<()>()).await.unwrap_err();
    assert_eq!(edge.gateway.asked(), []);
    edge.runs.nudge(edge.alice.uid(), &run);
    assert_eq!(edge.end().await, RunEnd::Completed);
}

#[tokio::test]
async fn a_stopping_edge_keeps_the_row_and_the_next_one_takes_the_run_up() {
    let edge = Edge::start(|_| status("running")).await;
    edge.follow(&Cancellation::new());
    eventually("a question", || edge.gateway.count(GET) >= 1).await;
    assert!(edge.tasks.drain(Duration::from_secs(5)).await);
    assert_eq!(edge.end().await, RunEnd::EdgeStopped);
    assert_eq!(edge.rows(), ["+run_1 bot-alice"]);
    // A slot that was taken before the stop comes to the same end.
    edge.follow(&Cancellation::new());
    assert_eq!(edge.end().await, RunEnd::EdgeStopped);

    let tasks = Tasks::new();
    let log: Arc<dyn RunLog> = Arc::<Rows>::clone(&edge.rows);
    let runs = Runs::start(Arc::clone(&edge.directory), log, times(), 1, &tasks);
    let row = ResumedRun {
        watch: edge.watch(),
        started_at: unix_millis(),
        permit: Some(edge.turns.take_over(edge.alice.uid())),
        revoked: Cancellation::new(),
    };
    runs.resume(vec![row]);
    assert_eq!(runs.owner(&Identifier::parse("run_1").unwrap()).as_ref(), Some(edge.alice.uid()));
    assert_eq!(edge.turns.in_flight(), 1);
    edge.gateway.answers(|_| status("interrupted"));
    eventually("its end", || runs.open() == 0).await;
    assert_eq!((edge.turns.in_flight(), edge.rows().last().unwrap().as_str()), (0, "-run_1"));
    assert!(tasks.drain(Duration::from_secs(5)).await);
}

#[tokio::test]
async fn a_resumed_run_of_a_revoked_person_is_stopped() {
    let edge = Edge::start(|asked| if asked.line == STOP { status("stopping") } else { status("cancelled") }).await;
    let revoked = Cancellation::new();
    revoked.cancel();
    edge.runs.resume(vec![ResumedRun { watch: edge.watch(), started_at: unix_millis(), permit: None, revoked }]);
    eventually("its end", || edge.runs.open() == 0).await;
    assert_eq!((edge.gateway.count(STOP), edge.rows()), (1, vec!["-run_1".to_owned()]));
}
