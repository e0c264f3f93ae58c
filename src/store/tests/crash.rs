use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use super::*;

/// Names the directory in which the child of this test writes until it is killed.
const CHILD_DIR: &str = "BOTGATE_TEST_CRASH_DIR";

#[tokio::test]
async fn what_was_answered_before_a_kill_is_there_after_it() {
    if let Some(dir) = child_dir(CHILD_DIR) {
        return write_until_killed(Path::new(&dir)).await;
    }
    for answers in [1, 40] {
        let dir = tempfile::tempdir().unwrap();
        let master = create_master_key(dir.path()).unwrap();
        let name = test_name(module_path!(), "what_was_answered_before_a_kill_is_there_after_it");
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &name, "--nocapture"])
            .env(CHILD_DIR, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        // The line that the test runner begins may have the child's first answer at its end.
        let answered: Vec<String> =
            lines.filter_map(|line| Some(line.split_once("answered ")?.1.to_owned())).take(answers).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(answered.len(), answers);

        DataDirLock::acquire(dir.path()).expect("a killed process holds no lock");
        let store = Store::open(dir.path(), &master).unwrap();
        let loaded = store.load().await.unwrap();
        assert!(loaded.problems.is_empty(), "{:?}", loaded.problems);
        for name in answered {
            let person = loaded.people.iter().find(|person| person.login.as_str() == name).expect("nothing lost");
            assert!(loaded.bots.iter().any(|bot| bot.uid == person.uid), "{name} came half");
            assert!(!loaded.sessions.iter().any(|session| session.uid == person.uid), "a revoked session came back");
        }
        // Whatever was under way when the kill came happened wholly or not at all.
        assert_eq!(loaded.people.iter().filter(|person| person.profile.is_some()).count(), loaded.bots.len());
    }
}

async fn write_until_killed(dir: &Path) {
    let _lock = DataDirLock::acquire(dir).unwrap();
    let store = Store::open(dir, &master_key(dir).unwrap()).unwrap();
    for n in 0..100_000 {
        let line = ImportLine {
            login: login(&format!("person-{n}")),
            role: role(),
            gateway: gateway(),
            key: Some(ApiServerKey::generate()),
        };
        let ImportOutcome::Added { person, .. } = store.import_people(vec![line]).await.unwrap().remove(0) else {
            panic!("a fresh login")
        };
        let session = new_session(&person.uid, TokenKind::Session);
        let session = store.create_sessions(vec![session]).await.unwrap().remove(0).unwrap();
        store.revoke_session(session.id).await.unwrap();
        // Past the test runner's capture, and at once.
        writeln!(std::io::stdout(), "answered {}", person.login).unwrap();
    }
}
