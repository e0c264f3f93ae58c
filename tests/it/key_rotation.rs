//! The master key is rotated: everything opens afterwards, under the new key alone, whenever the process was killed.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::site::Site;

const PEOPLE: [&str; 3] = ["alice", "bob", "carol"];

/// Every key opens, as the doctor sees it. What it says about the gateway is not the matter here.
#[track_caller]
fn opens(site: &Site) {
    let found = site.botgate.run(&["--json", "doctor"]).json();
    let mut found = found["findings"].as_array().expect("findings").iter();
    let database = found.find(|finding| finding["check"] == "database").expect("the database is looked at");
    assert_eq!(database["message"], "3 people, 3 bots, every key opens", "{database}");
    assert!(!site.botgate.path("data/master.key.next").exists());
}

#[test]
fn bots_sessions_and_audit_log_go_on_under_the_new_key() {
    let mut site = Site::of(&PEOPLE);
    let token = site.botgate.session("alice");
    let head = site.botgate.run(&["--json", "audit", "--verify"]).json()["head"].as_str().expect("a head").to_owned();
    let old = fs::read(site.botgate.path("data/master.key")).expect("a key");

    site.botgate.serve_until_ready();
    let refused = site.botgate.run(&["key", "rotate"]).failed();
    assert!(refused.contains("in use by another botgate") && refused.contains("stop it"), "{refused}");
    assert_eq!(site.status(&token), 200);
    assert!(site.botgate.stop());

    for _ in 0..2 {
        let done = site.botgate.run(&["--json", "key", "rotate"]).json();
        assert_eq!((done["keys"].as_u64(), done["unopened"].as_u64()), (Some(3), Some(0)));
    }
    assert!(old != fs::read(site.botgate.path("data/master.key")).expect("a key"));
    opens(&site);
    site.botgate.serve_until_ready();
    assert_eq!(site.status(&token), 200);
    site.botgate.run(&["audit", "--verify", "--head", &head]).done();
    assert!(site.botgate.stop());
    let rotations = site.botgate.audit().iter().filter(|record| record["action"] == "key.rotate").count();
    assert_eq!(rotations, 2);

    let new = fs::read(site.botgate.path("data/master.key")).expect("a key");
    fs::write(site.botgate.path("data/master.key"), old).expect("the file can be written");
    let failed = site.botgate.run(&["bot", "list"]).failed();
    assert!(failed.contains("another master key"), "{failed}");
    fs::write(site.botgate.path("data/master.key"), new).expect("the file can be written");
    opens(&site);
}

#[test]
fn a_credential_is_rotated_with_a_key_from_outside() {
    use std::os::unix::fs::PermissionsExt;
    let site = Site::of(&PEOPLE);
    let credentials = tempfile::tempdir().expect("a temporary directory");
    fs::rename(site.botgate.path("data/master.key"), credentials.path().join("botgate-master-key")).expect("moved");
    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_botgate"))
            .args(arguments)
            .env("BOTGATE_CONFIG", site.botgate.path("botgate.toml"))
            .env("CREDENTIALS_DIRECTORY", credentials.path())
            .output()
            .expect("the binary runs");
        (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    let (code, told) = run(&["key", "rotate"]);
    assert!(code == Some(1) && told.contains("--new-key"), "{told}");
    let new = site.botgate.path("new.key");
    fs::write(&new, format!("{}\n", "5a".repeat(32))).expect("the key can be written");
    let (code, told) = run(&["key", "rotate", "--new-key", &new.display().to_string()]);
    assert!(code == Some(1) && told.contains("others can read"), "{told}");
    fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).expect("a mode");
    for expected in ["put the new key in the credential's place", "it was rotated before"] {
        let (code, told) = run(&["key", "rotate", "--new-key", &new.display().to_string()]);
        assert!(code == Some(0) && told.contains(expected), "{told}");
        let (code, told) = run(&["bot", "list"]);
        assert!(code == Some(1) && told.contains("another master key"), "{told}");
    }
    fs::copy(&new, credentials.path().join("botgate-master-key")).expect("copied");
    let (code, told) = run(&["bot", "list"]);
    assert_eq!(code, Some(0), "{told}");
    assert!(!site.botgate.path("data/master.key").exists() && !site.botgate.path("data/master.key.next").exists());
}

#[test]
fn a_kill_at_any_moment_leaves_one_key_that_opens_everything() {
    let site = Site::of(&PEOPLE);
    let since = Instant::now();
    site.botgate.run(&["key", "rotate"]).done();
    let whole = since.elapsed();
    let (mut killed, kills) = (0, 24);
    for kill in 0..kills {
        let mut child = Command::new(env!("CARGO_BIN_EXE_botgate"))
            .args(["key", "rotate"])
            .env("BOTGATE_CONFIG", site.botgate.path("botgate.toml"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary runs");
        std::thread::sleep(whole * kill / (kills - 4));
        child.kill().expect("a child can be killed");
        killed += usize::from(child.wait().expect("a child can be waited for").code().is_none());
        opens(&site);
    }
    assert!(killed > 4, "only {killed} were killed under way");
    site.botgate.run(&["audit", "--verify"]).done();
    let left = fs::read_dir(site.botgate.path("data")).expect("a directory").flatten();
    let keys = left.filter(|entry| entry.file_name().to_string_lossy().contains("master.key")).count();
    assert_eq!(keys, 1);
    assert!(whole < Duration::from_secs(60));
}
