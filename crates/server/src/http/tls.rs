//! TLS: a certificate and a key, read once at the start.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};

/// PEM files of the server's identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, then its chain.
    pub certificate: PathBuf,
    /// Its private key: PKCS #8, PKCS #1 or SEC 1.
    pub key: PathBuf,
}

/// Error in the files.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file that cannot be read, or is not PEM.
    #[error("cannot read the {what} from {}: {reason}", path.display())]
    Unreadable {
        /// Certificates, or a private key.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// They do not match, or are of an unknown kind.
    #[error("{} and {} cannot be used together for TLS: {reason}", files.certificate.display(), files.key.display())]
    Unusable {
        /// The files.
        files: TlsFiles,
        /// The reason.
        reason: rustls::Error,
    },
}

/// The TLS acceptor: TLS 1.2 and 1.3, HTTP/1.1.
pub(crate) fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, TlsError> {
    let path = &files.certificate;
    let certificates = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let certificates: Vec<_> =
        certificates.map_err(|error| unreadable("certificates", path, &error))?;
    if certificates.is_empty() {
        return Err(unreadable("certificates", path, &pem::Error::NoItemsFound));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key);
    let key = key.map_err(|error| unreadable("private key", &files.key, &error))?;
    let unusable = |reason| TlsError::Unusable {
        files: files.clone(),
        reason,
    };
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config
        .with_safe_default_protocol_versions()
        .map_err(unusable)?;
    let config = config.with_no_client_auth();
    let mut config = config
        .with_single_cert(certificates, key)
        .map_err(unusable)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn unreadable(what: &'static str, path: &Path, error: &pem::Error) -> TlsError {
    let reason = match error {
        pem::Error::NoItemsFound => format!("it holds no {what} in PEM"),
        pem::Error::Io(error) => error.to_string(),
        other => other.to_string(),
    };
    TlsError::Unreadable {
        what,
        path: path.to_owned(),
        reason,
    }
}
