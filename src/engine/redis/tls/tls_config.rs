//! TLS configuration: from PEM text to the parameters of a handshake.

use std::fs;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, Error, InconsistentKeys, RootCertStore};

use super::client_cert::ClientCertResolver;
use super::handshake_error;
use crate::engine::redis::tls_material::{PemSource, TlsConfigError, TlsMaterial, TlsPart};

/// The PEM text that was read, and the configuration that results.
pub(super) struct TlsConfig {
    pub(super) pems: PemContents,
    /// The authorities that the system trusts, if they matter.
    pub(super) system: Option<Arc<RootCertStore>>,
    pub(super) identity: Option<Arc<CertifiedKey>>,
    config: ClientConfig,
}

/// The contents of the files, or the text that was given.
#[derive(Eq, PartialEq)]
pub(super) struct PemContents {
    authority: Option<PemText>,
    identity: Option<(PemText, PemText)>,
}

/// PEM text, and its origin for messages.
#[derive(Eq, PartialEq)]
struct PemText {
    from: Option<String>,
    bytes: Arc<[u8]>,
}

/// Reads the contents of the files.
pub(super) fn read(material: &TlsMaterial) -> Result<PemContents, TlsConfigError> {
    let authority = material.authority.as_ref();
    let identity = material.identity.as_ref();
    Ok(PemContents {
        authority: authority
            .map(|pem| PemText::of(pem, TlsPart::Authority))
            .transpose()?,
        identity: identity
            .map(|(certificate, key)| {
                let certificate = PemText::of(certificate, TlsPart::Certificate)?;
                Ok((certificate, PemText::of(key, TlsPart::Key)?))
            })
            .transpose()?,
    })
}

impl TlsConfig {
    pub(super) fn new(
        pems: PemContents,
        system: Option<Arc<RootCertStore>>,
    ) -> Result<Self, TlsConfigError> {
        let (roots, system) = match (&pems.authority, system) {
            (Some(authority), system) => (Arc::new(authority.roots()?), system),
            (None, Some(system)) => (system.clone(), Some(system)),
            (None, None) => {
                let system = Arc::new(system_roots()?);
                (system.clone(), Some(system))
            }
        };
        let config_error = |error: Error| TlsConfigError {
            part: TlsPart::System,
            reason: error.to_string(),
        };
        // The provider is never installed for the whole process: that is the application's decision.
        let provider = CryptoProvider::get_default()
            .cloned()
            .unwrap_or_else(|| Arc::new(rustls::crypto::ring::default_provider()));
        let identity = pems.identity.as_ref();
        let identity = identity
            .map(|(certificate, key)| certified_key(certificate, key, &provider).map(Arc::new))
            .transpose()?;
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(config_error)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        // A server that resumes a session by ticket shows no certificate, so an expired one would not be noticed.
        config.resumption = Resumption::disabled();
        Ok(Self {
            pems,
            system,
            identity,
            config,
        })
    }

    /// Returns the configuration for one connection.
    pub(super) fn config(&self, client_cert: &Arc<ClientCertResolver>) -> Arc<ClientConfig> {
        let mut config = self.config.clone();
        config.client_auth_cert_resolver = client_cert.clone();
        Arc::new(config)
    }
}

fn system_roots() -> Result<RootCertStore, TlsConfigError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map(ToString::to_string);
        let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
        return Err(TlsConfigError {
            part: TlsPart::System,
            reason: format!(
                "this system has no trusted authorities{why}; name the authority of the server"
            ),
        });
    }
    Ok(roots)
}

fn certified_key(
    certificate: &PemText,
    key: &PemText,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, TlsConfigError> {
    let chain = certificate.certificates(TlsPart::Certificate)?;
    let private = PrivateKeyDer::from_pem_slice(&key.bytes).map_err(|_| {
        let encrypted = key.has("ENCRYPTED");
        let why = match encrypted {
            true => "the key is encrypted; provide it without a password",
            false => "no private key in PEM format (-----BEGIN PRIVATE KEY-----)",
        };
        key.config_error(TlsPart::Key, why)
    })?;
    CertifiedKey::from_der(chain, private, provider).map_err(|error| match error {
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            key.config_error(TlsPart::Key, "the key belongs to another certificate")
        }
        Error::InvalidCertificate(error) if handshake_error::is_of_version_1(&error) => {
            certificate.config_error(TlsPart::Certificate, VERSION_1)
        }
        Error::InvalidCertificate(_) => certificate.config_error(TlsPart::Certificate, DAMAGED),
        _ => key.config_error(
            TlsPart::Key,
            "the key is damaged, or its type is not supported",
        ),
    })
}

const VERSION_1: &str = "the certificate has version 1, as `openssl x509 -req` creates it without `-extfile`; version 3 is required";
const DAMAGED: &str = "the certificate is damaged";
const NONE: &str = "no certificate in PEM format (-----BEGIN CERTIFICATE-----)";

impl PemText {
    fn of(pem: &PemSource, part: TlsPart) -> Result<Self, TlsConfigError> {
        match pem {
            PemSource::File(path) => {
                let from = path.display().to_string();
                let bytes = fs::read(path).map_err(|error| TlsConfigError {
                    part,
                    reason: format!("{from} cannot be read: {error}"),
                })?;
                Ok(Self {
                    from: Some(from),
                    bytes: bytes.into(),
                })
            }
            PemSource::Given(bytes) => Ok(Self {
                from: None,
                bytes: bytes.clone(),
            }),
        }
    }

    fn roots(&self) -> Result<RootCertStore, TlsConfigError> {
        let mut roots = RootCertStore::empty();
        for certificate in self.certificates(TlsPart::Authority)? {
            let added = roots.add(certificate);
            added.map_err(|_| self.config_error(TlsPart::Authority, DAMAGED))?;
        }
        Ok(roots)
    }

    fn certificates(&self, part: TlsPart) -> Result<Vec<CertificateDer<'static>>, TlsConfigError> {
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.bytes).collect();
        match found {
            Ok(found) if found.is_empty() => Err(self.config_error(part, NONE)),
            Ok(found) => Ok(found),
            // The parser's error may contain a part of the text.
            Err(_) => Err(self.config_error(part, DAMAGED)),
        }
    }

    fn has(&self, word: &str) -> bool {
        let mut windows = self.bytes.windows(word.len());
        windows.any(|window| window == word.as_bytes())
    }

    fn config_error(&self, part: TlsPart, why: &str) -> TlsConfigError {
        let reason = match &self.from {
            Some(from) => format!("{from}: {why}"),
            None => why.to_owned(),
        };
        TlsConfigError { part, reason }
    }
}
