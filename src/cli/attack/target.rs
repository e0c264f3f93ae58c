//! The deployment that is attacked: where it is, how it is reached, and whether it is the operator's own.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::wire::Connection;

/// Longest wait for a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Where systems keep the authorities that they trust.
const SYSTEM_AUTHORITIES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// A deployment.
pub(super) struct Target {
    address: SocketAddr,
    authority: String,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

impl Target {
    /// Reads a URL and resolves its host; `own`: the operator says that it is theirs. `authority`: certificates to trust in
    /// place of the system's.
    pub(super) fn new(url: &str, own: bool, authority_file: Option<&Path>) -> Result<Self, String> {
        let parsed: http::Uri = url.parse().map_err(|_| format!("{url}: not a URL"))?;
        let authority = parsed.authority().filter(|authority| !authority.as_str().contains('@'));
        let authority = authority.ok_or_else(|| format!("{url}: no host"))?;
        if !matches!(parsed.path(), "" | "/") || parsed.query().is_some() {
            return Err(format!("{url}: only scheme, host and port"));
        }
        let encrypted = match parsed.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(format!("{url}: http or https")),
        };
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let port = authority.port_u16().unwrap_or(if encrypted { 443 } else { 80 });
        let resolved = (host, port).to_socket_addrs().map_err(|error| format!("{host}: {error}"))?;
        let resolved: Vec<SocketAddr> = resolved.collect();
        if !own && !resolved.iter().all(|address| address.ip().is_loopback()) {
            return Err(format!("{host} is not loopback: say --i-operate-this if this deployment is your own"));
        }
        let address = *resolved.first().ok_or_else(|| format!("{host}: no address"))?;
        let tls = match encrypted {
            true => {
                let name = ServerName::try_from(host.to_owned()).map_err(|_| format!("{host}: no server's name"))?;
                Some((Arc::new(trusting(authority_file)?), name))
            }
            false => None,
        };
        Ok(Target { address, authority: authority.as_str().to_owned(), tls })
    }

    /// Host and port, as a client names them.
    pub(super) fn authority(&self) -> &str {
        &self.authority
    }

    /// How it is reached.
    pub(super) fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// The port.
    pub(super) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Whether it is on this machine.
    pub(super) fn is_nearby(&self) -> bool {
        self.address.ip().is_loopback()
    }

    /// A new connection.
    pub(super) fn connect(&self) -> io::Result<Box<dyn Connection>> {
        let stream = TcpStream::connect_timeout(&self.address, CONNECT_WITHIN)?;
        stream.set_nodelay(true)?;
        let Some((config, name)) = &self.tls else { return Ok(Box::new(stream)) };
        let session = ClientConnection::new(Arc::clone(config), name.clone()).map_err(io::Error::other)?;
        let mut encrypted = Encrypted(StreamOwned::new(session, stream));
        encrypted.patience(CONNECT_WITHIN)?;
        while encrypted.0.conn.is_handshaking() {
            encrypted.0.conn.complete_io(&mut encrypted.0.sock)?;
        }
        Ok(Box::new(encrypted))
    }
}

/// A client's side of TLS that trusts the certificates in a file, or the system's.
fn trusting(file: Option<&Path>) -> Result<ClientConfig, String> {
    let system = || SYSTEM_AUTHORITIES.iter().map(Path::new).find(|path| path.exists());
    let file = file.or_else(system).ok_or("no certificates to trust: name a file with --ca")?;
    let told = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| told(&error))? {
        // A system's file may hold one that this library does not read; the others still count.
        let _ = roots.add(certificate.map_err(|error| told(&error))?);
    }
    if roots.is_empty() {
        return Err(told(&"no certificate in it"));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut config = builder.map_err(|error| told(&error))?.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

struct Encrypted(StreamOwned<ClientConnection, TcpStream>);

impl Read for Encrypted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Encrypted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Connection for Encrypted {
    fn patience(&mut self, limit: Duration) -> io::Result<()> {
        self.0.sock.patience(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_attacked_without_a_word() {
        let refused = |url: &str| Target::new(url, false, None).err().unwrap_or_default();
        assert_eq!(refused("http://127.0.0.1:8080"), "");
        assert_eq!(refused("http://[::1]:8080/"), "");
        assert!(refused("http://192.0.2.1").contains("--i-operate-this"));
        assert!(Target::new("http://192.0.2.1", true, None).is_ok());
        for url in ["127.0.0.1", "ftp://127.0.0.1", "http://127.0.0.1/v1", "http://a@127.0.0.1", "http://127.0.0.1/?x"]
        {
            assert!(!refused(url).is_empty(), "{url}");
        }
    }
}
