//! The certificates and keys that a secure connection takes, as they were handed in.

#![cfg_attr(
    not(feature = "tls"),
    allow(dead_code, reason = "without TLS they are handed in and refused")
)]

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Whom to trust, and who we are.
#[derive(Clone, Debug, Default)]
pub struct TlsMaterial {
    /// The authority that has signed the server's certificate; none for those whom the system trusts.
    pub authority: Option<PemSource>,
    /// Our own certificate and its key, for servers that ask.
    pub identity: Option<(PemSource, PemSource)>,
}

/// Text between `-----BEGIN …-----` and `-----END …-----`.
#[derive(Clone)]
pub enum PemSource {
    /// In this file, which is read for every connection: certificates are renewed while programs run.
    File(PathBuf),
    /// This.
    Given(Arc<[u8]>),
}

/// Something of it is no use.
#[derive(Clone, Debug)]
pub struct TlsConfigError {
    /// Which part.
    pub part: TlsPart,
    /// The file, and why it is no use; never what is in it.
    pub reason: String,
}

/// A part of [`TlsMaterial`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TlsPart {
    /// The authority's certificate.
    Authority,
    /// Our own.
    Certificate,
    /// Its key.
    Key,
    /// Whom the system trusts.
    System,
    /// The thread that was to read them.
    Thread,
}

impl TlsMaterial {
    /// Whether any of it is in files, which may have changed.
    pub(super) fn are_files(&self) -> bool {
        let identity = self
            .identity
            .iter()
            .flat_map(|(certificate, key)| [certificate, key]);
        let mut all = self.authority.iter().chain(identity);
        all.any(|pem| matches!(pem, PemSource::File(_)))
    }
}

/// Never what is in it: it may be a key.
impl fmt::Debug for PemSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Given(_) => f.write_str("Given(***)"),
        }
    }
}
