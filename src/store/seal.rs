//! Sealing: `API_SERVER_KEY`s at rest, bound to the one person and bot that they belong to.
//!
//! Invariants: a sealed value opens only under the same master key, purpose, uid, login, profile, gateway and
//! generation; the fields are length-prefixed, so that no two bindings share bytes. Not here: where values are kept.

use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};
use hmac::{Hmac, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::names::{GatewayName, Login, ProfileName, Uid};
use crate::secret::{ApiServerKey, MasterKey};

/// First byte of a sealed value: which layout and cipher follow.
const VERSION: u8 = 1;
/// Bytes of XChaCha20's nonce.
const NONCE_BYTES: usize = 24;

/// Purpose of the key that seals the audit log.
const AUDIT_PURPOSE: &str = "audit";

/// A key for one purpose, derived from the master key, so that no two uses share a key.
pub fn derive_key(master: &MasterKey, purpose: &str) -> Zeroizing<[u8; 32]> {
    let mut mac = <Hmac<Sha256> as hmac::KeyInit>::new_from_slice(master.expose())
        // HMAC takes a key of any length.
        .expect("an HMAC key");
    mac.update(b"botgate\0");
    mac.update(purpose.as_bytes());
    Zeroizing::new(mac.finalize().into_bytes().into())
}

/// The key under which the audit log is sealed.
pub(super) fn audit_key(master: &MasterKey) -> [u8; 32] {
    *derive_key(master, AUDIT_PURPOSE)
}

/// What a sealed key belongs to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Binding<'a> {
    pub(super) uid: &'a Uid,
    pub(super) login: &'a Login,
    pub(super) profile: &'a ProfileName,
    pub(super) gateway: &'a GatewayName,
    pub(super) generation: i64,
}

impl Binding<'_> {
    fn associated_data(&self) -> Vec<u8> {
        let generation = self.generation.to_be_bytes();
        length_prefixed(&[
            b"api_server_key",
            self.uid.as_str().as_bytes(),
            self.login.as_str().as_bytes(),
            self.profile.as_str().as_bytes(),
            self.gateway.as_str().as_bytes(),
            &generation,
        ])
    }
}

fn length_prefixed(fields: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::with_capacity(fields.iter().map(|field| field.len() + 8).sum());
    for field in fields {
        out.extend_from_slice(&(field.len() as u64).to_be_bytes());
        out.extend_from_slice(field);
    }
    out
}

/// Seals and opens under one master key.
pub(super) struct Sealer {
    cipher: XChaCha20Poly1305,
}

impl Sealer {
    pub(super) fn new(master: &MasterKey) -> Self {
        let key = derive_key(master, "store sealing 1");
        Sealer { cipher: XChaCha20Poly1305::new((&*key).into()) }
    }

    pub(super) fn seal_key(&self, key: &ApiServerKey, binding: Binding<'_>) -> Vec<u8> {
        self.seal(key.expose().as_bytes(), &binding.associated_data())
    }

    /// `None` when the value was sealed for something else, under another master key, or altered.
    pub(super) fn open_key(&self, sealed: &[u8], binding: Binding<'_>) -> Option<ApiServerKey> {
        let plain = Zeroizing::new(self.open(sealed, &binding.associated_data())?);
        ApiServerKey::parse(std::str::from_utf8(&plain).ok()?).ok()
    }

    /// A value by which a database knows its master key again.
    pub(super) fn check_value(&self) -> Vec<u8> {
        self.seal(b"", &length_prefixed(&[b"master_check"]))
    }

    pub(super) fn opens_check_value(&self, value: &[u8]) -> bool {
        self.open(value, &length_prefixed(&[b"master_check"])).is_some()
    }

    /// Seals the audit log's keys that were given up, oldest first.
    pub(super) fn seal_audit_keys(&self, keys: &[[u8; 32]]) -> Vec<u8> {
        self.seal(&Zeroizing::new(keys.concat()), &length_prefixed(&[b"audit_keys"]))
    }

    pub(super) fn open_audit_keys(&self, sealed: &[u8]) -> Option<Vec<[u8; 32]>> {
        let plain = Zeroizing::new(self.open(sealed, &length_prefixed(&[b"audit_keys"]))?);
        let (keys, []) = plain.as_chunks::<32>() else { return None };
        Some(keys.to_vec())
    }

    fn seal(&self, plain: &[u8], associated_data: &[u8]) -> Vec<u8> {
        let mut nonce = [0_u8; NONCE_BYTES];
        crate::secret::fill_random(&mut nonce);
        let sealed = self
            .cipher
            .encrypt(&XNonce::from(nonce), Payload { msg: plain, aad: associated_data })
            // The cipher fails above 256 GiB only; a key has at most 4 KiB.
            .expect("a short plaintext");
        [&[VERSION], &nonce[..], &sealed].concat()
    }

    fn open(&self, sealed: &[u8], associated_data: &[u8]) -> Option<Vec<u8>> {
        let (&version, rest) = sealed.split_first()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_BYTES>()?;
        if version != VERSION {
            return None;
        }
        self.cipher.decrypt(&XNonce::from(*nonce), Payload { msg: sealed, aad: associated_data }).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_key_opens_only_for_what_it_was_sealed_for() {
        let sealer = Sealer::new(&MasterKey::generate());
        let (alice, bob) = (Login::parse("alice").unwrap(), Login::parse("bob").unwrap());
        let (uid, other_uid) = (Uid::random(), Uid::random());
        let (profile, other_profile) = (ProfileName::of(&alice), ProfileName::of(&bob));
        let (gateway, other_gateway) = (GatewayName::parse("main").unwrap(), GatewayName::parse("more").unwrap());
        let own = Binding { uid: &uid, login: &alice, profile: &profile, gateway: &gateway, generation: 1 };
        let key = ApiServerKey::generate();
        let sealed = sealer.seal_key(&key, own);
        assert_eq!(sealer.open_key(&sealed, own).unwrap().expose(), key.expose());
        for other in [
            Binding { uid: &other_uid, ..own },
            Binding { login: &bob, ..own },
            Binding { profile: &other_profile, ..own },
            Binding { gateway: &other_gateway, ..own },
            Binding { generation: 2, ..own },
        ] {
            assert!(sealer.open_key(&sealed, other).is_none(), "{other:?}");
        }
        assert!(Sealer::new(&MasterKey::generate()).open_key(&sealed, own).is_none());
        assert!(!sealed.windows(key.expose().len()).any(|window| window == key.expose().as_bytes()));
    }

    #[test]
    fn an_altered_value_does_not_open() {
        let sealer = Sealer::new(&MasterKey::generate());
        let value = sealer.check_value();
        assert!(sealer.opens_check_value(&value));
        for at in 0..value.len() {
            let mut altered = value.clone();
            altered[at] ^= 1;
            assert!(!sealer.opens_check_value(&altered), "byte {at}");
        }
        assert!(!sealer.opens_check_value(b""));
        assert!(!sealer.opens_check_value(&value[..NONCE_BYTES]));
    }

    #[test]
    fn moving_a_byte_between_fields_changes_the_binding() {
        assert_ne!(length_prefixed(&[b"ab", b"c"]), length_prefixed(&[b"a", b"bc"]));
    }

    #[test]
    fn purposes_have_keys_of_their_own() {
        let master = MasterKey::generate();
        assert_eq!(*derive_key(&master, "audit"), *derive_key(&master, "audit"));
        assert_ne!(*derive_key(&master, "audit"), *derive_key(&master, "store"));
        assert_ne!(&*derive_key(&master, "audit"), master.expose());
    }
}
