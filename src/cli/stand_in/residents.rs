//! Residents: the profiles that are served, their keys, and what each one has stored.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use bytes::Bytes;
use serde_json::{Value, json};

use super::answer::unix_seconds;
use crate::secret::ApiServerKey;

/// Most things of one kind that a profile stores; the oldest make room.
const STORED_MAX: usize = 1024;

/// The name of the profile on bare paths.
pub(super) const DEFAULT: &str = "default";

/// One served profile.
#[derive(Debug)]
pub(super) struct Resident {
    pub(super) name: String,
    /// `None`: no usable key, so nobody may.
    pub(super) key: Option<ApiServerKey>,
    /// The answer of `/v1/models`, made once.
    pub(super) models: Bytes,
    pub(super) shelf: Arc<Shelf>,
}

/// What a profile has stored. It outlives a change of key.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    pub(super) responses: Store<Value>,
    pub(super) sessions: Store<Value>,
    pub(super) jobs: Store<Value>,
    /// Idempotency-Key → digest of the body and the run that it started.
    pub(super) idempotency: Store<([u8; 32], String)>,
}

/// A bounded table; the oldest entry makes room.
#[derive(Debug)]
pub(super) struct Store<T>(Mutex<VecDeque<(String, T)>>);

impl<T> Default for Store<T> {
    fn default() -> Self {
        Store(Mutex::default())
    }
}

impl<T: Clone> Store<T> {
    fn with<R>(&self, body: impl FnOnce(&mut VecDeque<(String, T)>) -> R) -> R {
        body(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn put(&self, id: &str, value: T) {
        self.with(|entries| {
            entries.retain(|(own, _)| own != id);
            if entries.len() == STORED_MAX {
                entries.pop_front();
            }
            entries.push_back((id.to_owned(), value));
        });
    }

    pub(super) fn find(&self, id: &str) -> Option<T> {
        self.with(|entries| entries.iter().rev().find(|(own, _)| own == id).map(|(_, value)| value.clone()))
    }

    pub(super) fn remove(&self, id: &str) -> bool {
        self.with(|entries| {
            let before = entries.len();
            entries.retain(|(own, _)| own != id);
            entries.len() < before
        })
    }

    pub(super) fn all(&self) -> Vec<T> {
        self.with(|entries| entries.iter().map(|(_, value)| value.clone()).collect())
    }
}

/// All served profiles, the default one among them.
#[derive(Debug, Default)]
pub(super) struct Residents {
    by_name: ArcSwap<HashMap<String, Arc<Resident>>>,
}

impl Residents {
    pub(super) fn find(&self, name: &str) -> Option<Arc<Resident>> {
        self.by_name.load().get(name).cloned()
    }

    /// Whether any profile has this key.
    pub(super) fn some_key(&self, presented: &[u8]) -> bool {
        self.by_name.load().values().any(|resident| opens(resident, presented))
    }

    pub(super) fn set(&self, name: &str, key: Option<ApiServerKey>) {
        let id = if name == DEFAULT { "hermes-agent" } else { name };
        let models = json!({"object": "list", "data": [{
            "id": id, "object": "model", "created": unix_seconds(), "owned_by": "hermes",
            "permission": [], "root": id, "parent": null,
        }]});
        let shelf = self.find(name).map(|old| Arc::clone(&old.shelf)).unwrap_or_default();
        let resident =
            Arc::new(Resident { name: name.to_owned(), key, models: Bytes::from(models.to_string()), shelf });
        self.change(|map| {
            map.insert(name.to_owned(), Arc::clone(&resident));
        });
    }

    pub(super) fn remove(&self, name: &str) {
        self.change(|map| {
            map.remove(name);
        });
    }

    fn change(&self, change: impl Fn(&mut HashMap<String, Arc<Resident>>)) {
        self.by_name.rcu(|map| {
            let mut map = HashMap::clone(map);
            change(&mut map);
            map
        });
    }
}

/// Whether a presented key is this profile's.
pub(super) fn opens(resident: &Resident, presented: &[u8]) -> bool {
    resident.key.as_ref().is_some_and(|key| key.expose().as_bytes() == presented)
}
