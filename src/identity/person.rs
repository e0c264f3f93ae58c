//! A signed-in person and a session of theirs, as requests hold them.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::names::{Login, Role, Uid};
use crate::secret::{TokenDigest, TokenKind};
use crate::tasks::Cancellation;

/// Smallest step by which use of a session is noted, in milliseconds: a busy session writes its cache line once a second.
const TOUCH_STEP_MS: i64 = 1_000;

/// A person who may sign in. Once cancelled it stays so; who comes back is a new `Person`.
#[derive(Debug)]
pub struct Person {
    uid: Uid,
    login: Login,
    role: Role,
    cancelled: Cancellation,
    revoked_at: OnceLock<Instant>,
}

impl Person {
    pub(super) fn new(uid: Uid, login: Login, role: Role) -> Self {
        Person { uid, login, role, cancelled: Cancellation::new(), revoked_at: OnceLock::new() }
    }

    /// Cuts the person and all their sessions off, for good.
    pub(super) fn revoke(&self) {
        self.revoked_at.get_or_init(Instant::now);
        self.cancelled.cancel();
    }

    pub(super) fn is_revoked(&self) -> bool {
        self.revoked_at.get().is_some()
    }

    /// The person's row.
    pub fn uid(&self) -> &Uid {
        &self.uid
    }

    /// The person's name.
    pub fn login(&self) -> &Login {
        &self.login
    }

    /// The person's role.
    pub fn role(&self) -> &Role {
        &self.role
    }

    /// Cancelled for good when the person is disabled, locked down or deleted.
    pub fn cancelled(&self) -> &Cancellation {
        &self.cancelled
    }
}

/// When a session ends for want of use.
#[derive(Debug, Clone, Copy)]
pub struct Idle {
    /// Silence that ends it, in milliseconds.
    pub length_ms: i64,
    /// When it ends unless used before, UTC milliseconds.
    pub expires_at: i64,
}

/// What a session is made of, from the store or freshly issued.
#[derive(Debug, Clone)]
pub struct SessionParts {
    /// The session's row.
    pub id: Uid,
    /// What its token is known by.
    pub digest: TokenDigest,
    /// Signed-in session or personal token.
    pub kind: TokenKind,
    /// The owner's word for a personal token.
    pub label: Option<String>,
    /// When it was issued, UTC milliseconds.
    pub created_at: i64,
    /// When it ends, UTC milliseconds.
    pub expires_at: i64,
    /// When it ends for want of use; `None`: use does not matter.
    pub idle: Option<Idle>,
}

/// A session or personal token of one person.
///
/// What a lookup reads comes first and fills, with the reference counts, two cache lines: with a million sessions each line
/// more is another wait for memory.
#[derive(Debug)]
#[repr(C)]
pub struct Session {
    digest: TokenDigest,
    person: Arc<Person>,
    expires_at: i64,
    // Both only grow, so that relaxed order is enough.
    idle_expires_at: AtomicI64,
    last_used_at: AtomicI64,
    revoked_at: OnceLock<Instant>,
    kind: TokenKind,
    // Silence that ends it, in milliseconds.
    idle_length_ms: Option<i64>,
    cancelled: Cancellation,
    id: Uid,
    label: Option<String>,
    created_at: i64,
}

impl Session {
    pub(super) fn new(person: Arc<Person>, parts: SessionParts) -> Self {
        let cancelled = person.cancelled.child();
        let SessionParts { id, digest, kind, label, created_at, expires_at, idle } = parts;
        Session {
            digest,
            person,
            expires_at,
            idle_expires_at: AtomicI64::new(idle.map_or(i64::MAX, |idle| idle.expires_at)),
            last_used_at: AtomicI64::new(0),
            revoked_at: OnceLock::new(),
            kind,
            idle_length_ms: idle.map(|idle| idle.length_ms),
            cancelled,
            id,
            label,
            created_at,
        }
    }

    /// Cuts the session off, for good.
    pub(super) fn revoke(&self) {
        self.revoked_at.get_or_init(Instant::now);
        self.cancelled.cancel();
    }

    /// The same session, for the same person come back.
    pub(super) fn renewed(&self, person: Arc<Person>) -> Self {
        let expires_at = self.idle_expires_at.load(Ordering::Relaxed);
        let parts = SessionParts {
            id: self.id.clone(),
            digest: self.digest,
            kind: self.kind,
            label: self.label.clone(),
            created_at: self.created_at,
            expires_at: self.expires_at,
            idle: self.idle_length_ms.map(|length_ms| Idle { length_ms, expires_at }),
        };
        Session::new(person, parts)
    }

    /// The session's row.
    pub fn id(&self) -> &Uid {
        &self.id
    }

    /// Whose it is.
    pub fn person(&self) -> &Arc<Person> {
        &self.person
    }

    /// Signed-in session or personal token.
    pub fn kind(&self) -> TokenKind {
        self.kind
    }

    /// The owner's word for a personal token.
    pub fn label(&self) -> Option<&str> {
        self.label.as_deref()
    }

    /// When it was issued, UTC milliseconds.
    pub fn created_at(&self) -> i64 {
        self.created_at
    }

    /// When it ends, UTC milliseconds.
    pub fn expires_at(&self) -> i64 {
        self.expires_at
    }

    /// Cancelled for good when the session is revoked, and with its person.
    pub fn cancelled(&self) -> &Cancellation {
        &self.cancelled
    }

    /// Whether the session or its person was revoked: what `cancelled` says, and a little earlier.
    pub(super) fn is_revoked(&self) -> bool {
        self.revoked_at.get().is_some() || self.person.is_revoked()
    }

    /// How long ago the session or its person was revoked; `None`: it was not.
    pub fn revoked_for(&self) -> Option<Duration> {
        let at = [self.revoked_at.get(), self.person.revoked_at.get()].into_iter().flatten().min()?;
        Some(at.elapsed())
    }

    pub(super) fn digest(&self) -> &TokenDigest {
        &self.digest
    }

    pub(super) fn is_expired(&self, now_ms: i64) -> bool {
        now_ms >= self.expires_at || now_ms >= self.idle_expires_at.load(Ordering::Relaxed)
    }

    /// Notes use, and puts off the idle end.
    pub(super) fn touch(&self, now_ms: i64) {
        if now_ms - self.last_used_at.load(Ordering::Relaxed) < TOUCH_STEP_MS {
            return;
        }
        self.last_used_at.store(now_ms, Ordering::Relaxed);
        if let Some(length_ms) = self.idle_length_ms {
            self.idle_expires_at.fetch_max(now_ms.saturating_add(length_ms), Ordering::Relaxed);
        }
    }

    /// When it ends for want of use, UTC milliseconds; `None`: use does not matter.
    pub fn idle_expires_at(&self) -> Option<i64> {
        self.idle_length_ms.map(|_| self.idle_expires_at.load(Ordering::Relaxed))
    }

    /// When it was last used since the start of this process, UTC milliseconds; `None`: not yet.
    pub fn last_used_at(&self) -> Option<i64> {
        Some(self.last_used_at.load(Ordering::Relaxed)).filter(|&at| at > 0)
    }
}
