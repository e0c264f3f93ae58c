use std::collections::BTreeSet;
use std::fs;

use proptest::prelude::*;

use super::*;

const PEOPLE: [&str; 4] = ["alice", "bob", "carol", "dave"];

fn how(backup: &Path) -> Restore<'_> {
    Restore { backup, sealed_with: None, trust_people: false }
}

/// What lets somebody in: live credentials by their ids, and active people by theirs.
type Rights = (BTreeSet<String>, BTreeSet<String>);

async fn rights(store: &Store) -> Rights {
    let loaded = store.load().await.unwrap();
    assert!(loaded.problems.is_empty(), "{:?}", loaded.problems);
    let sessions = loaded.sessions.iter().map(|session| session.id.to_string());
    let credentials = sessions.chain(loaded.bot_tokens.iter().map(|token| token.id.to_string())).collect();
    let active = loaded.people.iter().filter(|person| person.state == PersonState::Active);
    (credentials, active.map(|person| person.uid.to_string()).collect())
}

/// Something that happens to a person.
#[derive(Debug, Clone, Copy)]
enum Step {
    Add,
    Adopt,
    NewKey,
    Session,
    Token,
    BotToken,
    RevokeSession,
    RevokeSessions,
    RevokeBotToken,
    Disable,
    Enable,
    Lockdown,
    LockdownAll,
    Delete,
    FinishDelete,
    Prune,
}

async fn step(store: &Store, what: Step, name: &str) {
    use crate::secret::TokenKind::{Personal, Session};
    let person = store.person(login(name)).await.unwrap();
    let uid = person.as_ref().map(|person| person.uid.clone());
    let all = SessionFilter { uid: uid.clone(), kind: None, live_only: true, after: None, limit: 100 };
    // Most steps are refused in some states; what matters is what they leave behind.
    match (what, uid) {
        (Step::Add, _) => drop(store.add_person(NewPerson { login: login(name), role: role(), gateway: None }).await),
        (Step::Adopt, _) => drop(store.adopt_bot(login(name), gateway(), ApiServerKey::generate()).await),
        (Step::NewKey, _) => drop(store.set_bot_key(login(name), ApiServerKey::generate()).await),
        (Step::Disable, _) => drop(store.set_state(login(name), PersonState::Disabled).await),
        (Step::Enable, _) => drop(store.set_state(login(name), PersonState::Active).await),
        (Step::Lockdown, _) => drop(store.lockdown(Some(login(name))).await),
        (Step::LockdownAll, _) => drop(store.lockdown(None).await),
        (Step::Delete, _) => drop(store.delete_person(login(name)).await),
        (Step::Prune, _) => drop(store.prune_sessions(now_ms()).await),
        (_, None) => {}
        (Step::Session, Some(uid)) => drop(store.create_sessions(vec![new_session(&uid, Session)]).await),
        (Step::Token, Some(uid)) => drop(store.create_sessions(vec![new_session(&uid, Personal)]).await),
        (Step::BotToken, Some(uid)) => {
            let digest = FreshToken::generate(TokenKind::Bot).digest();
            drop(store.issue_bot_token(uid, digest, true).await);
        }
        (Step::RevokeSession, Some(_)) => {
            for session in store.list_sessions(all).await.unwrap().into_iter().take(1) {
                store.revoke_session(session.id).await.unwrap();
            }
        }
        (Step::RevokeSessions, Some(uid)) => drop(store.revoke_sessions_of(uid, vec![Session, Personal]).await),
        (Step::RevokeBotToken, Some(uid)) => {
            for token in store.bot_tokens(uid).await.unwrap().into_iter().take(1) {
                store.revoke_bot_token(token.id).await.unwrap();
            }
        }
        (Step::FinishDelete, Some(uid)) => drop(store.finish_delete(uid).await),
    }
}

fn steps(most: usize) -> impl Strategy<Value = Vec<(Step, &'static str)>> {
    let what = prop_oneof![
        4 => prop_oneof![Just(Step::Add), Just(Step::Adopt), Just(Step::Session), Just(Step::Token), Just(Step::BotToken)],
        2 => prop_oneof![Just(Step::NewKey), Just(Step::Enable), Just(Step::Disable), Just(Step::Prune)],
        2 => prop_oneof![
            Just(Step::RevokeSession),
            Just(Step::RevokeSessions),
            Just(Step::RevokeBotToken),
            Just(Step::Lockdown),
            Just(Step::LockdownAll),
            Just(Step::Delete),
            Just(Step::FinishDelete),
        ],
    ];
    proptest::collection::vec((what, proptest::sample::select(PEOPLE.as_slice())), 0..most)
}

async fn never_revives(before: Vec<(Step, &'static str)>, after: Vec<(Step, &'static str)>, lost: bool) {
    let mut fixture = Fixture::new();
    for name in PEOPLE {
        fixture.bot(name).await;
        step(&fixture.store, Step::Session, name).await;
        step(&fixture.store, Step::BotToken, name).await;
    }
    for (what, name) in before {
        step(&fixture.store, what, name).await;
    }
    let elsewhere = tempfile::tempdir().unwrap();
    let file = elsewhere.path().join("backup.db");
    backup(fixture.path(), &file, None).unwrap();
    let then = rights(&fixture.store).await;
    for (what, name) in after {
        step(&fixture.store, what, name).await;
    }
    let last = rights(&fixture.store).await;
    let keys = fixture.store.load().await.unwrap().bots;
    fixture.store.close().await.unwrap();
    if lost {
        fs::remove_file(fixture.database()).unwrap();
    }
    let restored = restore(fixture.path(), &fixture.master, &how(&file)).unwrap();
    assert_eq!(restored.compared, !lost);
    fixture.store = Store::open(fixture.path(), &fixture.master).unwrap();
    let now = rights(&fixture.store).await;
    let expected: Rights = match lost {
        true => Default::default(),
        false => (&then.0 & &last.0, &then.1 & &last.1),
    };
    assert_eq!(now, expected);
    if !lost {
        for bot in fixture.store.load().await.unwrap().bots {
            let newer = keys.iter().find(|key| key.uid == bot.uid && key.generation > bot.generation);
            assert!(newer.is_none(), "an older key came back: {bot:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_restore_gives_no_right_that_was_not_there_before_it(before in steps(12), after in steps(24), lost in any::<bool>()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(never_revives(before, after, lost));
    }
}

#[tokio::test]
async fn a_backup_is_private_whole_and_replaces_nothing() {
    let fixture = Fixture::new();
    let (_, bot) = fixture.bot("alice").await;
    let elsewhere = tempfile::tempdir().unwrap();
    let file = elsewhere.path().join("backup.db");
    let made = backup(fixture.path(), &file, Some(&fixture.master)).unwrap();
    let bytes = fs::read(&file).unwrap();
    assert_eq!(made.bytes, bytes.len() as u64);
    let holds = |secret: &[u8]| bytes.windows(secret.len()).any(|window| window == secret);
    assert!(holds(b"bot-alice"), "the search itself does not work");
    assert!(!holds(bot.key.expose().as_bytes()) && !holds(fixture.master.expose()));
    let key = read_master_key(&made.master_key.unwrap()).unwrap();
    assert_eq!(key.expose(), fixture.master.expose());
    for entry in fs::read_dir(elsewhere.path()).unwrap() {
        let entry = entry.unwrap();
        use std::os::unix::fs::MetadataExt;
        assert_eq!(entry.metadata().unwrap().mode() & 0o777, 0o600, "{:?}", entry.file_name());
    }
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 2, "database and key, nothing else");
    assert!(backup(fixture.path(), &file, None).is_err());
    assert_eq!(fs::read(&file).unwrap(), bytes);
}

#[tokio::test]
async fn what_was_deleted_is_not_in_a_backup() {
    let fixture = Fixture::new();
    let (alice, _) = fixture.bot("alice").await;
    let token = FreshToken::generate(TokenKind::Session);
    let new = NewSession { digest: token.digest(), ..new_session(&alice.uid, TokenKind::Session) };
    fixture.store.create_sessions(vec![new]).await.unwrap().remove(0).unwrap();
    fixture.store.delete_person(login("alice")).await.unwrap();
    fixture.store.finish_delete(alice.uid).await.unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let file = elsewhere.path().join("backup.db");
    backup(fixture.path(), &file, None).unwrap();
    let bytes = fs::read(&file).unwrap();
    assert!(!bytes.windows(9).any(|window| window == b"bot-alice"));
}

#[tokio::test]
async fn an_unreadable_database_confirms_nothing_and_is_kept() {
    let mut fixture = Fixture::new();
    let (alice, _) = fixture.bot("alice").await;
    fixture.session(&alice.uid, TokenKind::Session).await;
    let elsewhere = tempfile::tempdir().unwrap();
    let file = elsewhere.path().join("backup.db");
    backup(fixture.path(), &file, None).unwrap();
    fixture.store.close().await.unwrap();
    let mut bytes = fs::read(fixture.database()).unwrap();
    bytes[4096..].fill(0x5a);
    fs::write(fixture.database(), &bytes).unwrap();
    // A log of another database's, as a crash leaves it.
    fs::write(fixture.path().join("botgate.db-wal"), [7; 5000]).unwrap();
    let trusting = Restore { trust_people: true, ..how(&file) };
    let restored = restore(fixture.path(), &fixture.master, &trusting).unwrap();
    assert_eq!((restored.compared, restored.sessions, restored.revoked, restored.people_refused), (false, 0, 1, 0));
    assert_eq!(fs::read(restored.kept.unwrap()).unwrap(), bytes);
    fixture.store = Store::open(fixture.path(), &fixture.master).unwrap();
    let loaded = fixture.store.load().await.unwrap();
    assert_eq!((loaded.people[0].state, loaded.bots.len(), loaded.sessions.len()), (PersonState::Active, 1, 0));
}

#[tokio::test]
async fn what_is_no_backup_changes_nothing() {
    let fixture = Fixture::new();
    fixture.bot("alice").await;
    let elsewhere = tempfile::tempdir().unwrap();
    let at = |name: &str| elsewhere.path().join(name);
    backup(fixture.path(), &at("whole.db"), None).unwrap();
    let whole = fs::read(at("whole.db")).unwrap();
    fs::write(at("empty.db"), "").unwrap();
    fs::write(at("text.db"), "this is no database. ".repeat(500)).unwrap();
    fs::write(at("cut.db"), &whole[..whole.len() - 4096]).unwrap();
    let mut torn = whole;
    let middle = torn.len() / 2 / 4096 * 4096;
    torn[middle..middle + 4096].fill(0x5a);
    fs::write(at("torn.db"), torn).unwrap();
    rusqlite::Connection::open(at("other.db")).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
    let other = Fixture::new();
    backup(other.path(), &at("foreign.db"), None).unwrap();
    fixture.store.close().await.unwrap();
    let before = fs::read(fixture.database()).unwrap();
    for name in ["empty.db", "text.db", "cut.db", "torn.db", "other.db", "foreign.db", "missing.db"] {
        let refused = restore(fixture.path(), &fixture.master, &how(&at(name)));
        assert!(refused.is_err(), "{name}");
        let store = Store::open(fixture.path(), &fixture.master).unwrap();
        assert_eq!(store.load().await.unwrap().bots.len(), 1, "{name}");
        store.close().await.unwrap();
    }
    let left: BTreeSet<_> = fs::read_dir(fixture.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(before.len(), fs::read(fixture.database()).unwrap().len());
}

#[tokio::test]
async fn a_backup_from_before_a_rotation_needs_its_own_master_key() {
    let dir = tempfile::tempdir().unwrap();
    let old = create_master_key(dir.path()).unwrap();
    let store = Store::open(dir.path(), &old).unwrap();
    store.add_person(NewPerson { login: login("alice"), role: role(), gateway: None }).await.unwrap();
    let (_, bot) = store.adopt_bot(login("alice"), gateway(), ApiServerKey::generate()).await.unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let file = elsewhere.path().join("backup.db");
    backup(dir.path(), &file, None).unwrap();
    store.close().await.unwrap();
    rotate_master_key(dir.path(), None).unwrap();
    let new = master_key(dir.path()).unwrap();
    let error = restore(dir.path(), &new, &how(&file)).unwrap_err();
    assert!(matches!(&error, StoreError::WrongMasterKey { path } if *path == file), "{error:?}");
    for lost in [false, true] {
        if lost {
            fs::remove_file(dir.path().join(sqlite::DATABASE_FILE)).unwrap();
        }
        restore(dir.path(), &new, &Restore { sealed_with: Some(&old), ..how(&file) }).unwrap();
        let store = Store::open(dir.path(), &new).unwrap();
        assert_eq!(store.load().await.unwrap().bots[0].key.expose(), bot.key.expose());
        store.close().await.unwrap();
        assert_eq!(sqlite::past_audit_keys(dir.path(), &new).unwrap(), [seal::audit_key(&old)], "lost: {lost}");
    }
}
