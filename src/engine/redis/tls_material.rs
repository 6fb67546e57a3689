//! TLS material: the certificates and keys of a secure connection, as the application provided them.

#![cfg_attr(
    not(feature = "tls"),
    allow(
        dead_code,
        reason = "a build without TLS accepts and rejects them, but does not read them"
    )
)]

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// The trusted authority, and our own identity.
#[derive(Clone, Debug, Default)]
pub struct TlsMaterial {
    /// The authority that signed the server's certificate; `None` for the authorities that the system trusts.
    pub authority: Option<PemSource>,
    /// Our own certificate and its key, for servers that request one.
    pub identity: Option<(PemSource, PemSource)>,
}

/// PEM text, between `-----BEGIN …-----` and `-----END …-----`.
#[derive(Clone)]
pub enum PemSource {
    /// A file, which is read for every connection: certificates are renewed while programs run.
    File(PathBuf),
    /// The text itself.
    Given(Arc<[u8]>),
}

/// An error in one part of the TLS configuration.
#[derive(Clone, Debug)]
pub struct TlsConfigError {
    /// The part with the error.
    pub part: TlsPart,
    /// The file and the reason; never the contents.
    pub reason: String,
}

/// A part of [`TlsMaterial`], or of what loads it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TlsPart {
    /// The authority's certificate.
    Authority,
    /// Our own certificate.
    Certificate,
    /// The key of our own certificate.
    Key,
    /// The authorities that the system trusts.
    System,
    /// The thread that reads the files.
    Thread,
}

impl TlsMaterial {
    /// Returns whether any part is a file, which may have changed.
    pub(super) fn are_files(&self) -> bool {
        let identity = self
            .identity
            .iter()
            .flat_map(|(certificate, key)| [certificate, key]);
        let mut all = self.authority.iter().chain(identity);
        all.any(|pem| matches!(pem, PemSource::File(_)))
    }
}

/// Omits the text: it may be a key.
impl fmt::Debug for PemSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Given(_) => f.write_str("Given(***)"),
        }
    }
}
