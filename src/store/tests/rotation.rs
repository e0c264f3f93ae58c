use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;

const NEXT: &str = "master.key.next";

fn write_key(fixture: &Path, name: &str, text: &str) {
    let path = fixture.join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// A data directory with a key file and a store with bots, closed.
async fn closed(bots: usize) -> (TempDir, MasterKey, Vec<BotKey>) {
    let dir = tempfile::tempdir().unwrap();
    let master = create_master_key(dir.path()).unwrap();
    let store = Store::open(dir.path(), &master).unwrap();
    let lines = (0..bots).map(|n| ImportLine {
        login: login(&format!("person-{n}")),
        role: role(),
        gateway: gateway(),
        key: Some(ApiServerKey::generate()),
    });
    store.import_people(lines.collect()).await.unwrap();
    let bots = store.load().await.unwrap().bots;
    store.close().await.unwrap();
    (dir, master, bots)
}

/// Every key opens under the master key in place, to what it was, and no other key file is left.
async fn is_whole(dir: &Path, bots: &[BotKey]) -> MasterKey {
    let master = settled_master_key(dir).unwrap();
    let store = Store::open(dir, &master).unwrap();
    let loaded = store.load().await.unwrap();
    store.close().await.unwrap();
    assert!(loaded.problems.is_empty(), "{:?}", loaded.problems);
    let keys = |bots: &[BotKey]| {
        let mut keys: Vec<_> = bots.iter().map(|bot| (bot.login.clone(), bot.key.expose().to_owned())).collect();
        keys.sort();
        keys
    };
    assert_eq!(keys(&loaded.bots), keys(bots));
    assert!(!dir.join(NEXT).exists());
    assert_eq!(master_key(dir).unwrap().expose(), master.expose());
    master
}

#[tokio::test]
async fn everything_opens_under_the_new_key_and_nothing_under_the_old() {
    // More than one page of rows.
    let (dir, old, bots) = closed(1_203).await;
    let done = rotate_master_key(dir.path(), None).unwrap();
    assert_eq!(done, Rotated::Done(Resealed { keys: 1_203, unopened: 0 }));
    let new = is_whole(dir.path(), &bots).await;
    assert!(new.expose() != old.expose());
    assert!(matches!(Store::open(dir.path(), &old), Err(StoreError::WrongMasterKey { .. })));
    let given = MasterKey::generate();
    assert!(matches!(rotate_master_key(dir.path(), Some(&given)), Ok(Rotated::Done(_))));
    assert_eq!(rotate_master_key(dir.path(), Some(&given)).unwrap(), Rotated::Already);
    assert_eq!(is_whole(dir.path(), &bots).await.expose(), given.expose());
    assert_eq!(sqlite::past_audit_keys(dir.path(), &given).unwrap(), [seal::audit_key(&old), seal::audit_key(&new)]);
}

#[tokio::test]
async fn a_rotation_that_broke_off_is_finished_or_undone() {
    let (dir, old, bots) = closed(3).await;
    let old_text = old.to_file_text();
    // Killed while the next key was written, and before anything was sealed under it.
    for text in ["", "00ff", &MasterKey::generate().to_file_text()] {
        write_key(dir.path(), NEXT, text);
        assert_eq!(is_whole(dir.path(), &bots).await.expose(), old.expose());
    }
    // Killed after the transaction, before the next key took the master key's name.
    rotate_master_key(dir.path(), None).unwrap();
    let new = master_key(dir.path()).unwrap();
    fs::rename(dir.path().join("master.key"), dir.path().join(NEXT)).unwrap();
    write_key(dir.path(), "master.key", &old_text);
    assert_eq!(is_whole(dir.path(), &bots).await.expose(), new.expose());
    // And with the old key lost on the way.
    fs::rename(dir.path().join("master.key"), dir.path().join(NEXT)).unwrap();
    assert_eq!(is_whole(dir.path(), &bots).await.expose(), new.expose());
}

#[tokio::test]
async fn a_row_that_does_not_open_keeps_nobody_from_a_new_key() {
    let fixture = Fixture::new();
    write_key(fixture.path(), "master.key", &fixture.master.to_file_text());
    fixture.bot("alice").await;
    fixture.bot("bob").await;
    fixture.tamper("UPDATE bot_keys SET sealed = zeroblob(80) WHERE profile = 'bot-bob'").await;
    fixture.store.close().await.unwrap();
    let done = rotate_master_key(fixture.path(), None).unwrap();
    assert_eq!(done, Rotated::Done(Resealed { keys: 1, unopened: 1 }));
    let store = Store::open(fixture.path(), &master_key(fixture.path()).unwrap()).unwrap();
    let loaded = store.load().await.unwrap();
    assert_eq!((loaded.bots.len(), loaded.problems.len()), (1, 1));
}
