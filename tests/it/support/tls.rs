//! Certificates made for a test, and clients that trust them.

use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use botgate::config;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion};

/// An authority of a test's own, and the folder that its files go to.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    dir: tempfile::TempDir,
}

/// What a client brings to a handshake.
#[derive(Clone, Copy)]
pub(crate) struct Offer<'a> {
    pub(crate) alpn: &'a [&'a str],
    pub(crate) versions: &'a [&'static SupportedProtocolVersion],
    /// Whether it shows a certificate of this authority.
    pub(crate) certified_by: Option<&'a Authority>,
}

impl Default for Offer<'_> {
    fn default() -> Self {
        Offer { alpn: &["http/1.1"], versions: rustls::ALL_VERSIONS, certified_by: None }
    }
}

impl Authority {
    pub(crate) fn new() -> Self {
        botgate::listener::tls::install_provider();
        let mut params = CertificateParams::new(Vec::new()).expect("no name is a bad name");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("an authority signs itself");
        Authority { issuer, dir: tempfile::tempdir().expect("a temporary directory") }
    }

    /// A file of the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A new certificate for these names, changed before it is signed.
    pub(crate) fn signed(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> (Certificate, KeyPair) {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names of a certificate");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        let key = KeyPair::generate().expect("a key");
        (params.signed_by(&key, &self.issuer).expect("the authority signs"), key)
    }

    /// Writes a new certificate for these names and its key.
    pub(crate) fn pair(&self, name: &str, names: &[&str]) -> config::CertificateFiles {
        let (certificate, key) = self.signed(names, |_| {});
        self.write(name, &certificate.pem(), &key.serialize_pem())
    }

    /// Writes these as a certificate and its key.
    pub(crate) fn write(&self, name: &str, certificate: &str, key: &str) -> config::CertificateFiles {
        let files = config::CertificateFiles {
            certificate: self.path(&format!("{name}.pem")),
            key: self.path(&format!("{name}.key")),
        };
        std::fs::write(&files.certificate, certificate).expect("a certificate is written");
        write_key(&files.key, key);
        files
    }

    /// Writes its own certificate.
    pub(crate) fn own_file(&self) -> PathBuf {
        let file = self.path("authority.pem");
        std::fs::write(&file, self.issuer.pem()).expect("a certificate is written");
        file
    }

    /// A client that trusts this authority.
    pub(crate) fn client(&self, offer: Offer<'_>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).expect("an authority's certificate");
        let builder = ClientConfig::builder_with_protocol_versions(offer.versions).with_root_certificates(roots);
        let mut config = match offer.certified_by {
            None => builder.with_no_client_auth(),
            Some(authority) => {
                let (certificate, key) = authority.signed(&["client"], |_| {});
                let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
                builder.with_client_auth_cert(vec![certificate.der().clone()], key).expect("a certificate and its key")
            }
        };
        config.alpn_protocols = offer.alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}

/// Writes a key for its owner alone.
pub(crate) fn write_key(file: &Path, key: &str) {
    std::fs::write(file, key).expect("a key is written");
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).expect("a mode is set");
}

/// A handshake with the peer under a name; the error says why there is no connection.
pub(crate) fn shake(
    client: &Arc<ClientConfig>,
    name: &str,
    address: SocketAddr,
) -> std::io::Result<rustls::StreamOwned<ClientConnection, TcpStream>> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(std::time::Duration::from_secs(40)))?;
    let name = ServerName::try_from(name.to_owned()).expect("a server's name");
    let mut session = ClientConnection::new(Arc::clone(client), name).map_err(std::io::Error::other)?;
    while session.is_handshaking() {
        session.complete_io(&mut socket)?;
    }
    Ok(rustls::StreamOwned::new(session, socket))
}

/// The certificate that the peer has shown.
pub(crate) fn shown(session: &ClientConnection) -> CertificateDer<'static> {
    session.peer_certificates().expect("the peer has shown a certificate")[0].clone().into_owned()
}
