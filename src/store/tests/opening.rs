use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::*;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Opening must fail and leave the database's bytes alone.
fn refused(fixture: &Fixture, master: &MasterKey) -> StoreError {
    let before = fs::read(fixture.database()).unwrap();
    let error = Store::open(fixture.path(), master).unwrap_err();
    assert!(before == fs::read(fixture.database()).unwrap(), "a refused database was changed");
    error
}

#[tokio::test]
async fn another_master_key_is_refused() {
    let fixture = Fixture::new();
    fixture.bot("alice").await;
    fixture.store.close().await.unwrap();
    let error = refused(&fixture, &MasterKey::generate());
    assert!(matches!(error, StoreError::WrongMasterKey { .. }), "{error:?}");
    assert!(error.to_string().contains("another master key"));
    assert_eq!(Store::open(fixture.path(), &fixture.master).unwrap().load().await.unwrap().bots.len(), 1);
}

#[tokio::test]
async fn a_database_that_lost_its_check_value_is_refused() {
    let fixture = Fixture::new();
    fixture.tamper("DELETE FROM meta WHERE name = 'master_check'").await;
    fixture.store.close().await.unwrap();
    assert!(matches!(refused(&fixture, &fixture.master), StoreError::WrongMasterKey { .. }));
}

#[tokio::test]
async fn a_newer_database_is_refused() {
    let fixture = Fixture::new();
    fixture.person("alice").await;
    fixture.tamper("PRAGMA user_version = 99").await;
    fixture.store.close().await.unwrap();
    match refused(&fixture, &fixture.master) {
        error @ StoreError::NewerSchema { found: 99, .. } => assert!(error.to_string().contains("newer botgate")),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn somebody_elses_database_is_refused() {
    let fixture = Fixture::new();
    fixture.tamper("PRAGMA application_id = 7").await;
    fixture.store.close().await.unwrap();
    assert!(matches!(refused(&fixture, &fixture.master), StoreError::NotOurs { .. }));
}

#[tokio::test]
async fn what_is_no_database_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(sqlite::DATABASE_FILE);
    fs::write(&path, "this is no database. ".repeat(500)).unwrap();
    let error = Store::open(dir.path(), &MasterKey::generate()).unwrap_err();
    assert!(opening(&error, |cause| matches!(cause, StoreError::Corrupt { .. })), "{error:?}");
}

#[tokio::test]
async fn files_are_the_owners_alone() {
    let fixture = Fixture::new();
    fixture.person("alice").await;
    for entry in fs::read_dir(fixture.path()).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
    assert_eq!(fs::read_dir(fixture.path()).unwrap().count(), 3, "database, log and index");
}

#[tokio::test]
async fn wider_permissions_are_tightened() {
    let mut fixture = Fixture::new();
    set_mode(&fixture.database(), 0o644);
    set_mode(fixture.path(), 0o755);
    fixture.restart().await;
    assert_eq!((mode(&fixture.database()), mode(fixture.path())), (0o600, 0o700));
}

#[tokio::test]
async fn a_linked_database_is_refused() {
    let fixture = Fixture::new();
    fixture.store.close().await.unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(fixture.database(), elsewhere.path().join(sqlite::DATABASE_FILE)).unwrap();
    let error = Store::open(elsewhere.path(), &fixture.master).unwrap_err();
    assert!(matches!(error, StoreError::Unsafe { .. }), "{error:?}");
}

#[tokio::test]
async fn no_secret_is_in_the_files() {
    let fixture = Fixture::new();
    let (alice, bot) = fixture.bot("alice").await;
    let token = FreshToken::generate(TokenKind::Session);
    let new = NewSession { digest: token.digest(), ..new_session(&alice.uid, TokenKind::Session) };
    fixture.store.create_sessions(vec![new]).await.unwrap().remove(0).unwrap();
    let mut bytes = Vec::new();
    for entry in fs::read_dir(fixture.path()).unwrap() {
        bytes.extend(fs::read(entry.unwrap().path()).unwrap());
    }
    let found = |secret: &[u8]| bytes.windows(secret.len()).any(|window| window == secret);
    assert!(found(b"bot-alice"), "the search itself does not work");
    assert!(!found(bot.key.expose().as_bytes()));
    assert!(!found(token.expose().as_bytes()));
    assert!(!found(fixture.master.expose()));
}

#[tokio::test]
async fn a_closed_store_says_so() {
    let fixture = Fixture::new();
    let other = fixture.store.clone();
    fixture.store.ping().await.unwrap();
    fixture.store.close().await.unwrap();
    assert!(matches!(other.ping().await, Err(StoreError::Stopped)));
    assert!(matches!(other.list_people().await, Err(StoreError::Stopped)));
    other.close().await.unwrap();
    assert_eq!(fs::read_dir(fixture.path()).unwrap().count(), 1, "a clean close leaves the database alone");
}

#[tokio::test]
async fn a_database_with_a_torn_page_is_an_error_and_no_empty_store() {
    let fixture = Fixture::new();
    fixture.bot("alice").await;
    fixture.store.close().await.unwrap();
    let mut bytes = fs::read(fixture.database()).unwrap();
    bytes[4096..].fill(0x5a);
    fs::write(fixture.database(), bytes).unwrap();
    let error = refused(&fixture, &fixture.master);
    assert!(opening(&error, |cause| matches!(cause, StoreError::Corrupt { .. })), "{error:?}");
}

#[tokio::test]
async fn a_database_held_by_another_process_is_busy_and_not_damaged() {
    let fixture = Fixture::new();
    let other = rusqlite::Connection::open(fixture.database()).unwrap();
    fixture.attempt("PRAGMA busy_timeout = 10").await.unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let new = NewPerson { login: login("alice"), role: role(), gateway: None };
    assert!(matches!(fixture.store.add_person(new.clone()).await, Err(StoreError::Busy)));
    fixture.store.load().await.unwrap();
    other.execute_batch("ROLLBACK").unwrap();
    fixture.store.add_person(new).await.unwrap();
}
