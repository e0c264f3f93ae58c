use super::*;

#[tokio::test]
async fn a_turn_has_an_open_and_a_close_record_that_name_the_person() {
    let log = Log::new();
    let audit = log.start();
    let turn = open(audit.reserve(&alice()).unwrap(), "alice", "r1");
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
    drop(open(audit.reserve(&alice()).unwrap(), "alice", "r1"));
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
                    let open = open(slots, "alice", &format!("{thread}-{turn}"));
                    open.close(closed(Outcome::Finished));
                }
            })
            .unwrap()
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    until("a second segment", || segment::list(&log.path).unwrap().len() > 1).await;
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
