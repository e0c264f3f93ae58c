use super::*;

#[tokio::test]
async fn a_full_disk_refuses_turns_until_it_takes_records_again_and_nothing_is_missing() {
    let log = Log::new();
    let audit = log.start();
    let running = open(audit.reserve(&alice()).unwrap(), "alice", "running");
    running.written().await.unwrap();
    let reserved = audit.reserve(&alice()).unwrap();
    // Part of a line fits.
    log.quota.store(100, Ordering::SeqCst);
    let refused = open(reserved, "alice", "refused");
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
    let first = open(reserved, "alice", "r1");
    first.written().await.unwrap();
    until("the failure is known", || !audit.is_healthy()).await;
    let second = open(audit.reserve(&alice()).unwrap(), "alice", "r2");
    second.written().await.unwrap();
    second.close(closed(Outcome::Finished));
    assert!(log.metrics.render().contains("botgate_audit_dropped_records_total 1\n"));
}

#[tokio::test]
async fn the_log_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let log = Log::new();
    drop(log.start());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&log.path), mode(&segment::path(&log.path, 1))), (0o700, 0o600));
}
