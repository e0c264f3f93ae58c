use super::*;

#[tokio::test]
async fn turns_open_at_a_crash_are_lost_at_the_next_start_also_from_earlier_segments() {
    let mut log = Log::new();
    log.segment_bytes = 2_000;
    let audit = log.start();
    let old = open(audit.reserve(&alice()).unwrap(), "alice", "old");
    for turn in 0..50 {
        let turn = open(audit.reserve(&alice()).unwrap(), "bob", &format!("r{turn}"));
        turn.written().await.unwrap();
        turn.close(closed(Outcome::Finished));
    }
    let new = open(audit.reserve(&alice()).unwrap(), "carol", "new");
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
    let turn = open(audit.reserve(&alice()).unwrap(), "alice", "r1");
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
        let report = crashed.verify();
        assert_eq!((report.torn_bytes, report.unsealed), (0, 0));
        if kept == cut {
            again.stop(SOON).await.unwrap();
            crashed.verify();
        }
    }
    drop(turn);
}

#[tokio::test]
async fn every_changed_byte_is_found() {
    let log = Log::new();
    let audit = log.start();
    drop(open(audit.reserve(&alice()).unwrap(), "alice", "r1"));
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
        let turn = open(audit.reserve(&alice()).unwrap(), "alice", "r1");
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
