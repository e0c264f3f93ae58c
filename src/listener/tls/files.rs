//! The files of certificates and keys: read whole, judged, and told apart by what the system says of them.
//!
//! Invariants: a pair that leaves here fits together; every problem names the key of the configuration, the file, what is wrong
//! with it and what is allowed. A key never stays in memory as text.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};
use zeroize::Zeroizing;

use crate::config::{CertificateFiles, ConfigProblem, Tls};

/// Longest file, in bytes.
const FILE_MAX_BYTES: u64 = 1 << 20;
/// Permission bits of everybody but owner and group.
const OTHERS: u32 = 0o007;

/// A certificate that can be shown.
pub(super) struct Pair {
    pub(super) key: Arc<CertifiedKey>,
    /// DNS names in it, perhaps with a wildcard.
    pub(super) names: Vec<String>,
    /// When it begins and ends to hold, in seconds since the Unix epoch.
    pub(super) valid: [i64; 2],
}

/// A problem with a file that a key of the configuration names.
fn problem(key: &str, file: &Path, what: impl AsRef<str>) -> ConfigProblem {
    ConfigProblem { key: key.to_owned(), message: format!("{} {}", file.display(), what.as_ref()) }
}

fn read(key: &str, file: &Path, private: bool) -> Result<Zeroizing<Vec<u8>>, ConfigProblem> {
    let failed = |error: io::Error| problem(key, file, format!("cannot be read: {error}; give a PEM file"));
    let opened = File::open(file).map_err(failed)?;
    let facts = opened.metadata().map_err(failed)?;
    if !facts.is_file() {
        return Err(problem(key, file, "is no file; give a PEM file"));
    }
    if private && facts.mode() & OTHERS != 0 {
        let mode = facts.mode() & 0o777;
        return Err(problem(
            key,
            file,
            format!(
                "is open to everybody (mode {mode:04o}); give a file for its owner, or owner and group, alone: 0600 or 0640"
            ),
        ));
    }
    // Room for all of it at once: a buffer that grows leaves copies of a key behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(facts.len().min(FILE_MAX_BYTES) as usize + 1));
    opened.take(FILE_MAX_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > FILE_MAX_BYTES {
        return Err(problem(key, file, format!("is longer than {FILE_MAX_BYTES} bytes; give a PEM file")));
    }
    Ok(bytes)
}

fn certificates(key: &str, file: &Path, what: &str) -> Result<Vec<CertificateDer<'static>>, ConfigProblem> {
    let bytes = read(key, file, false)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(problem(key, file, format!("holds no certificate; give a PEM file with {what}"))),
        Err(error) => Err(problem(key, file, format!("is not PEM: {error}; give a PEM file with {what}"))),
    }
}

/// Reads the pair at a place of the configuration.
pub(super) fn pair(
    place: usize,
    files: &CertificateFiles,
    provider: &CryptoProvider,
) -> Result<Pair, Vec<ConfigProblem>> {
    let [certificate_key, key_key] = ["certificate", "key"].map(|name| format!("listen.tls[{place}].{name}"));
    let chain = certificates(&certificate_key, &files.certificate, "the server's certificate, then its chain");
    let read = chain.and_then(|chain| {
        let (names, valid) = facts(&chain[0])
            .map_err(|error| problem(&certificate_key, &files.certificate, format!("cannot be understood: {error}")))?;
        Ok((chain, names, valid))
    });
    let key = signing_key(&key_key, &files.key, provider);
    let (chain, names, valid, key) = match (read, key) {
        (Ok((chain, names, valid)), Ok(key)) => (chain, names, valid, key),
        (one, other) => return Err([one.err(), other.err()].into_iter().flatten().collect()),
    };
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        // A key that cannot tell its public half is taken at its word.
        Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {
            Ok(Pair { key: Arc::new(certified), names, valid })
        }
        Err(_) => {
            let what = format!(
                "does not fit the certificate {}; give the key that the certificate was made for",
                files.certificate.display()
            );
            Err(vec![problem(&key_key, &files.key, what)])
        }
    }
}

fn signing_key(
    key: &str,
    file: &Path,
    provider: &CryptoProvider,
) -> Result<Arc<dyn rustls::sign::SigningKey>, ConfigProblem> {
    let bytes = read(key, file, true)?;
    let der = PrivateKeyDer::from_pem_slice(&bytes)
        .map_err(|_| problem(key, file, "holds no private key; give one in PEM, without a passphrase"))?;
    provider.key_provider.load_private_key(der).map_err(|_| {
        problem(key, file, "holds a key of a kind that is not supported; give ECDSA P-256 or P-384, Ed25519, or RSA")
    })
}

/// The DNS names of a certificate, and when it holds.
fn facts(certificate: &CertificateDer<'_>) -> Result<(Vec<String>, [i64; 2]), String> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|error| error.to_string())?;
    let alternative = parsed.subject_alternative_name().map_err(|error| error.to_string())?;
    let names = alternative.into_iter().flat_map(|names| &names.value.general_names);
    let names = names.filter_map(|name| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        _ => None,
    });
    let valid = [parsed.validity().not_before, parsed.validity().not_after].map(|time| time.timestamp());
    Ok((names.collect(), valid))
}

/// The authorities that may sign clients' certificates.
pub(super) fn authorities(file: &Path) -> Result<RootCertStore, ConfigProblem> {
    let key = "listen.client_ca";
    let mut store = RootCertStore::empty();
    for certificate in certificates(key, file, "the authorities that may sign clients' certificates")? {
        store.add(certificate).map_err(|error| {
            problem(key, file, format!("holds a certificate that is no authority: {error}; give authorities alone"))
        })?;
    }
    Ok(store)
}

/// What is wrong with a pair at this time, although it fits together.
pub(super) fn lapse(place: usize, files: &CertificateFiles, pair: &Pair, now: i64) -> Option<ConfigProblem> {
    let [begins, ends] = pair.valid;
    let day = |at| jiff::Timestamp::from_second(at).map_or_else(|_| at.to_string(), |at| at.to_string());
    let what = match () {
        () if ends < now => format!("expired at {}; give a certificate that holds now", day(ends)),
        () if begins > now => format!("holds only from {}; give a certificate that holds now", day(begins)),
        () => return None,
    };
    Some(problem(&format!("listen.tls[{place}].certificate"), &files.certificate, what))
}

/// What the system says of all the files: it changes when one of them does, also behind a symbolic link.
pub(super) fn signature(tls: &Tls) -> String {
    let pairs = tls.certificates.iter().flat_map(|pair| [&pair.certificate, &pair.key]);
    let mut text = String::new();
    for file in pairs.chain(tls.clients.iter().map(|clients| &clients.authorities)) {
        // Writing to a String cannot fail.
        let _ = match std::fs::metadata(file) {
            Ok(facts) => writeln!(
                text,
                "{} {} {} {} {}.{} {}.{}",
                facts.dev(),
                facts.ino(),
                facts.len(),
                facts.mode(),
                facts.mtime(),
                facts.mtime_nsec(),
                facts.ctime(),
                facts.ctime_nsec()
            ),
            Err(error) => writeln!(text, "{error}"),
        };
    }
    text
}
