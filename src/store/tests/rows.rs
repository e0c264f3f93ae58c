use super::*;

fn faults(loaded: &Loaded) -> Vec<(Option<&str>, RowFault)> {
    loaded.problems.iter().map(|problem| (problem.login.as_ref().map(Login::as_str), problem.fault)).collect()
}

fn served(loaded: &Loaded) -> Vec<&str> {
    loaded.bots.iter().map(|bot| bot.login.as_str()).collect()
}

#[tokio::test]
async fn a_key_moved_to_another_person_does_not_open_and_harms_nobody_else() {
    let mut fixture = Fixture::new();
    for name in ["alice", "bob", "carol"] {
        fixture.bot(name).await;
    }
    fixture
        .tamper(
            "DELETE FROM bot_keys WHERE profile = 'bot-alice';
             UPDATE bot_keys SET profile = 'bot-alice' WHERE profile = 'bot-bob'",
        )
        .await;
    fixture.restart().await;
    let loaded = fixture.store.load().await.unwrap();
    assert!(loaded.people_are_complete());
    assert_eq!(served(&loaded), ["carol"]);
    assert_eq!(faults(&loaded), [(Some("alice"), RowFault::NotOpened), (Some("bob"), RowFault::KeyMissing)]);
    assert!(loaded.problems[0].to_string().starts_with("bot_keys of alice:"));

    for name in ["alice", "bob"] {
        fixture.store.set_bot_key(login(name), ApiServerKey::generate()).await.unwrap();
    }
    let repaired = fixture.store.load().await.unwrap();
    assert_eq!(served(&repaired), ["alice", "bob", "carol"]);
    assert!(repaired.problems.is_empty());
}

#[tokio::test]
async fn swapped_keys_open_for_neither() {
    let fixture = Fixture::new();
    for name in ["alice", "bob", "carol"] {
        fixture.bot(name).await;
    }
    fixture
        .tamper(
            "CREATE TEMP TABLE s AS SELECT profile, sealed FROM bot_keys;
             UPDATE bot_keys SET sealed = (SELECT sealed FROM s WHERE s.profile = 'bot-bob') WHERE profile = 'bot-alice';
             UPDATE bot_keys SET sealed = (SELECT sealed FROM s WHERE s.profile = 'bot-alice') WHERE profile = 'bot-bob'",
        )
        .await;
    let loaded = fixture.store.load().await.unwrap();
    assert_eq!(served(&loaded), ["carol"]);
    assert_eq!(faults(&loaded), [(Some("alice"), RowFault::NotOpened), (Some("bob"), RowFault::NotOpened)]);
}

#[tokio::test]
async fn a_key_with_another_generation_or_gateway_does_not_open() {
    let fixture = Fixture::new();
    for name in ["alice", "bob", "carol", "dora"] {
        fixture.bot(name).await;
    }
    fixture
        .tamper(
            "UPDATE bot_keys SET generation = 2 WHERE profile = 'bot-alice';
             UPDATE bot_keys SET gateway = 'more' WHERE profile = 'bot-bob';
             UPDATE bot_keys SET gateway = 'more' WHERE profile = 'bot-carol';
             UPDATE users SET gateway = 'more' WHERE login = 'carol'",
        )
        .await;
    let loaded = fixture.store.load().await.unwrap();
    assert_eq!(served(&loaded), ["dora"]);
    let expected = [
        (Some("alice"), RowFault::NotOpened),
        (Some("bob"), RowFault::GatewayDiffers),
        (Some("carol"), RowFault::NotOpened),
    ];
    assert_eq!(faults(&loaded), expected);
}

#[tokio::test]
async fn another_persons_profile_is_no_bot() {
    let fixture = Fixture::new();
    fixture.bot("alice").await;
    fixture.bot("bob").await;
    fixture
        .tamper(
            "UPDATE users SET bot_profile = NULL WHERE login = 'alice';
             UPDATE users SET bot_profile = 'bot-alice' WHERE login = 'bob'",
        )
        .await;
    let loaded = fixture.store.load().await.unwrap();
    assert!(loaded.bots.is_empty());
    assert!(faults(&loaded).contains(&(Some("bob"), RowFault::WrongProfile)), "{:?}", loaded.problems);
    assert!(matches!(
        fixture.store.set_bot_key(login("bob"), ApiServerKey::generate()).await,
        Err(StoreError::MalformedRow)
    ));
}

#[tokio::test]
async fn a_row_that_cannot_be_read_harms_its_own_person_only() {
    let fixture = Fixture::new();
    fixture.bot("alice").await;
    let (bob, _) = fixture.bot("bob").await;
    fixture.session(&bob.uid, TokenKind::Session).await;
    fixture
        .tamper(
            "UPDATE users SET role = 'not a role' WHERE login = 'alice';
             INSERT INTO bot_keys VALUES ('bot-nobody', 'main', zeroblob(64), 1)",
        )
        .await;
    let loaded = fixture.store.load().await.unwrap();
    assert!(!loaded.people_are_complete());
    assert_eq!(served(&loaded), ["bob"]);
    assert_eq!((loaded.people.len(), loaded.sessions.len()), (1, 1));
    let expected = [(Some("alice"), RowFault::Malformed), (None, RowFault::NoOwner), (None, RowFault::NoOwner)];
    assert_eq!(faults(&loaded), expected);
    assert!(matches!(fixture.store.person(login("alice")).await, Err(StoreError::MalformedRow)));
    fixture.store.lockdown(None).await.unwrap();
    fixture.attempt("UPDATE users SET role = 'member'").await.unwrap();
    let alice = fixture.store.person(login("alice")).await.unwrap().unwrap();
    assert_eq!(alice.state, PersonState::Disabled, "an unreadable row is locked down too");
}

#[tokio::test]
async fn text_that_is_not_utf_8_is_a_malformed_row() {
    let fixture = Fixture::new();
    fixture.bot("alice").await;
    fixture.bot("bob").await;
    fixture.tamper("UPDATE bot_keys SET gateway = CAST(x'ff6d' AS TEXT) WHERE profile = 'bot-alice'").await;
    let loaded = fixture.store.load().await.unwrap();
    assert_eq!(served(&loaded), ["bob"]);
    assert_eq!(faults(&loaded), [(Some("alice"), RowFault::GatewayDiffers)]);
}

#[tokio::test]
async fn the_schema_itself_refuses_what_no_row_may_say() {
    let fixture = Fixture::new();
    let (alice, _) = fixture.bot("alice").await;
    let (bob, _) = fixture.bot("bob").await;
    fixture.person("carol").await;
    let session = fixture.session(&alice.uid, TokenKind::Session).await;
    fixture.store.revoke_session(session.id).await.unwrap();
    let digest = FreshToken::generate(TokenKind::Bot).digest();
    fixture.store.issue_bot_token(bob.uid, digest, false).await.unwrap();
    let refused = [
        "UPDATE users SET login = 'bob' WHERE login = 'alice'",
        "UPDATE users SET login = 'dora' WHERE login = 'alice'",
        "UPDATE users SET bot_profile = 'bot-bob' WHERE login = 'carol'",
        "UPDATE users SET state = 'gone'",
        "UPDATE users SET created_at = 'yesterday'",
        "UPDATE users SET bot_token_id = (SELECT id FROM bot_tokens) WHERE login = 'alice'",
        "UPDATE users SET gateway = 'more' WHERE login = 'alice'",
        "UPDATE bot_keys SET profile = 'bot-carol' WHERE profile = 'bot-alice'",
        "UPDATE bot_keys SET sealed = 'text'",
        "UPDATE bot_keys SET generation = 0",
        "UPDATE sessions SET revoked_at = NULL",
        "UPDATE sessions SET revoked_at = 1",
        "UPDATE sessions SET uid = (SELECT uid FROM users WHERE login = 'bob')",
        "UPDATE sessions SET kind = 'bot'",
        "UPDATE sessions SET digest = x'00'",
        "DELETE FROM users WHERE login = 'alice'",
        "INSERT INTO open_runs VALUES ('r', 'ffff', 'eeee', 'bot-alice', 'main', 1)",
    ];
    for sql in refused {
        let error = fixture.attempt(sql).await.expect_err(sql);
        assert_eq!(error.sqlite_error_code(), Some(rusqlite::ErrorCode::ConstraintViolation), "{sql}: {error}");
    }
    fixture.store.delete_person(login("carol")).await.unwrap();
    let error = fixture.attempt("UPDATE users SET state = 'active' WHERE login = 'carol'").await.unwrap_err();
    assert!(error.to_string().contains("does not come back"), "{error}");
}
