//! Tests of the store as a whole: one file per behaviour.

mod bots;
mod bulk;
mod crash;
mod disk;
mod opening;
mod people;
mod queue;
mod restore;
mod rotation;
mod rows;
mod sessions;

use std::path::Path;

use tempfile::TempDir;

use super::*;
use crate::names::{GatewayName, Login, Role, Uid};
use crate::secret::{ApiServerKey, FreshToken, TokenKind};

/// A store in a directory of its own.
struct Fixture {
    dir: TempDir,
    master: MasterKey,
    store: Store,
}

impl Fixture {
    fn new() -> Self {
        let (dir, master) = (tempfile::tempdir().unwrap(), MasterKey::generate());
        let store = Store::open(dir.path(), &master).unwrap();
        Fixture { dir, master, store }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn database(&self) -> std::path::PathBuf {
        self.path().join(sqlite::DATABASE_FILE)
    }

    /// Closes the store and opens it again, as a restart does.
    async fn restart(&mut self) {
        self.store.close().await.unwrap();
        self.store = Store::open(self.path(), &self.master).unwrap();
    }

    async fn person(&self, name: &str) -> PersonRow {
        let person = NewPerson { login: login(name), role: role(), gateway: None };
        self.store.add_person(person).await.unwrap()
    }

    async fn bot(&self, name: &str) -> (PersonRow, BotKey) {
        self.person(name).await;
        self.store.adopt_bot(login(name), gateway(), ApiServerKey::generate()).await.unwrap()
    }

    async fn session(&self, uid: &Uid, kind: TokenKind) -> SessionRow {
        self.store.create_sessions(vec![new_session(uid, kind)]).await.unwrap().remove(0).unwrap()
    }

    /// Runs SQL past the store's methods, with constraints between tables off: somebody at the file.
    async fn tamper(&self, sql: &'static str) {
        let Backend::Sqlite(database) = &self.store.backend;
        let script = format!("PRAGMA foreign_keys = OFF; {sql}; PRAGMA foreign_keys = ON;");
        database.raw(move |connection| connection.execute_batch(&script)).await.unwrap();
    }

    /// Runs SQL past the store's methods, with every constraint on.
    async fn attempt(&self, sql: &'static str) -> Result<(), rusqlite::Error> {
        let Backend::Sqlite(database) = &self.store.backend;
        database.raw(move |connection| connection.execute_batch(sql)).await
    }
}

fn login(text: &str) -> Login {
    Login::parse(text).unwrap()
}

fn role() -> Role {
    Role::parse("member").unwrap()
}

fn gateway() -> GatewayName {
    GatewayName::parse("main").unwrap()
}

fn new_session(uid: &Uid, kind: TokenKind) -> NewSession {
    let now = now_ms();
    NewSession {
        uid: uid.clone(),
        digest: FreshToken::generate(kind).digest(),
        kind,
        label: None,
        created_at: now,
        expires_at: now + 3_600_000,
        idle_expires_at: None,
    }
}

/// A test's name as the test runner knows it, for a child that runs this test alone.
fn test_name(module: &str, test: &str) -> String {
    format!("{}::{test}", module.split_once("::").unwrap().1)
}

/// Whether opening failed for such a cause, with an error that names the database.
fn opening(error: &StoreError, cause: impl FnOnce(&StoreError) -> bool) -> bool {
    match error {
        StoreError::Opening { source, .. } => error.to_string().contains(sqlite::DATABASE_FILE) && cause(source),
        _ => false,
    }
}

/// Where a child of a test works; `None` in the test itself.
#[expect(clippy::disallowed_methods, reason = "the child is this test binary, whose arguments are the runner's")]
fn child_dir(variable: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(variable)
}
