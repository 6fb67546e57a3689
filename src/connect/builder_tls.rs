//! Certificates and keys that were handed to a builder.

use std::sync::Arc;

use super::StoreConfig;
use crate::error::Error;

/// Certificates and keys in PEM form. Without `Debug`, since one of them may be a private key.
#[derive(Clone, Default)]
pub(crate) struct BuilderTls {
    pub(crate) authority: Option<PemBytes>,
    pub(crate) identity: Option<(PemBytes, PemBytes)>,
}

type PemBytes = Arc<[u8]>;

impl StoreConfig<'_> {
    /// Rejects certificates for a connection without TLS: their caller must not be left with one
    /// that anyone can read.
    pub(super) fn reject_tls_options(&self) -> Result<(), Error> {
        let option = match self.tls {
            BuilderTls {
                authority: Some(_), ..
            } => "tls_ca",
            BuilderTls {
                identity: Some(_), ..
            } => "tls_identity",
            BuilderTls { .. } => return Ok(()),
        };
        let reason = "the url does not use TLS; use `rediss://`";
        Err(Error::invalid_option(option, reason))
    }
}
