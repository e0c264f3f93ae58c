//! Record: what arrived, for tests. The newest requests, up to a bound.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use http::request::Parts;

/// One request as it arrived. Its `Debug` leaves the header values out: one of them is a key.
pub struct Recorded {
    /// The method.
    pub method: String,
    /// The request target, as it stood on the request line but for a fragment.
    pub target: String,
    /// Every header line: the name in lower case and the value's bytes.
    pub headers: Vec<(String, Vec<u8>)>,
    body_bytes: AtomicU64,
}

impl Recorded {
    /// Bytes of the body that were read so far.
    pub fn body_bytes(&self) -> u64 {
        self.body_bytes.load(Ordering::SeqCst)
    }

    /// The values of a header, by its name in lower case.
    pub fn header<'h>(&'h self, name: &'h str) -> impl Iterator<Item = &'h [u8]> {
        self.headers.iter().filter(move |(own, _)| own == name).map(|(_, value)| value.as_slice())
    }

    pub(super) fn add_body(&self, bytes: u64) {
        self.body_bytes.fetch_add(bytes, Ordering::SeqCst);
    }
}

impl fmt::Debug for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        write!(f, "{} {} {names:?} + {} bytes", self.method, self.target, self.body_bytes())
    }
}

/// The newest requests.
#[derive(Debug)]
pub(super) struct Records {
    most: usize,
    newest: Mutex<VecDeque<Arc<Recorded>>>,
}

impl Records {
    pub(super) fn new(most: usize) -> Self {
        Records { most, newest: Mutex::default() }
    }

    /// Remembers a request; `None` when none are.
    pub(super) fn add(&self, head: &Parts) -> Option<Arc<Recorded>> {
        if self.most == 0 {
            return None;
        }
        let headers = head.headers.iter().map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_owned()));
        let recorded = Arc::new(Recorded {
            method: head.method.to_string(),
            target: head.uri.to_string(),
            headers: headers.collect(),
            body_bytes: AtomicU64::new(0),
        });
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        if newest.len() == self.most {
            newest.pop_front();
        }
        newest.push_back(Arc::clone(&recorded));
        Some(recorded)
    }

    pub(super) fn all(&self) -> Vec<Arc<Recorded>> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}
