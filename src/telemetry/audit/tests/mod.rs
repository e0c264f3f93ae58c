mod damage;
mod disk;
mod reading;
mod turns;

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
        Audit::start_with(&self.path, KEY.into(), when_full, Arc::clone(&self.metrics), options)
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

fn open(slots: AuditSlots, login: &str, request_id: &str) -> OpenTurn {
    let login = Login::parse(login).unwrap();
    slots.open(&OpenRecord {
        request_id,
        profile: &ProfileName::of(&login),
        login: &login,
        uid: &alice(),
        session_id: &Uid::parse("5e").unwrap(),
        credential: TokenKind::Session,
        gateway: &GatewayName::parse("main").unwrap(),
        method: "POST",
        route: "chat_completions",
        peer: IpAddr::from([192, 0, 2, 1]),
        tunnel: false,
    })
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
