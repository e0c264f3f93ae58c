//! The live sessions: a sharded map from a token's digest, and per person the way back for revocation.
//!
//! Invariants: a lookup takes one short shard lock and no other; changes take the person's entry first and hold it while
//! they change the digest map, so that no session is put in behind a revocation.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use foldhash::fast::RandomState;

use super::person::{Person, Session, SessionParts};
use crate::names::{Login, Role, Uid};
use crate::secret::{PresentedToken, TokenDigest, TokenKind};
use crate::telemetry::reason::Reason;

/// Use of one session, to be written to the store.
#[derive(Debug, Clone)]
pub struct Touched {
    /// The session's row.
    pub id: Uid,
    /// When it ends for want of use, UTC milliseconds.
    pub idle_expires_at: Option<i64>,
    /// When it was last used, UTC milliseconds.
    pub last_used_at: i64,
}

#[derive(Debug)]
struct Own {
    person: Arc<Person>,
    sessions: HashMap<Uid, TokenDigest>,
}

/// A session as its token finds it. The digest stays in the session: with a million of them it is their table's size that
/// decides how long a lookup waits for memory.
#[derive(Debug)]
struct ByDigest(Arc<Session>);

impl Borrow<TokenDigest> for ByDigest {
    fn borrow(&self) -> &TokenDigest {
        self.0.digest()
    }
}

impl PartialEq for ByDigest {
    fn eq(&self, other: &Self) -> bool {
        self.0.digest() == other.0.digest()
    }
}

impl Eq for ByDigest {}

impl Hash for ByDigest {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.digest().hash(state);
    }
}

/// Parts of the table of sessions, each with a lock of its own: a part that grows keeps its lookups waiting, so parts are small.
const SHARDS: usize = 256;

#[derive(Debug)]
struct Maps {
    by_digest: DashMap<ByDigest, (), RandomState>,
    by_person: DashMap<Uid, Own>,
    owners: DashMap<Uid, Uid>,
}

/// A token that opens no session.
#[derive(Debug)]
pub struct NotSignedIn {
    /// Why.
    pub reason: Reason,
    /// Whose it was, where that is known: for the audit log, never a right to anything.
    pub person: Option<Arc<Person>>,
}

/// All people and their live sessions. Clones are handles on the same maps.
#[derive(Debug, Clone)]
pub struct Sessions(Arc<Maps>);

impl Default for Sessions {
    fn default() -> Self {
        // Whoever asks chooses what is looked up, but never what is put in: every token was drawn here.
        let by_digest = DashMap::with_capacity_and_hasher_and_shard_amount(0, RandomState::default(), SHARDS);
        Sessions(Arc::new(Maps { by_digest, by_person: DashMap::new(), owners: DashMap::new() }))
    }
}

impl Sessions {
    /// Nobody yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a person known; one who is known already stays as they are. `enabled`: whether their sessions count.
    pub fn add_person(&self, uid: Uid, login: Login, role: Role, enabled: bool) -> Arc<Person> {
        match self.0.by_person.entry(uid.clone()) {
            Entry::Occupied(own) => own.get().person.clone(),
            Entry::Vacant(place) => {
                let person = Arc::new(Person::new(uid, login, role));
                if !enabled {
                    person.revoke();
                }
                place.insert(Own { person: person.clone(), sessions: HashMap::new() });
                person
            }
        }
    }

    /// A person by row.
    pub fn person(&self, uid: &Uid) -> Option<Arc<Person>> {
        self.0.by_person.get(uid).map(|own| own.person.clone())
    }

    /// The rows of everybody known.
    pub fn people(&self) -> Vec<Uid> {
        self.0.by_person.iter().map(|own| own.key().clone()).collect()
    }

    /// Puts a session in; `None` when its person is not known.
    pub fn insert(&self, uid: &Uid, parts: SessionParts) -> Option<Arc<Session>> {
        let mut own = self.0.by_person.get_mut(uid)?;
        let session = Arc::new(Session::new(own.person.clone(), parts));
        own.sessions.insert(session.id().clone(), *session.digest());
        self.0.owners.insert(session.id().clone(), uid.clone());
        self.0.replace(session.clone());
        Some(session)
    }

    /// The session that a token opens, at a time in UTC milliseconds. Its cancellation must be looked at again after
    /// every wait.
    ///
    /// # Errors
    /// [`NotSignedIn`]
    pub fn lookup(&self, token: &PresentedToken, now_ms: i64) -> Result<Arc<Session>, NotSignedIn> {
        let stranger = |reason| NotSignedIn { reason, person: None };
        if token.kind == TokenKind::Bot {
            return Err(stranger(Reason::CredentialKind));
        }
        let session = self.0.by_digest.get(&token.digest).map(|found| found.key().0.clone());
        let session = session.ok_or_else(|| stranger(Reason::CredentialUnknown))?;
        let refused = |reason| NotSignedIn { reason, person: Some(Arc::clone(session.person())) };
        if session.kind() != token.kind {
            return Err(refused(Reason::CredentialKind));
        }
        if session.is_revoked() {
            let person = session.person().is_revoked();
            return Err(refused(if person { Reason::PersonDisabled } else { Reason::SessionRevoked }));
        }
        if session.is_expired(now_ms) {
            return Err(refused(Reason::SessionExpired));
        }
        session.touch(now_ms);
        Ok(session)
    }

    /// A session by row.
    pub fn session(&self, id: &Uid) -> Option<Arc<Session>> {
        let owner = self.0.owners.get(id)?.value().clone();
        let digest = *self.0.by_person.get(&owner)?.sessions.get(id)?;
        self.0.by_digest.get(&digest).map(|found| found.key().0.clone())
    }

    /// Cuts one session off; false when it is not live.
    pub fn revoke_session(&self, id: &Uid) -> bool {
        let Some(owner) = self.0.owners.get(id).map(|owner| owner.value().clone()) else { return false };
        let Some(mut own) = self.0.by_person.get_mut(&owner) else { return false };
        own.sessions.remove(id).is_some_and(|digest| {
            self.forget(id, &digest);
            true
        })
    }

    /// Cuts off a person's sessions of the given kinds and tells how many there were.
    pub fn revoke_kinds(&self, uid: &Uid, kinds: &[TokenKind]) -> usize {
        let Some(mut own) = self.0.by_person.get_mut(uid) else { return 0 };
        let before = own.sessions.len();
        own.sessions.retain(|id, digest| {
            let hit = self.0.by_digest.get(digest).is_none_or(|session| kinds.contains(&session.key().0.kind()));
            if hit {
                self.forget(id, digest);
            }
            !hit
        });
        before - own.sessions.len()
    }

    /// Disables a person: what they run ends, their sessions stay known and are refused until [`Sessions::enable`].
    pub fn disable(&self, uid: &Uid) {
        if let Some(own) = self.0.by_person.get(uid) {
            own.person.revoke();
        }
    }

    /// Lets a disabled person back in: a new `Person`, and their sessions with it.
    pub fn enable(&self, uid: &Uid) {
        let Some(mut own) = self.0.by_person.get_mut(uid) else { return };
        if !own.person.cancelled().is_cancelled() {
            return;
        }
        let old = &own.person;
        let person = Arc::new(Person::new(old.uid().clone(), old.login().clone(), old.role().clone()));
        for digest in own.sessions.values() {
            let renewed = self.0.by_digest.get(digest).map(|session| session.key().0.renewed(person.clone()));
            if let Some(renewed) = renewed {
                self.0.replace(Arc::new(renewed));
            }
        }
        own.person = person;
    }

    /// Cuts a person and all their sessions off, and leaves the person known and disabled. Tells how many sessions.
    pub fn revoke_person(&self, uid: &Uid) -> usize {
        let Some(mut own) = self.0.by_person.get_mut(uid) else { return 0 };
        own.person.revoke();
        let sessions = std::mem::take(&mut own.sessions);
        for (id, digest) in &sessions {
            self.forget(id, digest);
        }
        sessions.len()
    }

    /// Cuts a person off and forgets them.
    pub fn remove_person(&self, uid: &Uid) {
        // Taken out first: what is put in later finds nobody.
        let Some((_, own)) = self.0.by_person.remove(uid) else { return };
        own.person.revoke();
        for (id, digest) in &own.sessions {
            self.forget(id, digest);
        }
    }

    /// Takes out the sessions that have ended by a time in UTC milliseconds, and tells how many.
    pub fn sweep(&self, now_ms: i64) -> usize {
        let ended: Vec<Uid> = (self.0.by_digest.iter())
            .filter(|session| session.key().0.is_expired(now_ms))
            .map(|session| session.key().0.id().clone())
            .collect();
        ended.iter().filter(|id| self.revoke_session(id)).count()
    }

    /// Sessions used at or after a time in UTC milliseconds.
    pub fn touched_since(&self, since_ms: i64) -> Vec<Touched> {
        let used = |session: &Session| {
            let last_used_at = session.last_used_at().filter(|&at| at >= since_ms)?;
            Some(Touched { id: session.id().clone(), idle_expires_at: session.idle_expires_at(), last_used_at })
        };
        self.0.by_digest.iter().filter_map(|session| used(&session.key().0)).collect()
    }

    /// Live sessions, those of disabled people among them.
    pub fn len(&self) -> usize {
        self.0.by_digest.len()
    }

    /// Whether nobody has a live session.
    pub fn is_empty(&self) -> bool {
        self.0.by_digest.is_empty()
    }

    /// Called with the owner's entry held.
    fn forget(&self, id: &Uid, digest: &TokenDigest) {
        self.0.owners.remove(id);
        if let Some((ByDigest(session), ())) = self.0.by_digest.remove(digest) {
            session.revoke();
        }
    }
}

impl Maps {
    /// Puts a session in, in the place of one with the same token. Called with the owner's entry held; a lookup may find neither
    /// of the two for a moment.
    fn replace(&self, session: Arc<Session>) {
        self.by_digest.remove(session.digest());
        self.by_digest.insert(ByDigest(session), ());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Idle;
    use crate::secret::FreshToken;

    struct Fixture {
        sessions: Sessions,
        uid: Uid,
    }

    impl Fixture {
        fn new() -> Self {
            let (sessions, uid) = (Sessions::new(), Uid::random());
            sessions.add_person(uid.clone(), Login::parse("alice").unwrap(), Role::parse("member").unwrap(), true);
            Fixture { sessions, uid }
        }

        fn issue(&self, kind: TokenKind, idle: Option<Idle>) -> (PresentedToken, Arc<Session>) {
            let token = FreshToken::generate(kind);
            let parts = SessionParts {
                id: Uid::random(),
                digest: token.digest(),
                kind,
                label: None,
                created_at: 0,
                expires_at: 10_000_000,
                idle,
            };
            let session = self.sessions.insert(&self.uid, parts).unwrap();
            (PresentedToken::parse(token.expose().as_bytes()).unwrap(), session)
        }

        fn refusal(&self, token: &PresentedToken, now_ms: i64) -> Option<Reason> {
            self.sessions.lookup(token, now_ms).err().map(|refused| refused.reason)
        }
    }

    #[test]
    fn a_token_opens_its_own_session_until_it_ends() {
        let f = Fixture::new();
        let (token, session) = f.issue(TokenKind::Session, None);
        assert_eq!(f.sessions.lookup(&token, 1).unwrap().id(), session.id());
        assert_eq!(f.refusal(&token, 9_999_999), None);
        assert_eq!(f.refusal(&token, 10_000_000), Some(Reason::SessionExpired));
        let stranger = FreshToken::generate(TokenKind::Session);
        let stranger = PresentedToken::parse(stranger.expose().as_bytes()).unwrap();
        assert_eq!(f.refusal(&stranger, 1), Some(Reason::CredentialUnknown));
    }

    #[test]
    fn tokens_whose_digests_begin_alike_open_their_own_sessions() {
        let f = Fixture::new();
        let tokens = [1_u8, 2].map(|last| {
            let mut bytes = [7; 32];
            bytes[31] = last;
            PresentedToken { kind: TokenKind::Session, digest: TokenDigest::from_stored(&bytes).unwrap() }
        });
        let issued = tokens.map(|token| {
            let (id, digest) = (Uid::random(), token.digest);
            let parts =
                SessionParts { id, digest, kind: token.kind, label: None, created_at: 0, expires_at: 10, idle: None };
            f.sessions.insert(&f.uid, parts).unwrap()
        });
        for (token, session) in tokens.iter().zip(&issued) {
            assert_eq!(f.sessions.lookup(token, 1).unwrap().id(), session.id());
        }
        assert!(f.sessions.revoke_session(issued[0].id()));
        assert_eq!(f.refusal(&tokens[0], 1), Some(Reason::CredentialUnknown));
        assert_eq!(f.refusal(&tokens[1], 1), None);
    }

    #[test]
    fn a_bot_token_opens_no_session() {
        let f = Fixture::new();
        let (token, _) = f.issue(TokenKind::Bot, None);
        assert_eq!(f.refusal(&token, 1), Some(Reason::CredentialKind));
    }

    #[test]
    fn a_revoked_session_is_cut_and_its_neighbours_are_not() {
        let f = Fixture::new();
        let (token, session) = f.issue(TokenKind::Session, None);
        let (other, neighbour) = f.issue(TokenKind::Personal, None);
        assert!(f.sessions.revoke_session(session.id()));
        assert!(!f.sessions.revoke_session(session.id()));
        assert!(session.cancelled().is_cancelled() && !neighbour.cancelled().is_cancelled());
        assert_eq!(f.refusal(&token, 1), Some(Reason::CredentialUnknown));
        assert_eq!(f.refusal(&other, 1), None);
    }

    #[test]
    fn revoking_a_kind_leaves_the_other() {
        let f = Fixture::new();
        let (session, _) = f.issue(TokenKind::Session, None);
        let (personal, _) = f.issue(TokenKind::Personal, None);
        assert_eq!(f.sessions.revoke_kinds(&f.uid, &[TokenKind::Session]), 1);
        assert_eq!(f.refusal(&session, 1), Some(Reason::CredentialUnknown));
        assert_eq!(f.refusal(&personal, 1), None);
    }

    #[test]
    fn cancellation_is_sticky_over_disable_and_enable() {
        let f = Fixture::new();
        let (token, held) = f.issue(TokenKind::Session, None);
        f.sessions.disable(&f.uid);
        assert_eq!(f.refusal(&token, 1), Some(Reason::PersonDisabled));
        f.sessions.enable(&f.uid);
        assert_eq!(f.refusal(&token, 1), None);
        assert!(held.cancelled().is_cancelled() && held.revoked_for().is_some(), "what ran before stays cut");
        assert!(f.sessions.lookup(&token, 1).unwrap().revoked_for().is_none());
        assert!(!f.sessions.person(&f.uid).unwrap().cancelled().is_cancelled());
    }

    #[test]
    fn enabling_somebody_who_is_enabled_cuts_nothing() {
        let f = Fixture::new();
        let (_, held) = f.issue(TokenKind::Session, None);
        f.sessions.enable(&f.uid);
        f.sessions.disable(&f.uid);
        assert!(held.cancelled().is_cancelled());
    }

    #[test]
    fn revoking_a_person_drops_every_session_for_good() {
        let f = Fixture::new();
        let (token, held) = f.issue(TokenKind::Session, None);
        assert_eq!(f.sessions.revoke_person(&f.uid), 1);
        assert!(held.cancelled().is_cancelled() && f.sessions.is_empty());
        f.sessions.enable(&f.uid);
        assert_eq!(f.refusal(&token, 1), Some(Reason::CredentialUnknown));
        f.sessions.remove_person(&f.uid);
        assert!(f.sessions.person(&f.uid).is_none());
    }

    #[test]
    fn a_session_put_in_for_a_disabled_person_is_refused() {
        let f = Fixture::new();
        f.sessions.disable(&f.uid);
        let (token, _) = f.issue(TokenKind::Session, None);
        assert_eq!(f.refusal(&token, 1), Some(Reason::PersonDisabled));
    }

    #[test]
    fn use_puts_off_the_idle_end() {
        let f = Fixture::new();
        let (token, session) = f.issue(TokenKind::Session, Some(Idle { length_ms: 5_000, expires_at: 5_000 }));
        assert_eq!(f.refusal(&token, 4_000), None);
        assert_eq!(session.idle_expires_at(), Some(9_000));
        assert_eq!(f.refusal(&token, 8_999), None);
        assert_eq!(f.sessions.touched_since(8_000).len(), 1);
        assert!(f.sessions.touched_since(9_000).is_empty());
        assert_eq!(f.refusal(&token, 20_000), Some(Reason::SessionExpired));
        assert_eq!(f.sessions.sweep(20_000), 1);
        assert!(f.sessions.is_empty());
    }
}
