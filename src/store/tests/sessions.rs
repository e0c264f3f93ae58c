use super::*;

#[tokio::test]
async fn what_is_revoked_stays_revoked() {
    let mut fixture = Fixture::new();
    let alice = fixture.person("alice").await;
    let session = fixture.session(&alice.uid, TokenKind::Session).await;
    let revoked = fixture.store.revoke_session(session.id.clone()).await.unwrap();
    assert!(revoked.revoked_at.is_some());
    assert_eq!(fixture.store.revoke_session(session.id.clone()).await.unwrap(), revoked);
    let flush = IdleFlush { id: session.id.clone(), idle_expires_at: Some(i64::MAX), last_used_at: i64::MAX };
    fixture.store.flush_idle(vec![flush]).await.unwrap();
    fixture.restart().await;
    assert_eq!(fixture.store.list_sessions(SessionFilter::default()).await.unwrap(), [revoked]);
    assert!(fixture.store.load().await.unwrap().sessions.is_empty());
    assert!(matches!(fixture.store.revoke_session(Uid::random()).await, Err(StoreError::NoSuchToken)));
}

#[tokio::test]
async fn a_persons_sessions_are_revoked_by_kind() {
    let fixture = Fixture::new();
    let (alice, bob) = (fixture.person("alice").await, fixture.person("bob").await);
    let session = fixture.session(&alice.uid, TokenKind::Session).await;
    let personal = fixture.session(&alice.uid, TokenKind::Personal).await;
    let other = fixture.session(&bob.uid, TokenKind::Session).await;
    let revoke = |kinds| fixture.store.revoke_sessions_of(alice.uid.clone(), kinds);
    let ids = |rows: Vec<SessionRow>| rows.into_iter().map(|row| row.id).collect::<Vec<_>>();
    assert_eq!(ids(revoke(vec![TokenKind::Session]).await.unwrap()), [session.id]);
    assert!(revoke(vec![TokenKind::Session]).await.unwrap().is_empty());
    assert_eq!(ids(revoke(vec![TokenKind::Session, TokenKind::Personal]).await.unwrap()), [personal.id]);
    assert_eq!(fixture.store.load().await.unwrap().sessions, [other]);
}

#[tokio::test]
async fn ended_sessions_do_not_load_and_are_pruned() {
    let fixture = Fixture::new();
    let alice = fixture.person("alice").await;
    let now = now_ms();
    let past = NewSession { created_at: 10, expires_at: 20, ..new_session(&alice.uid, TokenKind::Session) };
    let idle = NewSession { idle_expires_at: Some(now - 1), ..new_session(&alice.uid, TokenKind::Session) };
    let live = NewSession { idle_expires_at: Some(now + 60_000), ..new_session(&alice.uid, TokenKind::Session) };
    let rows = fixture.store.create_sessions(vec![past, idle, live]).await.unwrap();
    let live = rows[2].clone().unwrap();
    assert_eq!(fixture.store.load().await.unwrap().sessions, std::slice::from_ref(&live));
    let filter = SessionFilter { live_only: true, ..SessionFilter::default() };
    assert_eq!(fixture.store.list_sessions(filter).await.unwrap(), [live]);
    assert_eq!(fixture.store.prune_sessions(now).await.unwrap(), 1);
    assert_eq!(fixture.store.list_sessions(SessionFilter::default()).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_flush_moves_no_end_nearer_and_gives_none_to_whom_has_none() {
    let fixture = Fixture::new();
    let alice = fixture.person("alice").await;
    let end = now_ms() + 60_000;
    let new = NewSession { idle_expires_at: Some(end), ..new_session(&alice.uid, TokenKind::Session) };
    let idle = fixture.store.create_sessions(vec![new]).await.unwrap().remove(0).unwrap();
    let endless = fixture.session(&alice.uid, TokenKind::Personal).await;
    let flush = |id: &Uid, idle_expires_at, last_used_at| IdleFlush { id: id.clone(), idle_expires_at, last_used_at };
    let flushes =
        vec![flush(&idle.id, Some(end + 5), 7), flush(&idle.id, Some(end - 5), 6), flush(&endless.id, Some(1), 9)];
    fixture.store.flush_idle(flushes).await.unwrap();
    fixture.store.flush_idle(vec![flush(&idle.id, None, 8)]).await.unwrap();
    let rows = fixture.store.list_sessions(SessionFilter::default()).await.unwrap();
    let row = |id: &Uid| rows.iter().find(|row| row.id == *id).unwrap();
    assert_eq!((row(&idle.id).idle_expires_at, row(&idle.id).last_used_at), (Some(end + 5), Some(8)));
    assert_eq!((row(&endless.id).idle_expires_at, row(&endless.id).last_used_at), (None, Some(9)));
}

#[tokio::test]
async fn one_bad_session_of_a_batch_spoils_none_of_the_others() {
    let fixture = Fixture::new();
    let alice = fixture.person("alice").await;
    let good = new_session(&alice.uid, TokenKind::Session);
    let batch = vec![
        good.clone(),
        good.clone(),
        new_session(&Uid::random(), TokenKind::Session),
        new_session(&alice.uid, TokenKind::Bot),
        NewSession { expires_at: good.created_at, ..new_session(&alice.uid, TokenKind::Session) },
        NewSession { label: Some("é".repeat(101)), ..new_session(&alice.uid, TokenKind::Personal) },
        NewSession { label: Some("é".repeat(100)), ..new_session(&alice.uid, TokenKind::Personal) },
    ];
    let refused: Vec<_> =
        fixture.store.create_sessions(batch).await.unwrap().into_iter().map(|outcome| outcome.err()).collect();
    use SessionRefused::{DigestTaken, Invalid, NoSuchPerson};
    assert_eq!(
        refused,
        [None, Some(DigestTaken), Some(NoSuchPerson), Some(Invalid), Some(Invalid), Some(Invalid), None]
    );
}

#[tokio::test]
async fn pages_follow_one_another() {
    let fixture = Fixture::new();
    let alice = fixture.person("alice").await;
    let batch = (0..5).map(|_| new_session(&alice.uid, TokenKind::Session)).collect();
    fixture.store.create_sessions(batch).await.unwrap();
    fixture.session(&alice.uid, TokenKind::Personal).await;
    let mut filter =
        SessionFilter { uid: Some(alice.uid), kind: Some(TokenKind::Session), limit: 2, ..SessionFilter::default() };
    let mut sizes = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for _ in 0..4 {
        let page = fixture.store.list_sessions(filter.clone()).await.unwrap();
        filter.after = page.last().map(|row| row.id.clone()).or(filter.after);
        sizes.push(page.len());
        seen.extend(page.into_iter().map(|row| row.id));
    }
    assert_eq!((sizes, seen.len()), (vec![2, 2, 1, 0], 5));
}
