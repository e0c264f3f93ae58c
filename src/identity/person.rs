//! A signed-in person and a session of theirs, as requests hold them.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::tasks::Cancellation;

use crate::names::{Login, Role, Uid};
use crate::secret::{TokenDigest, TokenKind};

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
#[derive(Debug)]
pub struct Session {
    parts: SessionParts,
    person: Arc<Person>,
    cancelled: Cancellation,
    revoked_at: OnceLock<Instant>,
    // Both only grow, so that relaxed order is enough.
    idle_expires_at: AtomicI64,
    last_used_at: AtomicI64,
}

impl Session {
    pub(super) fn new(person: Arc<Person>, parts: SessionParts) -> Self {
        let cancelled = person.cancelled.child();
        let idle_expires_at = AtomicI64::new(parts.idle.map_or(i64::MAX, |idle| idle.expires_at));
        let (revoked_at, last_used_at) = (OnceLock::new(), AtomicI64::new(0));
        Session { parts, person, cancelled, revoked_at, idle_expires_at, last_used_at }
    }

    /// Cuts the session off, for good.
    pub(super) fn revoke(&self) {
        self.revoked_at.get_or_init(Instant::now);
        self.cancelled.cancel();
    }

    /// The same session, for the same person come back.
    pub(super) fn renewed(&self, person: Arc<Person>) -> Self {
        let mut parts = self.parts.clone();
        if let Some(idle) = &mut parts.idle {
            idle.expires_at = self.idle_expires_at.load(Ordering::Relaxed);
        }
        Session::new(person, parts)
    }

    /// The session's row.
    pub fn id(&self) -> &Uid {
        &self.parts.id
    }

    /// Whose it is.
    pub fn person(&self) -> &Arc<Person> {
        &self.person
    }

    /// Signed-in session or personal token.
    pub fn kind(&self) -> TokenKind {
        self.parts.kind
    }

    /// The owner's word for a personal token.
    pub fn label(&self) -> Option<&str> {
        self.parts.label.as_deref()
    }

    /// When it was issued, UTC milliseconds.
    pub fn created_at(&self) -> i64 {
        self.parts.created_at
    }

    /// When it ends, UTC milliseconds.
    pub fn expires_at(&self) -> i64 {
        self.parts.expires_at
    }

    /// Cancelled for good when the session is revoked, and with its person.
    pub fn cancelled(&self) -> &Cancellation {
        &self.cancelled
    }

    /// How long ago the session or its person was revoked; `None`: it was not.
    pub fn revoked_for(&self) -> Option<Duration> {
        let at = [self.revoked_at.get(), self.person.revoked_at.get()].into_iter().flatten().min()?;
        Some(at.elapsed())
    }

    pub(super) fn digest(&self) -> TokenDigest {
        self.parts.digest
    }

    pub(super) fn is_expired(&self, now_ms: i64) -> bool {
        now_ms >= self.parts.expires_at || now_ms >= self.idle_expires_at.load(Ordering::Relaxed)
    }

    /// Notes use, and puts off the idle end.
    pub(super) fn touch(&self, now_ms: i64) {
        if now_ms - self.last_used_at.load(Ordering::Relaxed) < TOUCH_STEP_MS {
            return;
        }
        self.last_used_at.store(now_ms, Ordering::Relaxed);
        if let Some(idle) = &self.parts.idle {
            self.idle_expires_at.fetch_max(now_ms.saturating_add(idle.length_ms), Ordering::Relaxed);
        }
    }

    /// When it ends for want of use, UTC milliseconds; `None`: use does not matter.
    pub fn idle_expires_at(&self) -> Option<i64> {
        self.parts.idle.map(|_| self.idle_expires_at.load(Ordering::Relaxed))
    }

    /// When it was last used since the start of this process, UTC milliseconds; `None`: not yet.
    pub fn last_used_at(&self) -> Option<i64> {
        Some(self.last_used_at.load(Ordering::Relaxed)).filter(|&at| at > 0)
    }
}
