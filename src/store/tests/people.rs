use super::*;

#[tokio::test]
async fn what_is_stored_survives_a_restart() {
    let mut fixture = Fixture::new();
    let (alice, bot) = fixture.bot("alice").await;
    let session = fixture.session(&alice.uid, TokenKind::Session).await;
    let personal = fixture.session(&alice.uid, TokenKind::Personal).await;
    let digest = FreshToken::generate(TokenKind::Bot).digest();
    let token = fixture.store.issue_bot_token(alice.uid.clone(), digest, false).await.unwrap();
    let run = RunRow {
        run_id: crate::names::Identifier::parse("run_1").unwrap(),
        uid: alice.uid.clone(),
        session_id: session.id.clone(),
        profile: bot.profile.clone(),
        gateway: gateway(),
        started_at: now_ms(),
    };
    fixture.store.put_run(run.clone()).await.unwrap();
    fixture.restart().await;
    let loaded = fixture.store.load().await.unwrap();
    assert_eq!(loaded.people, std::slice::from_ref(&alice));
    assert_eq!(fixture.store.person(login("alice")).await.unwrap(), Some(alice));
    assert_eq!(loaded.bots.len(), 1);
    assert_eq!(loaded.bots[0].key.expose(), bot.key.expose());
    assert_eq!(loaded.sessions.len(), 2);
    assert!(loaded.sessions.contains(&session) && loaded.sessions.contains(&personal));
    assert_eq!(loaded.bot_tokens, [token]);
    assert_eq!(loaded.runs, std::slice::from_ref(&run));
    assert!(loaded.problems.is_empty());
    assert!(fixture.store.remove_run(run.run_id.clone()).await.unwrap());
    assert!(!fixture.store.remove_run(run.run_id).await.unwrap());
}

#[tokio::test]
async fn a_login_is_taken_once() {
    let fixture = Fixture::new();
    fixture.person("alice").await;
    let again = NewPerson { login: login("alice"), role: role(), gateway: None };
    match fixture.store.add_person(again).await {
        Err(StoreError::LoginTaken { state: PersonState::Active, .. }) => {}
        other => panic!("{other:?}"),
    }
    fixture.person("Alice").await;
    assert_eq!(fixture.store.list_people().await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_disabled_person_loads_without_sessions_and_comes_back_with_them() {
    let fixture = Fixture::new();
    let alice = fixture.person("alice").await;
    let session = fixture.session(&alice.uid, TokenKind::Session).await;
    let disabled = fixture.store.set_state(login("alice"), PersonState::Disabled).await.unwrap();
    assert_eq!(disabled.state, PersonState::Disabled);
    assert!(fixture.store.load().await.unwrap().sessions.is_empty());
    let refused = fixture.store.create_sessions(vec![new_session(&alice.uid, TokenKind::Session)]).await.unwrap();
    assert_eq!(refused[0], Err(SessionRefused::PersonNotActive));
    fixture.store.set_state(login("alice"), PersonState::Active).await.unwrap();
    assert_eq!(fixture.store.load().await.unwrap().sessions, [session]);
}

#[tokio::test]
async fn a_deleted_persons_login_stays_taken_until_the_end() {
    let mut fixture = Fixture::new();
    let (alice, bot) = fixture.bot("alice").await;
    fixture.session(&alice.uid, TokenKind::Session).await;
    fixture.session(&alice.uid, TokenKind::Personal).await;
    let digest = FreshToken::generate(TokenKind::Bot).digest();
    fixture.store.issue_bot_token(alice.uid.clone(), digest, false).await.unwrap();
    let early = fixture.store.finish_delete(alice.uid.clone()).await;
    assert!(matches!(early, Err(StoreError::WrongState(PersonState::Active))));

    let gone = fixture.store.delete_person(login("alice")).await.unwrap();
    assert_eq!((gone.person.state, gone.sessions, gone.bot_tokens), (PersonState::Deleting, 2, 1));
    let again = fixture.store.delete_person(login("alice")).await.unwrap();
    assert_eq!((again.sessions, again.bot_tokens), (0, 0));
    fixture.restart().await;

    let loaded = fixture.store.load().await.unwrap();
    assert!(loaded.sessions.is_empty() && loaded.bot_tokens.is_empty());
    // The key is still needed: to stop runs, and to see that it no longer opens anything.
    assert_eq!(loaded.bots[0].key.expose(), bot.key.expose());
    let new = NewPerson { login: login("alice"), role: role(), gateway: None };
    match fixture.store.add_person(new.clone()).await {
        Err(error @ StoreError::LoginTaken { state: PersonState::Deleting, .. }) => {
            assert!(error.to_string().contains("still being deleted"));
        }
        other => panic!("{other:?}"),
    }
    let line = ImportLine { login: login("alice"), role: role(), gateway: gateway(), key: None };
    let imported = fixture.store.import_people(vec![line]).await.unwrap();
    assert!(matches!(&imported[0], ImportOutcome::Exists(row) if row.state == PersonState::Deleting));
    for state in [PersonState::Active, PersonState::Disabled, PersonState::Deleting] {
        let back = fixture.store.set_state(login("alice"), state).await;
        assert!(matches!(back, Err(StoreError::WrongState(PersonState::Deleting))));
    }
    let adopted = fixture.store.adopt_bot(login("alice"), gateway(), ApiServerKey::generate()).await;
    assert!(matches!(adopted, Err(StoreError::WrongState(PersonState::Deleting))));
    // Rotating the key to a random one is a step of deleting.
    assert_eq!(fixture.store.set_bot_key(login("alice"), ApiServerKey::generate()).await.unwrap().generation, 2);

    fixture.store.finish_delete(alice.uid.clone()).await.unwrap();
    let fresh = fixture.store.add_person(new).await.unwrap();
    assert_ne!(fresh.uid, alice.uid);
    assert!(fixture.store.load().await.unwrap().bots.is_empty());
    let late = fixture.store.finish_delete(alice.uid).await;
    assert!(matches!(late, Err(StoreError::NoSuchPerson)), "the new alice must not be hit");
}

#[tokio::test]
async fn a_lockdown_of_one_person_leaves_the_others() {
    let fixture = Fixture::new();
    let ((alice, _), (bob, _)) = (fixture.bot("alice").await, fixture.bot("bob").await);
    for person in [&alice, &bob] {
        fixture.session(&person.uid, TokenKind::Session).await;
        fixture.session(&person.uid, TokenKind::Personal).await;
        let digest = FreshToken::generate(TokenKind::Bot).digest();
        fixture.store.issue_bot_token(person.uid.clone(), digest, false).await.unwrap();
    }
    let locked = fixture.store.lockdown(Some(login("alice"))).await.unwrap();
    assert_eq!((locked.people.len(), locked.sessions, locked.bot_tokens), (1, 2, 1));
    assert_eq!(locked.people[0].state, PersonState::Disabled);
    let loaded = fixture.store.load().await.unwrap();
    assert!(loaded.sessions.iter().all(|session| session.uid == bob.uid));
    assert_eq!((loaded.sessions.len(), loaded.bot_tokens.len()), (2, 1));

    fixture.person("carol").await;
    fixture.store.delete_person(login("carol")).await.unwrap();
    let locked = fixture.store.lockdown(None).await.unwrap();
    assert_eq!((locked.people.len(), locked.sessions, locked.bot_tokens), (3, 2, 1));
    let states: Vec<_> = locked.people.iter().map(|person| person.state).collect();
    assert_eq!(states, [PersonState::Disabled, PersonState::Disabled, PersonState::Deleting]);
    let nobody = fixture.store.lockdown(Some(login("nobody"))).await;
    assert!(matches!(nobody, Err(StoreError::NoSuchPerson)));
}

#[tokio::test]
async fn a_run_of_another_person_is_never_taken_over() {
    let fixture = Fixture::new();
    let ((alice, bot), (bob, other)) = (fixture.bot("alice").await, fixture.bot("bob").await);
    let run = |person: &PersonRow, bot: &BotKey| RunRow {
        run_id: crate::names::Identifier::parse("run_1").unwrap(),
        uid: person.uid.clone(),
        session_id: person.uid.clone(),
        profile: bot.profile.clone(),
        gateway: gateway(),
        started_at: 1,
    };
    fixture.store.put_run(run(&alice, &bot)).await.unwrap();
    fixture.store.put_run(run(&alice, &bot)).await.unwrap();
    assert!(matches!(fixture.store.put_run(run(&bob, &other)).await, Err(StoreError::Conflict { .. })));
    assert_eq!(fixture.store.load().await.unwrap().runs, [run(&alice, &bot)]);
    let nobody = RunRow { uid: Uid::random(), ..run(&alice, &bot) };
    assert!(matches!(fixture.store.put_run(nobody).await, Err(StoreError::NoSuchPerson)));
}
