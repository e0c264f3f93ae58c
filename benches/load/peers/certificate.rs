//! The certificate that every proxy shows: ECDSA on P-256, for all the same.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::{ClientConfig, RootCertStore};

use super::written;
use crate::people::HOST;
use crate::trouble::{Outcome, Trouble};

/// Files for the proxies, and a client that trusts them.
#[derive(Debug)]
pub struct Certificate {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Both in one file, as HAProxy wants them.
    pub both: PathBuf,
    /// Keeps no session, so that each of its handshakes is a full one.
    pub client: Arc<ClientConfig>,
}

impl Certificate {
    /// Makes one, in this folder.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn make(dir: &Path) -> Outcome<Self> {
        let failed = |error: rcgen::Error| Trouble::new(format!("no certificate: {error}"));
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(failed)?;
        let params = rcgen::CertificateParams::new(vec![HOST.to_owned(), "127.0.0.1".to_owned()]).map_err(failed)?;
        let certificate = params.self_signed(&key).map_err(failed)?;
        let (pem, key) = (certificate.pem(), key.serialize_pem());
        let secret = |name, text: &str| {
            let file = written(dir, name, text)?;
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            std::fs::set_permissions(&file, mode).map_err(Trouble::with(file.display()))?;
            Ok::<_, Trouble>(file)
        };
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().clone()).map_err(|error| Trouble::new(format!("the certificate: {error}")))?;
        let mut client = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        client.resumption = Resumption::disabled();
        Ok(Certificate {
            certificate: written(dir, "cert.pem", &pem)?,
            key: secret("key.pem", &key)?,
            both: secret("both.pem", &format!("{pem}{key}"))?,
            client: Arc::new(client),
        })
    }
}
