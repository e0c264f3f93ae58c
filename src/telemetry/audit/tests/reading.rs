use super::*;

#[tokio::test]
async fn a_reader_filters_and_follows_across_segments() {
    let mut log = Log::new();
    log.segment_bytes = 1_000;
    let audit = log.start();
    let mut all = Reader::new(&log.path, Filter::default());
    let mut of_bob = Reader::new(&log.path, Filter { login: Some("bob".into()), ..Filter::default() });
    for round in 0..10 {
        let bob = open(audit.reserve(&alice()).unwrap(), "bob", &format!("b{round}"));
        bob.written().await.unwrap();
        drop(open(audit.reserve(&alice()).unwrap(), "alice", "a"));
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
