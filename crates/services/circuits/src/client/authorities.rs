//! The authorities that may vouch for a service.

use std::io;
use std::path::Path;

use ureq::tls::{Certificate, PemItem, parse_pem};

/// Why nobody can vouch for a service. Who wrote the file is to blame, or who set up this host.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuthoritiesError {
    /// The file cannot be read.
    #[error("{0}")]
    Unreadable(io::Error),
    /// It is no PEM.
    #[error("{0}")]
    Malformed(ureq::Error),
    /// It has other things only.
    #[error("it holds no certificate in PEM")]
    NoCertificate,
    /// Those that this host knows cannot be read.
    #[error("{0}")]
    Host(rustls_native_certs::Error),
    /// This host knows none.
    #[error("there are none")]
    NoneKnown,
}

/// The certificates of a file in PEM.
pub(super) fn read(file: &Path) -> Result<Vec<Certificate<'static>>, AuthoritiesError> {
    let text = std::fs::read(file).map_err(AuthoritiesError::Unreadable)?;
    let mut found = Vec::new();
    for item in parse_pem(&text) {
        if let PemItem::Certificate(certificate) = item.map_err(AuthoritiesError::Malformed)? {
            found.push(certificate);
        }
    }
    if found.is_empty() { Err(AuthoritiesError::NoCertificate) } else { Ok(found) }
}

/// Certificates of the authorities that this host knows.
pub(super) fn known() -> Result<Vec<Certificate<'static>>, AuthoritiesError> {
    let known = rustls_native_certs::load_native_certs();
    if known.certs.is_empty() {
        let error = known.errors.into_iter().next();
        return Err(error.map_or(AuthoritiesError::NoneKnown, AuthoritiesError::Host));
    }
    let certificates = known.certs.iter();
    Ok(certificates.map(|certificate| Certificate::from_der(certificate).to_owned()).collect())
}
