//! Which certificate a client is shown: the one whose name it asks for.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// Certificates by the names in them; the first is for clients that name no other, or none.
pub(super) struct ByName {
    default: Arc<CertifiedKey>,
    // Lower case; a wildcard stands for one label: `*.example.org`.
    named: HashMap<Box<str>, Arc<CertifiedKey>>,
}

impl ByName {
    pub(super) fn new(default: Arc<CertifiedKey>) -> Self {
        ByName { default, named: HashMap::new() }
    }

    /// Shows this certificate for a name. Of two for one name the first stands.
    pub(super) fn add(&mut self, name: &str, certificate: &Arc<CertifiedKey>) {
        self.named.entry(name.to_ascii_lowercase().into()).or_insert_with(|| Arc::clone(certificate));
    }

    fn find(&self, name: &str) -> &Arc<CertifiedKey> {
        let name = name.to_ascii_lowercase();
        let wildcard = || {
            let (_, parent) = name.split_once('.')?;
            self.named.get(&*format!("*.{parent}"))
        };
        self.named.get(&*name).or_else(wildcard).unwrap_or(&self.default)
    }
}

impl fmt::Debug for ByName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.named.keys()).finish()
    }
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(hello.server_name().map_or(&self.default, |name| self.find(name)).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate() -> Arc<CertifiedKey> {
        let key = rcgen::KeyPair::generate().unwrap();
        let key = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        Arc::new(CertifiedKey::new(Vec::new(), rustls::crypto::ring::sign::any_supported_type(&key).unwrap()))
    }

    #[test]
    fn exact_names_come_before_wildcards_and_both_before_the_default() {
        let [default, exact, wild] = [(); 3].map(|()| certificate());
        let mut names = ByName::new(default.clone());
        names.add("Edge.example.org", &exact);
        names.add("*.example.org", &wild);
        names.add("edge.example.org", &default);
        for (asked, expected) in [
            ("edge.EXAMPLE.org", &exact),
            ("other.example.org", &wild),
            ("a.other.example.org", &default),
            ("example.org", &default),
            ("*.example.org", &wild),
            ("elsewhere", &default),
        ] {
            assert!(Arc::ptr_eq(names.find(asked), expected), "{asked}");
        }
    }
}
