//! Backup while serving, and restore: whole at every moment, and nothing that was revoked comes back.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::support::site::Site;

const PEOPLE: [&str; 5] = ["alice", "bob", "carol", "dave", "erin"];

fn backup(site: &Site, name: &str) -> PathBuf {
    let path = site.botgate.path(name);
    site.botgate.run(&["backup", &path.display().to_string()]).done();
    path
}

fn restore(site: &Site, arguments: &[&str]) -> serde_json::Value {
    let ran = site.botgate.run(&[&["--json", "restore"], arguments].concat());
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    ran.json()
}

#[test]
fn what_was_revoked_since_the_backup_stays_revoked() {
    let mut site = Site::of(&PEOPLE);
    site.botgate.run(&["user", "add", "frank"]).done();
    let personal =
        |login: &str| site.botgate.run(&["token", "create", login, "--label", "sdk"]).done().trim().to_owned();
    let mut tokens: Vec<(String, String)> = Vec::new();
    for login in PEOPLE {
        tokens.push((format!("{login} 1"), site.botgate.session(login)));
        tokens.push((format!("{login} 2"), site.botgate.session(login)));
        tokens.push((format!("{login} sdk"), personal(login)));
    }
    let ids = site.botgate.session_ids("alice");
    site.botgate.serve_until_ready();
    let file = backup(&site, "backup.db").display().to_string();
    tokens.push(("alice late".to_owned(), site.botgate.session("alice")));

    site.botgate.run(&["session", "revoke", &ids[0]]).done();
    site.botgate.run(&["user", "disable", "bob"]).done();
    site.botgate.run(&["user", "delete", "carol"]).failed();
    site.botgate.run(&["user", "delete", "frank"]).done();
    site.botgate.run(&["lockdown", "dave"]).done();
    site.botgate.run(&["user", "enable", "dave"]).done();
    let accepted = |site: &Site| -> Vec<String> {
        tokens.iter().filter(|(_, token)| site.status(token) == 200).map(|(name, _)| name.clone()).collect()
    };
    let before = accepted(&site);
    assert_eq!(before.len(), 6, "{before:?}");
    let refused = site.botgate.run(&["restore", &file]).failed();
    assert!(refused.contains("in use by another botgate"), "{refused}");
    assert!(site.botgate.stop());

    let done = restore(&site, &[&file]);
    assert_eq!(done["compared"], true);
    // Bob, carol, frank; one of alice's, three each of carol's and dave's.
    assert_eq!((done["people_refused"].as_u64(), done["revoked"].as_u64()), (Some(3), Some(7)), "{done}");
    site.botgate.serve_until_ready();
    let after = accepted(&site);
    let expected: Vec<_> = before.into_iter().filter(|name| name != "alice late").collect();
    assert_eq!(after, expected, "what counted before and is in the backup, and nothing else");
    let states = site.botgate.run(&["--json", "user", "list"]).json();
    site.botgate.run(&["user", "enable", "bob"]).done();
    assert_eq!(accepted(&site).len(), expected.len() + 3, "bob's own were not revoked: {states:?}");
    site.botgate.run(&["audit", "--verify"]).done();
    let record = site.botgate.audit().into_iter().find(|record| record["action"] == "restore").expect("a record");
    assert_eq!(record["object"], file.as_str());
    let records = site.botgate.audit();
    assert!(records.iter().any(|record| record["action"] == "backup"));
}

#[test]
fn without_a_database_that_tells_nothing_of_the_backup_counts() {
    let mut site = Site::of(&PEOPLE);
    let token = site.botgate.session("alice");
    let file = backup(&site, "backup.db").display().to_string();
    fs::remove_file(site.botgate.path("data/botgate.db")).expect("the database goes");
    let done = restore(&site, &[&file]);
    assert_eq!((done["compared"].as_bool(), done["people_refused"].as_u64()), (Some(false), Some(5)), "{done}");
    site.botgate.serve();
    assert_eq!(site.status(&token), 401);
    site.botgate.run(&["session", "create", "alice"]).failed();
    site.botgate.run(&["user", "enable", "alice"]).done();
    assert_eq!(site.status(&token), 401, "the old token stays revoked");
    let new = site.botgate.session("alice");
    site.botgate.becomes_ready();
    assert_eq!(site.status(&new), 200);
    assert!(site.botgate.stop());

    fs::write(site.botgate.path("data/botgate.db"), "no database ".repeat(1000)).expect("the file can be written");
    let done = restore(&site, &[&file, "--trust-people"]);
    assert_eq!((done["compared"].as_bool(), done["people_refused"].as_u64()), (Some(false), Some(0)), "{done}");
    site.botgate.serve_until_ready();
    assert_eq!((site.status(&token), site.status(&new)), (401, 401));
    let new = site.botgate.session("bob");
    assert_eq!(site.status(&new), 200);
}

#[test]
fn a_backup_made_while_much_changes_is_one_moment() {
    let mut site = Site::of(&PEOPLE);
    site.botgate.serve_until_ready();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                // Each call is one transaction: all of its sessions are there or none.
                site.botgate.run(&["session", "create", "alice", "--count", "100"]).done();
            }
        });
        for number in 0..6 {
            backup(&site, &format!("backup-{number}.db"));
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(site.botgate.stop());
    let mut sizes = Vec::new();
    for number in 0..6 {
        // The rows of later backups would be confirmed by the database in place; counting needs none.
        let other = Site::of(&[]);
        let key = site.botgate.path("data/master.key").display().to_string();
        let file = site.botgate.path(&format!("backup-{number}.db")).display().to_string();
        fs::remove_file(other.botgate.path("data/botgate.db")).expect("an empty database goes");
        let done = restore(&other, &[&file, "--master-key", &key]);
        let revoked = done["revoked"].as_u64().expect("a count");
        assert_eq!(revoked % 100, 0, "half a transaction was copied");
        sizes.push(revoked);
    }
    assert!(sizes.is_sorted() && sizes[5] > sizes[0], "nothing changed meanwhile: {sizes:?}");
}

#[test]
fn a_backup_takes_no_place_and_tells_where_the_key_goes() {
    let site = Site::of(&PEOPLE);
    let path = site.botgate.path("backup.db").display().to_string();
    let told = site.botgate.run(&["backup", &path, "--with-master-key"]).done();
    assert!(told.contains("backup.db.master.key") && told.contains("keep it elsewhere"), "{told}");
    let bytes = fs::read(&path).expect("the backup");
    site.botgate.run(&["backup", &path]).failed();
    assert!(bytes == fs::read(&path).expect("the backup"), "it was replaced");
    let folder = site.botgate.path("backups");
    fs::create_dir(&folder).expect("a directory");
    for _ in 0..2 {
        site.botgate.run(&["backup", &folder.display().to_string()]).done();
    }
    assert_eq!(fs::read_dir(&folder).expect("a directory").count(), 2);
    for login in PEOPLE {
        let key = site.key(login);
        assert!(!bytes.windows(key.len()).any(|window| window == key.as_bytes()), "{login}'s key");
    }
}

#[test]
fn a_kill_at_any_moment_leaves_the_old_or_the_new_database() {
    let mut site = Site::of(&PEOPLE);
    let file = backup(&site, "backup.db").display().to_string();
    let since = Instant::now();
    restore(&site, &[&file]);
    let (whole, kills, mut killed) = (since.elapsed(), 20, 0);
    for kill in 0..kills {
        let mut child = Command::new(env!("CARGO_BIN_EXE_botgate"))
            .args(["restore", &file])
            .env("BOTGATE_CONFIG", site.botgate.path("botgate.toml"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary runs");
        std::thread::sleep(whole * kill / (kills - 4));
        child.kill().expect("a child can be killed");
        killed += usize::from(child.wait().expect("a child can be waited for").code().is_none());
        let people = site.botgate.run(&["--json", "user", "list"]).json();
        let people = people.as_array().expect("a list");
        assert_eq!(people.len(), PEOPLE.len());
        assert!(people.iter().all(|person| person["state"] == "active"), "{people:?}");
    }
    assert!(killed > 4, "only {killed} were killed under way");
    restore(&site, &[&file]);
    site.botgate.serve_until_ready();
    let token = site.botgate.session("erin");
    assert_eq!(site.status(&token), 200);
}
