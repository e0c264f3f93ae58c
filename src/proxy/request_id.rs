//! Request identifiers: unique over threads, processes and restarts, and never taken from a client.

use std::sync::{Mutex, PoisonError};

use bytes::{BufMut, BytesMut};
use http::HeaderValue;

/// Bytes from which identifiers are cut before the next are allocated.
const BLOCK_BYTES: usize = 4096;
/// Length of an identifier: two numbers of 64 bits in hex.
const LENGTH: usize = 32;

/// One thread's source of identifiers: 64 random bits for the source, then a count. The lock is never contended.
pub(super) struct RequestIds(Mutex<Source>);

struct Source {
    name: [u8; 16],
    count: u64,
    block: BytesMut,
}

impl RequestIds {
    /// A source with a random name of its own.
    pub(super) fn new() -> Self {
        let mut random = [0_u8; 8];
        crate::secret::fill_random(&mut random);
        RequestIds(Mutex::new(Source {
            name: hex(u64::from_be_bytes(random)),
            count: 0,
            block: BytesMut::with_capacity(BLOCK_BYTES),
        }))
    }

    /// The next identifier, as the value of X-Request-Id.
    pub(super) fn next(&self) -> HeaderValue {
        let mut source = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        source.count += 1;
        let (name, count) = (source.name, hex(source.count));
        // Cut from a shared block: an identifier of its own would be allocated, and again when it is first cloned.
        if source.block.capacity() < LENGTH {
            source.block.reserve(BLOCK_BYTES);
        }
        source.block.put_slice(&name);
        source.block.put_slice(&count);
        // Hex digits are visible ASCII.
        HeaderValue::from_maybe_shared(source.block.split().freeze()).expect("hex is a header value")
    }
}

fn hex(number: u64) -> [u8; 16] {
    std::array::from_fn(|place| b"0123456789abcdef"[(number >> (60 - 4 * place)) as usize & 15])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_differ_and_have_one_form() {
        let (ids, others) = (RequestIds::new(), RequestIds::new());
        let mut seen = std::collections::HashSet::new();
        for _ in 0..1_000 {
            for id in [ids.next(), others.next()] {
                assert!(id.len() == LENGTH && id.as_bytes().iter().all(u8::is_ascii_hexdigit), "{id:?}");
                assert!(seen.insert(id));
            }
        }
        assert_eq!(hex(0x0123_4567_89ab_cdef), *b"0123456789abcdef");
    }
}
