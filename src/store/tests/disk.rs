use std::process::Command;

use super::*;

/// Set in the child that has a file system of its own.
const CHILD_DIR: &str = "BOTGATE_TEST_DISK_DIR";

fn line(n: usize) -> ImportLine {
    ImportLine {
        login: login(&format!("person-{n}")),
        role: role(),
        gateway: gateway(),
        key: Some(ApiServerKey::generate()),
    }
}

/// Fills the database until it refuses; everything that was answered before stays.
async fn fill(store: &Store) -> usize {
    let mut stored = 0;
    for batch in 0..1_000 {
        let lines: Vec<_> = (0..50).map(|n| line(batch * 50 + n)).collect();
        match store.import_people(lines).await {
            Ok(outcomes) => stored += outcomes.len(),
            Err(StoreError::Full) => {
                let loaded = store.load().await.unwrap();
                assert_eq!((loaded.people.len(), loaded.bots.len()), (stored, stored), "wholly or not at all");
                assert!(loaded.problems.is_empty());
                return stored;
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    panic!("the database never became full");
}

#[tokio::test]
async fn a_full_database_loses_nothing_and_works_again_with_room() {
    let mut fixture = Fixture::new();
    fixture.attempt("PRAGMA max_page_count = 100").await.unwrap();
    let stored = fill(&fixture.store).await;
    assert!(stored > 0);
    fixture.store.ping().await.unwrap();
    fixture.attempt("PRAGMA max_page_count = 1000000").await.unwrap();
    fixture.store.import_people(vec![line(1_000_000)]).await.unwrap();
    fixture.restart().await;
    assert_eq!(fixture.store.load().await.unwrap().bots.len(), stored + 1);
}

#[tokio::test]
async fn a_read_only_database_answers_reads_and_refuses_changes() {
    let fixture = Fixture::new();
    let (alice, _) = fixture.bot("alice").await;
    let session = fixture.session(&alice.uid, TokenKind::Session).await;
    fixture.attempt("PRAGMA query_only = ON").await.unwrap();
    let refused = fixture.store.revoke_session(session.id.clone()).await;
    assert!(matches!(refused, Err(StoreError::ReadOnly)), "{refused:?}");
    assert!(matches!(fixture.store.delete_person(login("alice")).await, Err(StoreError::ReadOnly)));
    assert!(matches!(fixture.store.lockdown(None).await, Err(StoreError::ReadOnly)));
    let loaded = fixture.store.load().await.unwrap();
    assert_eq!((loaded.people.len(), loaded.sessions.len()), (1, 1));
    assert_eq!(loaded.people[0].state, PersonState::Active);
    fixture.attempt("PRAGMA query_only = OFF").await.unwrap();
    fixture.store.revoke_session(session.id).await.unwrap();
}

/// A directory that takes no file from anybody, not even from root.
#[test]
fn a_directory_that_takes_no_file_is_a_clear_error() {
    let dir = Path::new("/proc/self/task");
    let error = Store::open(dir, &MasterKey::generate()).unwrap_err();
    assert!(matches!(error, StoreError::Io { .. } | StoreError::Unsafe { .. }), "{error:?}");
    assert!(error.to_string().starts_with("/proc/"), "{error}");
}

/// The same on a real small file system, in a mount namespace that ends with the child.
#[tokio::test]
async fn a_real_disk_that_is_full_or_read_only() {
    if let Some(dir) = child_dir(CHILD_DIR) {
        return on_a_small_disk(Path::new(&dir)).await;
    }
    let dir = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=1m,mode=700 none \"$1\" || exit 77; exec \"$2\" --exact \"$3\" --nocapture";
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"])
        .arg(dir.path())
        .arg(std::env::current_exe().unwrap())
        .arg(test_name(module_path!(), "a_real_disk_that_is_full_or_read_only"))
        .env(CHILD_DIR, dir.path())
        .output();
    match output {
        Ok(output) if output.status.success() => {
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(said.contains("the small disk was full") && said.contains("1 passed"), "{said}");
        }
        Ok(output) if output.status.code() == Some(101) => {
            panic!("{}", String::from_utf8_lossy(&[output.stdout, output.stderr].concat()));
        }
        // No such namespaces here: the page limit above stands in.
        _ => println!("no mount namespace; the limit on pages stands in"),
    }
}

async fn on_a_small_disk(dir: &Path) {
    let master = create_master_key(dir).unwrap();
    let ballast = dir.join("ballast");
    std::fs::write(&ballast, [0_u8; 400_000]).unwrap();
    let store = Store::open(dir, &master).unwrap();
    let stored = fill(&store).await;
    assert!(stored > 0);
    println!("the small disk was full after {stored}");
    store.close().await.unwrap();
    // The mount alone, not the file system: that is what a user's own namespace may change.
    mount(dir, "remount,bind,ro");
    let error = Store::open(dir, &master).unwrap_err();
    assert!(opening(&error, |cause| matches!(cause, StoreError::ReadOnly)), "{error:?}");
    mount(dir, "remount,bind,rw");
    std::fs::remove_file(ballast).unwrap();
    let store = Store::open(dir, &master).unwrap();
    store.import_people(vec![line(1_000_000)]).await.unwrap();
    let loaded = store.load().await.unwrap();
    assert_eq!((loaded.people.len(), loaded.bots.len()), (stored + 1, stored + 1));
}

fn mount(dir: &Path, options: &str) {
    assert!(Command::new("mount").args(["-o", options]).arg(dir).status().unwrap().success());
}
