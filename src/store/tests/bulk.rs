use std::time::{Duration, Instant};

use super::*;

const MANY: usize = 10_000;
/// Far above what an idle machine needs even without optimisation, far below what one transaction a row would take.
const LIMIT: Duration = Duration::from_secs(20);

#[tokio::test]
async fn ten_thousand_people_and_sessions_come_in_within_seconds() {
    let fixture = Fixture::new();
    let lines: Vec<_> = (0..MANY)
        .map(|n| ImportLine {
            login: login(&format!("person-{n}")),
            role: role(),
            gateway: gateway(),
            key: (n % 2 == 0).then(ApiServerKey::generate),
        })
        .collect();
    let begun = Instant::now();
    let outcomes = fixture.store.import_people(lines.clone()).await.unwrap();
    let imported = begun.elapsed();
    let people: Vec<_> = outcomes
        .into_iter()
        .map(|outcome| match outcome {
            ImportOutcome::Added { person, .. } => person,
            ImportOutcome::Exists(row) => panic!("{row:?}"),
        })
        .collect();
    let sessions = people.iter().map(|person| new_session(&person.uid, TokenKind::Session)).collect();
    let begun = Instant::now();
    let outcomes = fixture.store.create_sessions(sessions).await.unwrap();
    let created = begun.elapsed();
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), MANY);
    let begun = Instant::now();
    let loaded = fixture.store.load().await.unwrap();
    println!("import {imported:?}, sessions {created:?}, load {:?}", begun.elapsed());
    assert_eq!((loaded.people.len(), loaded.bots.len(), loaded.sessions.len()), (MANY, MANY / 2, MANY));
    assert!(imported < LIMIT && created < LIMIT, "import {imported:?}, sessions {created:?}");

    let again = fixture.store.import_people(lines).await.unwrap();
    assert!(again.iter().all(|outcome| matches!(outcome, ImportOutcome::Exists(_))));
}

#[tokio::test]
async fn a_login_twice_in_one_import_counts_once() {
    let fixture = Fixture::new();
    let (first, second) = (ApiServerKey::generate(), ApiServerKey::generate());
    let line = |key: &ApiServerKey| ImportLine {
        login: login("alice"),
        role: role(),
        gateway: gateway(),
        key: Some(key.clone()),
    };
    let outcomes = fixture.store.import_people(vec![line(&first), line(&second)]).await.unwrap();
    assert!(matches!(&outcomes[0], ImportOutcome::Added { bot: Some(_), .. }));
    assert!(matches!(&outcomes[1], ImportOutcome::Exists(_)));
    assert_eq!(fixture.store.load().await.unwrap().bots[0].key.expose(), first.expose());
}

#[tokio::test]
async fn a_batch_over_the_bound_is_refused() {
    let fixture = Fixture::new();
    let used = vec![(Uid::random(), 1); MAX_BATCH + 1];
    let refused = fixture.store.flush_bot_tokens(used).await;
    assert!(matches!(refused, Err(StoreError::TooMany { most: MAX_BATCH })));
}
