//! Directory: the in-memory snapshot login → bot.
//!
//! Invariants: readers load one snapshot and take no lock; a bot's path and credential are built once, here, from
//! its stored profile and key; a bot whose profile is not the one its login maps to cannot be built. This room does not
//! decide who may use a bot.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use foldhash::fast::RandomState;
use http::HeaderValue;

use crate::config::GatewayUrl;
use crate::names::{GatewayName, Login, ProfileName, Uid};
use crate::secret::ApiServerKey;

/// What the proof last said about a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GatewayStanding {
    /// Not proved yet: 503.
    Starting,
    /// Proved: keys are bound to paths.
    Proved,
    /// It took a key that it must refuse: not served, 503.
    ProofFailed,
}

/// One configured gateway, as the data path needs it.
#[derive(Debug)]
pub struct GatewayTarget {
    name: GatewayName,
    index: usize,
    url: GatewayUrl,
    host: HeaderValue,
    standing: AtomicU8,
    barred: AtomicBool,
}

impl GatewayTarget {
    /// A gateway that is not proved yet. `index` is its place in the configuration.
    pub fn new(name: GatewayName, index: usize, url: GatewayUrl) -> Self {
        let host = HeaderValue::from_str(url.authority())
            // GatewayUrl holds an authority that http::Uri has parsed, which is visible ASCII.
            .expect("an authority is a header value");
        GatewayTarget { name, index, url, host, standing: AtomicU8::new(0), barred: AtomicBool::new(false) }
    }

    /// Configured name.
    pub fn name(&self) -> &GatewayName {
        &self.name
    }

    /// Place in the configuration: index of per-gateway tables.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Where it listens.
    pub fn url(&self) -> &GatewayUrl {
        &self.url
    }

    /// Value of the Host header towards it.
    pub fn host(&self) -> &HeaderValue {
        &self.host
    }

    /// What the proof last said; failed while the gateway is barred.
    pub fn standing(&self) -> GatewayStanding {
        if self.is_barred() {
            return GatewayStanding::ProofFailed;
        }
        match self.standing.load(Ordering::Acquire) {
            1 => GatewayStanding::Proved,
            2 => GatewayStanding::ProofFailed,
            _ => GatewayStanding::Starting,
        }
    }

    /// Records what the proof says.
    pub fn set_standing(&self, standing: GatewayStanding) {
        let value = match standing {
            GatewayStanding::Starting => 0,
            GatewayStanding::Proved => 1,
            GatewayStanding::ProofFailed => 2,
        };
        self.standing.store(value, Ordering::Release);
    }

    /// Takes it out of service whatever its proof says, or no longer; true when that is a change.
    pub fn bar(&self, barred: bool) -> bool {
        self.barred.swap(barred, Ordering::AcqRel) != barred
    }

    /// Whether it is out of service for a reason that is not its proof.
    pub fn is_barred(&self) -> bool {
        self.barred.load(Ordering::Acquire)
    }
}

/// What the proof last said about one bot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BotStanding {
    /// Not proved yet; served while its gateway is proved.
    Unproved,
    /// Its key opens its path and others do not.
    Proved,
    /// The gateway refuses its own key or does not serve its profile: the one 401.
    Refused,
}

/// A profile that belongs to a login.
#[derive(Debug)]
pub struct Bot {
    login: Login,
    uid: Uid,
    profile: ProfileName,
    gateway: Arc<GatewayTarget>,
    prefix: Box<str>,
    key: ApiServerKey,
    authorization: HeaderValue,
    standing: AtomicU8,
}

impl Bot {
    /// Builds the bot of a person; `None` when the stored profile is not the one that the login maps to.
    pub fn new(
        login: Login,
        uid: Uid,
        profile: ProfileName,
        gateway: Arc<GatewayTarget>,
        key: ApiServerKey,
    ) -> Option<Self> {
        if profile != ProfileName::of(&login) {
            return None;
        }
        // ApiServerKey holds visible ASCII only.
        let mut authorization =
            HeaderValue::from_str(&format!("Bearer {}", key.expose())).expect("visible ASCII is a header value");
        authorization.set_sensitive(true);
        let prefix = format!("/p/{profile}").into();
        Some(Bot { login, uid, profile, gateway, prefix, key, authorization, standing: AtomicU8::new(0) })
    }

    /// The person's name.
    pub fn login(&self) -> &Login {
        &self.login
    }

    /// The person's row.
    pub fn uid(&self) -> &Uid {
        &self.uid
    }

    /// The profile.
    pub fn profile(&self) -> &ProfileName {
        &self.profile
    }

    /// The gateway that serves it.
    pub fn gateway(&self) -> &Arc<GatewayTarget> {
        &self.gateway
    }

    /// `/p/<profile>`, without a final slash.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The profile's key, for probes.
    pub fn key(&self) -> &ApiServerKey {
        &self.key
    }

    /// `Bearer <API_SERVER_KEY>`, marked sensitive.
    pub fn authorization(&self) -> &HeaderValue {
        &self.authorization
    }

    /// What the proof last said.
    pub fn standing(&self) -> BotStanding {
        match self.standing.load(Ordering::Acquire) {
            1 => BotStanding::Proved,
            2 => BotStanding::Refused,
            _ => BotStanding::Unproved,
        }
    }

    /// Records what the proof says.
    pub fn set_standing(&self, standing: BotStanding) {
        let value = match standing {
            BotStanding::Unproved => 0,
            BotStanding::Proved => 1,
            BotStanding::Refused => 2,
        };
        self.standing.store(value, Ordering::Release);
    }
}

/// The bots of one moment.
pub type Bots = HashMap<Login, Arc<Bot>, RandomState>;

/// Login → bot. Readers take a snapshot; writers copy, change and swap, one at a time.
#[derive(Debug, Default)]
pub struct Directory {
    snapshot: ArcSwap<Bots>,
    // Held while a new map is built, never across I/O or an await.
    writing: Mutex<()>,
}

impl Directory {
    /// An empty directory.
    pub fn new() -> Self {
        Self::default()
    }

    /// The bot of a login.
    pub fn bot(&self, login: &Login) -> Option<Arc<Bot>> {
        self.snapshot.load().get(login).cloned()
    }

    /// All bots, as they are now.
    pub fn snapshot(&self) -> Arc<Bots> {
        self.snapshot.load_full()
    }

    /// Adds or replaces bots in one swap.
    pub fn insert(&self, bots: impl IntoIterator<Item = Bot>) {
        self.change(|map| map.extend(bots.into_iter().map(|bot| (bot.login.clone(), Arc::new(bot)))));
    }

    /// Takes a login's bot away.
    pub fn remove(&self, login: &Login) {
        self.change(|map| {
            map.remove(login);
        });
    }

    fn change(&self, change: impl FnOnce(&mut Bots)) {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut map = Bots::clone(&self.snapshot.load());
        change(&mut map);
        self.snapshot.store(Arc::new(map));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gateway() -> Arc<GatewayTarget> {
        let url = GatewayUrl::parse("http://127.0.0.1:8642").unwrap();
        Arc::new(GatewayTarget::new(GatewayName::parse("main").unwrap(), 0, url))
    }

    fn bot(login: &str, profile: &str) -> Option<Bot> {
        let login = Login::parse(login).unwrap();
        Bot::new(login, Uid::random(), ProfileName::parse(profile).unwrap(), gateway(), ApiServerKey::generate())
    }

    #[test]
    fn a_bot_with_another_persons_profile_cannot_be_built() {
        assert!(bot("alice", "bot-alice").is_some());
        assert!(bot("alice", "bot-bob").is_none());
    }

    #[test]
    fn readers_see_changes_at_once() {
        let directory = Directory::new();
        let alice = Login::parse("alice").unwrap();
        assert!(directory.bot(&alice).is_none());
        directory.insert(bot("alice", "bot-alice"));
        assert_eq!(directory.bot(&alice).unwrap().prefix(), "/p/bot-alice");
        directory.remove(&alice);
        assert!(directory.bot(&alice).is_none());
    }

    #[test]
    fn debug_shows_no_key() {
        let bot = bot("alice", "bot-alice").unwrap();
        assert!(!format!("{bot:?}").contains(bot.key().expose()));
    }
}
