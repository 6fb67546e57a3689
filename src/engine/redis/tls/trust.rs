//! From PEM to what a handshake needs.

use std::fs;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, Error, InconsistentKeys, RootCertStore};

use super::asked::Asked;
use super::verdict;
use crate::engine::redis::papers::{Papers, Part, Pem, Unfit};

/// What was read, and what was made of it.
pub(super) struct Trust {
    pub(super) pems: Pems,
    /// Whom the system trusts, if that matters.
    pub(super) system: Option<Arc<RootCertStore>>,
    pub(super) identity: Option<Arc<CertifiedKey>>,
    config: ClientConfig,
}

/// What is in the files, or was given.
#[derive(Eq, PartialEq)]
pub(super) struct Pems {
    authority: Option<Text>,
    identity: Option<(Text, Text)>,
}

/// With where it is from, for messages.
#[derive(Eq, PartialEq)]
struct Text {
    from: Option<String>,
    bytes: Arc<[u8]>,
}

/// Reads what is in files.
pub(super) fn read(papers: &Papers) -> Result<Pems, Unfit> {
    let authority = papers.authority.as_ref();
    let identity = papers.identity.as_ref();
    Ok(Pems {
        authority: authority
            .map(|pem| Text::of(pem, Part::Authority))
            .transpose()?,
        identity: identity
            .map(|(certificate, key)| {
                let certificate = Text::of(certificate, Part::Certificate)?;
                Ok((certificate, Text::of(key, Part::Key)?))
            })
            .transpose()?,
    })
}

impl Trust {
    pub(super) fn new(pems: Pems, system: Option<Arc<RootCertStore>>) -> Result<Self, Unfit> {
        let (roots, system) = match (&pems.authority, system) {
            (Some(authority), system) => (Arc::new(authority.roots()?), system),
            (None, Some(system)) => (system.clone(), Some(system)),
            (None, None) => {
                let system = Arc::new(system_roots()?);
                (system.clone(), Some(system))
            }
        };
        let unfit = |error: Error| Unfit {
            part: Part::System,
            reason: error.to_string(),
        };
        // Never installed for the whole process: that is the application's to decide.
        let provider = CryptoProvider::get_default()
            .cloned()
            .unwrap_or_else(|| Arc::new(rustls::crypto::ring::default_provider()));
        let identity = pems.identity.as_ref();
        let identity = identity
            .map(|(certificate, key)| identify(certificate, key, &provider).map(Arc::new))
            .transpose()?;
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(unfit)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        // Who comes back with a ticket is not shown a certificate, and would not see that it has run out.
        config.resumption = Resumption::disabled();
        Ok(Self {
            pems,
            system,
            identity,
            config,
        })
    }

    /// For one connection.
    pub(super) fn config(&self, asked: &Arc<Asked>) -> Arc<ClientConfig> {
        let mut config = self.config.clone();
        config.client_auth_cert_resolver = asked.clone();
        Arc::new(config)
    }
}

fn system_roots() -> Result<RootCertStore, Unfit> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map(ToString::to_string);
        let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
        return Err(Unfit {
            part: Part::System,
            reason: format!("this system trusts nobody{why}; name the server's authority"),
        });
    }
    Ok(roots)
}

fn identify(
    certificate: &Text,
    key: &Text,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, Unfit> {
    let chain = certificate.certificates(Part::Certificate)?;
    let private = PrivateKeyDer::from_pem_slice(&key.bytes).map_err(|_| {
        let encrypted = key.has("ENCRYPTED");
        let why = match encrypted {
            true => "this key is encrypted: it is wanted without a password",
            false => "no private key in PEM form (-----BEGIN PRIVATE KEY-----)",
        };
        key.unfit(Part::Key, why)
    })?;
    CertifiedKey::from_der(chain, private, provider).map_err(|error| match error {
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            key.unfit(Part::Key, "this key belongs to another certificate")
        }
        Error::InvalidCertificate(error) if verdict::is_of_version_1(&error) => {
            certificate.unfit(Part::Certificate, VERSION_1)
        }
        Error::InvalidCertificate(_) => certificate.unfit(Part::Certificate, DAMAGED),
        _ => key.unfit(Part::Key, "a key of a sort that cannot be used, or damaged"),
    })
}

const VERSION_1: &str = "a certificate of version 1, as `openssl x509 -req` makes them without `-extfile`; one of version 3 is wanted";
const DAMAGED: &str = "a certificate that is damaged";
const NONE: &str = "no certificate in PEM form (-----BEGIN CERTIFICATE-----)";

impl Text {
    fn of(pem: &Pem, part: Part) -> Result<Self, Unfit> {
        match pem {
            Pem::File(path) => {
                let from = path.display().to_string();
                let bytes = fs::read(path).map_err(|error| Unfit {
                    part,
                    reason: format!("{from} cannot be read: {error}"),
                })?;
                Ok(Self {
                    from: Some(from),
                    bytes: bytes.into(),
                })
            }
            Pem::Given(bytes) => Ok(Self {
                from: None,
                bytes: bytes.clone(),
            }),
        }
    }

    fn roots(&self) -> Result<RootCertStore, Unfit> {
        let mut roots = RootCertStore::empty();
        for certificate in self.certificates(Part::Authority)? {
            let added = roots.add(certificate);
            added.map_err(|_| self.unfit(Part::Authority, DAMAGED))?;
        }
        Ok(roots)
    }

    fn certificates(&self, part: Part) -> Result<Vec<CertificateDer<'static>>, Unfit> {
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.bytes).collect();
        match found {
            Ok(found) if found.is_empty() => Err(self.unfit(part, NONE)),
            Ok(found) => Ok(found),
            // What is wrong with it may say what is in it.
            Err(_) => Err(self.unfit(part, DAMAGED)),
        }
    }

    fn has(&self, word: &str) -> bool {
        let mut windows = self.bytes.windows(word.len());
        windows.any(|window| window == word.as_bytes())
    }

    fn unfit(&self, part: Part, why: &str) -> Unfit {
        let reason = match &self.from {
            Some(from) => format!("{from}: {why}"),
            None => why.to_owned(),
        };
        Unfit { part, reason }
    }
}
