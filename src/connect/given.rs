//! Certificates and keys that were handed to a builder.

use std::sync::Arc;

use super::Store;
use crate::error::Error;

/// In PEM form. Without `Debug`: it may be a key.
#[derive(Clone, Default)]
pub(crate) struct Given {
    pub(crate) authority: Option<Pem>,
    pub(crate) identity: Option<(Pem, Pem)>,
}

type Pem = Arc<[u8]>;

impl Store<'_> {
    /// Whoever hands in certificates must not be left with a connection that anybody can read.
    pub(super) fn not_encrypted(&self) -> Result<(), Error> {
        let option = match self.given {
            Given {
                authority: Some(_), ..
            } => "tls_ca",
            Given {
                identity: Some(_), ..
            } => "tls_identity",
            Given { .. } => return Ok(()),
        };
        let reason = "this address is not encrypted; `rediss://` is";
        Err(Error::invalid_option(option, reason))
    }
}
