//! Request identifiers: unique over threads, processes and restarts, and never taken from a client.

use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderValue;

/// One thread's source of identifiers: 64 random bits for the source, then a count.
pub(super) struct RequestIds {
    source: String,
    next: AtomicU64,
}

impl RequestIds {
    /// A source with a random name of its own.
    pub(super) fn new() -> Self {
        let mut random = [0_u8; 8];
        crate::secret::fill_random(&mut random);
        RequestIds { source: crate::names::hex(&random), next: AtomicU64::new(1) }
    }

    /// The next identifier, as the value of X-Request-Id.
    pub(super) fn next(&self) -> HeaderValue {
        let count = self.next.fetch_add(1, Ordering::Relaxed);
        let text = format!("{}{count:08x}", self.source);
        // Hex digits are visible ASCII.
        HeaderValue::try_from(text).expect("hex is a header value")
    }
}
