use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use serde_json::Value;
use tempfile::TempDir;

use super::*;
use crate::names::{GatewayName, Identifier, Login, ProfileName};
use crate::secret::TokenKind;
use crate::telemetry::reason::Reason;

const KEY: [u8; 32] = [7; 32];
const SOON: Duration = Duration::from_secs(10);

struct Log {
    _dir: TempDir,
    path: PathBuf,
    metrics: Arc<Metrics>,
    quota: Arc<AtomicU64>,
    segment_bytes: u64,
}

impl Log {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit");
        let quota = Arc::new(AtomicU64::new(u64::MAX));
        Log { _dir: dir, path, metrics: Metrics::new(&[], &[]), quota, segment_bytes: SEGMENT_BYTES }
    }

    fn start(&self) -> Audit {
        self.start_when_full(WhenFull::Refuse).unwrap()
    }

    fn start_when_full(&self, when_full: WhenFull) -> Result<Audit, AuditError> {
        let options = Options {
            segment_bytes: self.segment_bytes,
            tick: Duration::from_millis(20),
            quota: Some(Arc::clone(&self.quota)),
        };
        Audit::start_with(&self.path, KEY, when_full, Arc::clone(&self.metrics), options)
    }

    fn lines(&self) -> Vec<Value> {
        let mut reader = Reader::new(&self.path, Filter { seals: true, ..Filter::default() });
        std::iter::from_fn(|| reader.next_entry().unwrap()).map(|entry| entry.value().clone()).collect()
    }

    fn of_kind(&self, kind: &str) -> Vec<Value> {
        self.lines().into_iter().filter(|line| line["kind"] == kind).collect()
    }

    fn verify(&self) -> Report {
        verify(&self.path, KEY, None).unwrap()
    }
}

fn opened(login: &str, request_id: &str) -> OpenRecord {
    let login = Login::parse(login).unwrap();
    OpenRecord {
        request_id: request_id.into(),
        profile: ProfileName::of(&login),
        login,
        uid: Uid::parse("a1").unwrap(),
        session_id: Uid::parse("5e").unwrap(),
        credential: TokenKind::Session,
        gateway: GatewayName::parse("main").unwrap(),
        method: "POST",
        route: "chat_completions",
        peer: IpAddr::from([192, 0, 2, 1]),
        tunnel: false,
    }
}

fn closed(outcome: Outcome) -> CloseRecord {
    CloseRecord {
        status: Some(200),
        outcome,
        reason: Some(Reason::SessionRevoked),
        bytes_in: 1,
        bytes_out: 2,
        duration: Duration::from_millis(3),
        run_id: Some(Identifier::parse("run_1").unwrap()),
    }
}

fn alice() -> Uid {
    Uid::parse("a1").unwrap()
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_turn_has_an_open_and_a_close_record_that_name_the_person() {
    let log = Log::new();
    let audit = log.start();
    let turn = audit.reserve(&alice()).unwrap().open(opened("alice", "r1"));
    turn.written().await.unwrap();
    assert_eq!(log.of_kind("open").len(), 1, "on the disk once written() has answered");
    turn.written().await.unwrap();
    turn.close(closed(Outcome::Revoked));
    audit.stop(SOON).await.unwrap();
    let (open, close) = (&log.of_kind("open")[0], &log.of_kind("close")[0]);
    for (field, value) in [
        ("login", "alice"),
        ("uid", "a1"),
        ("session", "5e"),
        ("credential", "session"),
        ("profile", "bot-alice"),
        ("gateway", "main"),
        ("method", "POST"),
        ("route", "chat_completions"),
        ("peer", "192.0.2.1"),
        ("request_id", "r1"),
    ] {
        assert_eq!(open[field], value, "{field}");
    }
    assert_eq!(close["open"], open["seq"]);
    let of_close = serde_json::json!({"login": "alice", "request_id": "r1", "status": 200, "outcome": "revoked",
        "reason": "session_revoked", "bytes_in": 1, "bytes_out": 2, "duration_ms": 3, "run_id": "run_1"});
    for (field, value) in of_close.as_object().unwrap() {
        assert_eq!(&close[field], value, "{field}");
    }
    assert_eq!(audit.room().taken(), 0);
    assert_eq!(log.verify().unsealed, 0);
}

#[tokio::test]
async fn a_dropped_turn_is_interrupted_and_unused_room_comes_back() {
    let log = Log::new();
    let audit = log.start();
    drop(audit.reserve(&alice()).unwrap());
    drop(audit.reserve_one(&alice()).unwrap());
    assert_eq!(audit.room().taken(), 0);
    drop(audit.reserve(&alice()).unwrap().open(opened("alice", "r1")));
    audit.reserve_one(&alice()).unwrap().record(ActionRecord::new(
        Actor::Person { login: Login::parse("alice").unwrap(), uid: alice() },
        "response.delete",
        "resp_1",
        Outcome::Finished,
    ));
    audit.stop(SOON).await.unwrap();
    assert_eq!(log.of_kind("close")[0]["outcome"], "interrupted");
    assert_eq!(log.of_kind("action")[0]["login"], "alice");
    assert_eq!(audit.room().taken(), 0);
}

#[tokio::test]
async fn many_turns_from_many_threads_make_one_whole_chain() {
    let mut log = Log::new();
    log.segment_bytes = 20_000;
    let audit = log.start();
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let audit = audit.clone();
            Tasks::thread("turns", move || {
                for turn in 0..200 {
                    let slots = audit.reserve(&alice()).unwrap();
                    let open = slots.open(opened("alice", &format!("{thread}-{turn}")));
                    open.close(closed(Outcome::Finished));
                }
            })
            .unwrap()
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    audit.stop(SOON).await.unwrap();
    let report = log.verify();
    assert!(report.segments > 1, "{report:?}");
    assert_eq!((report.unsealed, report.torn_bytes, report.first_seq), (0, 0, 1));
    assert_eq!(report.head, audit.head());
    let (open, close) = (log.of_kind("open"), log.of_kind("close"));
    assert_eq!((open.len(), close.len()), (800, 800));
    let mut ends: Vec<_> = close.iter().map(|line| line["open"].as_u64().unwrap()).collect();
    ends.sort_unstable();
    assert_eq!(ends, open.iter().map(|line| line["seq"].as_u64().unwrap()).collect::<Vec<_>>());
    assert!(log.metrics.render().contains("botgate_audit_records_total 1602\n"), "start, stop and the turns'");
}

/// A crash, as the next start sees it: a copy of the directory while turns are open.
fn copy(log: &Log) -> Log {
    let other = Log { segment_bytes: log.segment_bytes, ..Log::new() };
    fs::create_dir(&other.path).unwrap();
    for entry in fs::read_dir(&log.path).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), other.path.join(entry.file_name())).unwrap();
    }
    other
}

#[tokio::test]
async fn turns_open_at_a_crash_are_lost_at_the_next_start_also_from_earlier_segments() {
    let mut log = Log::new();
    log.segment_bytes = 2_000;
    let audit = log.start();
    let old = audit.reserve(&alice()).unwrap().open(opened("alice", "old"));
    for turn in 0..50 {
        let turn = audit.reserve(&alice()).unwrap().open(opened("bob", &format!("r{turn}")));
        turn.written().await.unwrap();
        turn.close(closed(Outcome::Finished));
    }
    let new = audit.reserve(&alice()).unwrap().open(opened("carol", "new"));
    new.written().await.unwrap();
    until("closes are written", || log.of_kind("close").len() == 50).await;
    let crashed = copy(&log);
    assert!(crashed.verify().segments > 4);
    let again = crashed.start();
    let lost: Vec<_> = crashed.of_kind("lost");
    let who: Vec<_> = lost.iter().map(|line| (&line["request_id"], &line["login"], &line["outcome"])).collect();
    let outcome = &Value::from("lost");
    assert_eq!(who, [(&"old".into(), &"alice".into(), outcome), (&"new".into(), &"carol".into(), outcome)]);
    again.stop(SOON).await.unwrap();
    drop(crashed.start());
    assert_eq!(crashed.of_kind("lost").len(), 2, "lost once only");
    crashed.verify();
    drop((old, new));
}

/// kill -9 can cut the file at any byte of a batch.
#[tokio::test]
async fn a_log_cut_at_any_byte_of_its_last_batch_is_repaired_and_goes_on() {
    let log = Log::new();
    let audit = log.start();
    let file = segment::path(&log.path, 1);
    let before = fs::metadata(&file).unwrap().len();
    let turn = audit.reserve(&alice()).unwrap().open(opened("alice", "r1"));
    turn.written().await.unwrap();
    let whole = fs::read(&file).unwrap();
    let line_ends: Vec<usize> =
        whole.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1).collect();
    for cut in before as usize..=whole.len() {
        let crashed = Log::new();
        fs::create_dir(&crashed.path).unwrap();
        fs::write(segment::path(&crashed.path, 1), &whole[..cut]).unwrap();
        let kept = line_ends.iter().copied().filter(|end| *end <= cut).max().unwrap();
        assert_eq!(verify(&crashed.path, KEY, None).unwrap().torn_bytes, (cut - kept) as u64);
        let again = crashed.start();
        let start = crashed.of_kind("start").pop().unwrap();
        assert_eq!(start["repaired_bytes"], (cut - kept) as u64, "cut at {cut}");
        let opens = crashed.of_kind("open").len();
        assert_eq!(start["lost"], opens as u64);
        assert_eq!(crashed.of_kind("lost").len(), opens);
        assert_eq!(start["unsealed"], u64::from(opens == 1 && kept != whole.len()), "cut at {cut}");
        again.stop(SOON).await.unwrap();
        let report = crashed.verify();
        assert_eq!((report.torn_bytes, report.unsealed), (0, 0));
    }
    drop(turn);
}

#[tokio::test]
async fn every_changed_byte_is_found() {
    let log = Log::new();
    let audit = log.start();
    drop(audit.reserve(&alice()).unwrap().open(opened("alice", "r1")));
    audit.stop(SOON).await.unwrap();
    let file = segment::path(&log.path, 1);
    let whole = fs::read(&file).unwrap();
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        fs::write(&file, &changed).unwrap();
        assert!(verify(&log.path, KEY, Some(&audit.head())).is_err(), "byte {at}");
    }
    fs::write(&file, &whole).unwrap();
    log.verify();
}

#[tokio::test]
async fn removed_lines_segments_ends_and_foreign_keys_are_found() {
    let mut log = Log::new();
    log.segment_bytes = 1_500;
    let audit = log.start();
    for _ in 0..20 {
        let turn = audit.reserve(&alice()).unwrap().open(opened("alice", "r1"));
        turn.written().await.unwrap();
    }
    audit.stop(SOON).await.unwrap();
    let head = audit.head();
    assert_eq!(Head::parse(&head.to_string()), Some(head));
    assert!(verify(&log.path, KEY, Some(&head)).is_ok());
    let what = |log: &Log, key, head: Option<&Head>| verify(&log.path, key, head).unwrap_err().what;
    assert_eq!(what(&log, [8; 32], None), FaultKind::Seal);

    let cut = copy(&log);
    let last = segment::path(&cut.path, segment::list(&cut.path).unwrap().pop().unwrap());
    fs::remove_file(&last).unwrap();
    assert!(verify(&cut.path, KEY, None).is_ok(), "a chain cut at a seal looks whole");
    assert_eq!(what(&cut, KEY, Some(&head)), FaultKind::HeadMissing);

    let gap = copy(&log);
    fs::remove_file(segment::path(&gap.path, 2)).unwrap();
    assert_eq!(what(&gap, KEY, None), FaultKind::MissingSegment);

    let archived = copy(&log);
    fs::remove_file(segment::path(&archived.path, 1)).unwrap();
    assert!(verify(&archived.path, KEY, Some(&head)).unwrap().first_seq > 1);

    let forged = copy(&log);
    let first = segment::path(&forged.path, 1);
    let text = fs::read_to_string(&first).unwrap();
    let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
    lines.remove(2);
    fs::write(&first, lines.concat()).unwrap();
    assert_eq!(what(&forged, KEY, None), FaultKind::Sequence);
    let error = log_error(&copy_with_last_line(&log, "{\"seq\":1}\n"));
    assert!(matches!(error, AuditError::Corrupt(Fault { what: FaultKind::Malformed, .. })), "{error:?}");
}

fn copy_with_last_line(log: &Log, line: &str) -> Log {
    let other = copy(log);
    let last = segment::path(&other.path, segment::list(&other.path).unwrap().pop().unwrap());
    let text = fs::read_to_string(&last).unwrap() + line;
    fs::write(&last, text).unwrap();
    other
}

fn log_error(log: &Log) -> AuditError {
    log.start_when_full(WhenFull::Refuse).unwrap_err()
}

#[tokio::test]
async fn a_full_disk_refuses_turns_until_it_takes_records_again_and_nothing_is_missing() {
    let log = Log::new();
    let audit = log.start();
    let running = audit.reserve(&alice()).unwrap().open(opened("alice", "running"));
    running.written().await.unwrap();
    let reserved = audit.reserve(&alice()).unwrap();
    // Part of a line fits.
    log.quota.store(100, Ordering::SeqCst);
    let refused = reserved.open(opened("alice", "refused"));
    assert!(matches!(refused.written().await, Err(AuditError::NotWritten)));
    assert_eq!(audit.reserve(&alice()).unwrap_err(), AuditFull::Failing);
    assert_eq!(AuditFull::Failing.reason(), Reason::AuditFailed);
    assert!(!audit.is_healthy());
    let record = || ActionRecord::new(Actor::Operator { unix_uid: 5 }, "user.disable", "alice", Outcome::Finished);
    assert!(matches!(audit.record_written(record()).await, Err(AuditError::NotWritten)));
    refused.close(closed(Outcome::Refused));
    running.close(closed(Outcome::Finished));
    assert!(verify(&log.path, KEY, None).unwrap().torn_bytes > 0);
    assert!(!log.metrics.render().contains("botgate_audit_write_failures_total 0\n"));

    log.quota.store(u64::MAX, Ordering::SeqCst);
    until("turns are taken again", || audit.reserve(&alice()).is_ok()).await;
    audit.stop(SOON).await.unwrap();
    log.verify();
    assert_eq!((log.of_kind("open").len(), log.of_kind("close").len()), (2, 2));
    assert_eq!(log.of_kind("action")[0]["object"], "alice");
    assert_eq!(audit.room().taken(), 0);
}

#[tokio::test]
async fn a_full_disk_lets_turns_run_when_told_to_and_counts_what_is_missing() {
    let log = Log::new();
    let audit = log.start_when_full(WhenFull::Drop).unwrap();
    let reserved = audit.reserve(&alice()).unwrap();
    log.quota.store(0, Ordering::SeqCst);
    let first = reserved.open(opened("alice", "r1"));
    first.written().await.unwrap();
    until("the failure is known", || !audit.is_healthy()).await;
    let second = audit.reserve(&alice()).unwrap().open(opened("alice", "r2"));
    second.written().await.unwrap();
    second.close(closed(Outcome::Finished));
    assert!(log.metrics.render().contains("botgate_audit_dropped_records_total 1\n"));
}

#[tokio::test]
async fn refusals_are_recorded_within_their_budget_and_take_no_room_of_turns() {
    let mut log = Log::new();
    log.segment_bytes = 4_000;
    let audit = log.start();
    let (login, uid) = (Login::parse("alice").unwrap(), alice());
    let refusal = RefusalRecord {
        person: Some((&login, &uid)),
        peer: IpAddr::from([192, 0, 2, 7]),
        reason: Reason::NotOwnBot,
        request_id: "r9",
        route: Some("models"),
    };
    for _ in 0..1_000 {
        audit.refusal(&refusal);
        audit.refusal(&RefusalRecord { person: None, ..refusal });
    }
    assert_eq!(audit.room().taken(), 0);
    audit.stop(SOON).await.unwrap();
    let alone = log.of_kind("refusal");
    assert_eq!(alone[0]["reason"], "not_own_bot");
    assert_eq!(alone[0]["request_id"], "r9");
    let summaries = log.of_kind("refusals");
    let counted = |rows: &str| -> u64 {
        let rows = summaries.iter().flat_map(|line| line[rows].as_array().unwrap().clone());
        rows.map(|row| row["count"].as_u64().unwrap()).sum()
    };
    assert_eq!(alone.len() as u64 + counted("people"), 1_000);
    assert!(alone.len() <= 10 * (summaries.len() + 1), "{} in {} windows", alone.len(), summaries.len());
    assert_eq!(counted("networks"), 1_000);
    assert_eq!(summaries[0]["networks"][0]["network"], "192.0.2.0/24");
    log.verify();
}

#[tokio::test]
async fn an_operators_record_is_written_when_it_says_so() {
    let log = Log::new();
    let audit = log.start();
    let record = ActionRecord::new(Actor::Operator { unix_uid: 5 }, "user.disable", "alice", Outcome::Finished)
        .with("sessions", "3");
    audit.record_written(record).await.unwrap();
    let line = &log.of_kind("action")[0];
    assert_eq!((&line["by"], &line["unix_uid"]), (&"operator".into(), &5.into()));
    assert_eq!((&line["action"], &line["object"]), (&"user.disable".into(), &"alice".into()));
    assert_eq!(line["detail"]["sessions"], "3");
    audit.stop(SOON).await.unwrap();
    let late = ActionRecord::new(Actor::Edge, "late", "", Outcome::Failed);
    assert!(matches!(audit.record_written(late).await, Err(AuditError::Stopped)));
    assert!(audit.reserve(&alice()).is_err());
}

#[tokio::test]
async fn a_reader_filters_and_follows_across_segments() {
    let mut log = Log::new();
    log.segment_bytes = 1_000;
    let audit = log.start();
    let mut all = Reader::new(&log.path, Filter::default());
    let mut of_bob = Reader::new(&log.path, Filter { login: Some("bob".into()), ..Filter::default() });
    for round in 0..10 {
        let bob = audit.reserve(&alice()).unwrap().open(opened("bob", &format!("b{round}")));
        bob.written().await.unwrap();
        drop(audit.reserve(&alice()).unwrap().open(opened("alice", "a")));
        bob.close(closed(Outcome::Finished));
        let mut seen = Vec::new();
        until("bob's two records are followed", || {
            seen.extend(std::iter::from_fn(|| of_bob.next_entry().unwrap()));
            seen.iter().filter(|entry| entry.kind() != "carried").count() == 2
        })
        .await;
        let records: Vec<_> = seen.iter().filter(|entry| entry.kind() != "carried").collect();
        assert!(records.iter().all(|entry| entry.value()["request_id"] == format!("b{round}")));
        assert_eq!(records.iter().map(|entry| entry.kind()).collect::<Vec<_>>(), ["open", "close"]);
    }
    audit.stop(SOON).await.unwrap();
    let mut seqs = Vec::new();
    while let Some(entry) = all.next_entry().unwrap() {
        assert_ne!(entry.kind(), "mac");
        seqs.push(entry.value()["seq"].as_u64().unwrap());
    }
    assert!(seqs.is_sorted() && seqs.len() >= 42);
    let id = Filter { request_id: Some("b3".into()), ..Filter::default() };
    let mut by_id = Reader::new(&log.path, id);
    assert_eq!(std::iter::from_fn(|| by_id.next_entry().unwrap()).count(), 2);
    let mut none = Reader::new(&log.path, Filter { since: Some(now_ms() + 60_000), ..Filter::default() });
    assert!(none.next_entry().unwrap().is_none());
}

#[tokio::test]
async fn the_log_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let log = Log::new();
    drop(log.start());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&log.path), mode(&segment::path(&log.path, 1))), (0o700, 0o600));
}
