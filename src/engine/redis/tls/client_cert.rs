//! Client certificate resolver: records whether a server has requested our certificate. Each connection has its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::sign::CertifiedKey;

pub(super) struct ClientCertResolver {
    identity: Option<Arc<CertifiedKey>>,
    was_requested: AtomicBool,
}

impl ClientCertResolver {
    pub(super) const fn new(identity: Option<Arc<CertifiedKey>>) -> Self {
        Self {
            identity,
            was_requested: AtomicBool::new(false),
        }
    }

    pub(super) fn was_requested(&self) -> bool {
        self.was_requested.load(Ordering::Relaxed)
    }

    pub(super) const fn has_certificate(&self) -> bool {
        self.identity.is_some()
    }
}

impl ResolvesClientCert for ClientCertResolver {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.was_requested.store(true, Ordering::Relaxed);
        self.identity.clone()
    }

    fn has_certs(&self) -> bool {
        self.has_certificate()
    }
}

/// Omits the key.
impl std::fmt::Debug for ClientCertResolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientCertResolver").finish_non_exhaustive()
    }
}
