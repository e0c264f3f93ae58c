use super::*;

fn digest() -> crate::secret::TokenDigest {
    FreshToken::generate(TokenKind::Bot).digest()
}

#[tokio::test]
async fn a_bot_is_adopted_once_and_its_key_gets_generations() {
    let fixture = Fixture::new();
    let nobody = fixture.store.adopt_bot(login("alice"), gateway(), ApiServerKey::generate()).await;
    assert!(matches!(nobody, Err(StoreError::NoSuchPerson)));
    fixture.person("alice").await;
    let none = fixture.store.set_bot_key(login("alice"), ApiServerKey::generate()).await;
    assert!(matches!(none, Err(StoreError::NoBot)));
    let (person, bot) = fixture.store.adopt_bot(login("alice"), gateway(), ApiServerKey::generate()).await.unwrap();
    assert_eq!((person.profile.as_ref().unwrap().as_str(), person.adopted), ("bot-alice", true));
    assert_eq!((bot.generation, bot.gateway.as_str()), (1, "main"));
    let again = fixture.store.adopt_bot(login("alice"), gateway(), ApiServerKey::generate()).await;
    assert!(matches!(again, Err(StoreError::BotExists)));
    let next = ApiServerKey::generate();
    assert_eq!(fixture.store.set_bot_key(login("alice"), next.clone()).await.unwrap().generation, 2);
    let loaded = fixture.store.load().await.unwrap();
    assert_eq!(loaded.bots[0].key.expose(), next.expose());
    assert_eq!(loaded.bots[0].generation, 2);
}

#[tokio::test]
async fn a_new_bot_token_takes_over_at_once_or_beside_the_old() {
    let fixture = Fixture::new();
    let (alice, _) = fixture.bot("alice").await;
    let issue = |keep| fixture.store.issue_bot_token(alice.uid.clone(), digest(), keep);
    let valid = || async {
        let tokens = fixture.store.bot_tokens(alice.uid.clone()).await.unwrap();
        tokens.into_iter().map(|token| token.id).collect::<Vec<_>>()
    };
    let first = issue(false).await.unwrap().id;
    let second = issue(true).await.unwrap().id;
    assert_eq!(valid().await, [second.clone(), first]);
    let third = issue(true).await.unwrap().id;
    assert_eq!(valid().await, [third.clone(), second.clone()], "at most two are valid");
    fixture.store.revoke_bot_token(second.clone()).await.unwrap();
    assert_eq!(valid().await, [third]);
    let fourth = issue(false).await.unwrap().id;
    assert_eq!(valid().await, std::slice::from_ref(&fourth));
    let once = fixture.store.revoke_bot_token(fourth.clone()).await.unwrap();
    assert_eq!(fixture.store.revoke_bot_token(fourth).await.unwrap(), once);
    assert!(valid().await.is_empty());
    assert!(matches!(fixture.store.revoke_bot_token(Uid::random()).await, Err(StoreError::NoSuchToken)));
}

#[tokio::test]
async fn only_an_active_person_with_a_bot_gets_a_bot_token() {
    let fixture = Fixture::new();
    let bob = fixture.person("bob").await;
    let none = fixture.store.issue_bot_token(bob.uid, digest(), false).await;
    assert!(matches!(none, Err(StoreError::NoBot)));
    let (alice, _) = fixture.bot("alice").await;
    fixture.store.set_state(login("alice"), PersonState::Disabled).await.unwrap();
    let disabled = fixture.store.issue_bot_token(alice.uid, digest(), false).await;
    assert!(matches!(disabled, Err(StoreError::WrongState(PersonState::Disabled))));
    let nobody = fixture.store.issue_bot_token(Uid::random(), digest(), false).await;
    assert!(matches!(nobody, Err(StoreError::NoSuchPerson)));
}

#[tokio::test]
async fn the_use_of_a_bot_token_never_goes_backwards() {
    let fixture = Fixture::new();
    let (alice, _) = fixture.bot("alice").await;
    let token = fixture.store.issue_bot_token(alice.uid.clone(), digest(), false).await.unwrap();
    for at in [20, 10] {
        fixture.store.flush_bot_tokens(vec![(token.id.clone(), at)]).await.unwrap();
    }
    assert_eq!(fixture.store.bot_tokens(alice.uid).await.unwrap()[0].last_used_at, Some(20));
}
