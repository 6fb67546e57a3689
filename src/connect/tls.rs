//! The TLS settings in a url and a builder, for every scheme that supports TLS.

use std::path::PathBuf;

use super::{StoreConfig, masked};
use crate::engine::redis::{PemSource, Tls, TlsConfigError, TlsMaterial, TlsPart};
use crate::error::Error;

const URL_NOT_ENCRYPTED: &str =
    "the url does not use TLS; use `rediss://`, which supports `ca`, `cert` and `key`";

/// The TLS parameters after the question mark: `tls=on`, and the files `ca`, `cert` and `key`.
#[derive(Default)]
pub(super) struct TlsParameters {
    on: Option<bool>,
    authority: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
}

/// Whether connections of a scheme are encrypted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Encrypted {
    Always,
    /// With `tls=on`.
    IfRequested,
    Never,
}

impl TlsParameters {
    /// Stores a parameter, and reports whether it is one of these.
    pub(super) fn accept(
        &mut self,
        store: &StoreConfig<'_>,
        key: &str,
        value: Option<&str>,
    ) -> Result<bool, Error> {
        let file = match key {
            "tls" => {
                self.on = Some(match value {
                    Some("on") => true,
                    Some("off") => false,
                    _ => return Err(store.invalid("`tls` must be `on` or `off`")),
                });
                return Ok(true);
            }
            "ca" => &mut self.authority,
            "cert" => &mut self.certificate,
            "key" => &mut self.key,
            _ => return Ok(false),
        };
        let path = value.unwrap_or_default();
        // A value that is not a path may be the key itself, and is not shown.
        if path.is_empty() || path.contains("-----") || path.contains(char::is_control) {
            return Err(store.invalid(format!("`{key}` must be the path of a file in PEM format")));
        }
        *file = Some(path.into());
        Ok(true)
    }

    /// Loads the TLS configuration; `None` if connections are not to be encrypted. A caller that
    /// asks for TLS in any way gets it or an error.
    pub(super) async fn resolve(
        self,
        store: &StoreConfig<'_>,
        encrypted: Encrypted,
    ) -> Result<Option<Tls>, Error> {
        let named = [&self.authority, &self.certificate, &self.key];
        let named = named.iter().any(|file| file.is_some());
        match (encrypted, self.on) {
            (Encrypted::Always, Some(false)) => {
                return Err(
                    store.invalid("`rediss://` always uses TLS; use `redis://` without TLS")
                );
            }
            (Encrypted::Never, Some(true)) => return Err(store.invalid(URL_NOT_ENCRYPTED)),
            (Encrypted::Never, _) | (Encrypted::IfRequested, Some(false) | None) => {
                if named && encrypted == Encrypted::IfRequested {
                    return Err(store.invalid("`ca`, `cert` and `key` need `tls=on`"));
                }
                if named {
                    return Err(store.invalid(URL_NOT_ENCRYPTED));
                }
                store.reject_tls_options()?;
                return Ok(None);
            }
            (Encrypted::Always, _) | (Encrypted::IfRequested, Some(true)) => {}
        }
        if !Tls::IS_AVAILABLE {
            return Err(Error::FeatureOff {
                scheme: masked(store.url)
                    .split(':')
                    .next()
                    .unwrap_or_default()
                    .to_owned(),
                feature: "tls",
            });
        }
        let material = self.material(store)?;
        let loaded = Tls::load(material).await;
        loaded.map(Some).map_err(|error| to_error(store, error))
    }

    fn material(self, store: &StoreConfig<'_>) -> Result<TlsMaterial, Error> {
        let builder = store.tls;
        let twice = |option| {
            Error::invalid_option(
                option,
                "the url names a file for it as well; use only one of the two",
            )
        };
        let authority = match (self.authority, &builder.authority) {
            (Some(_), Some(_)) => return Err(twice("tls_ca")),
            (Some(path), None) => Some(PemSource::File(path)),
            (None, given) => given.clone().map(PemSource::Given),
        };
        let identity = match (self.certificate, self.key, &builder.identity) {
            (None, None, None) => None,
            (None, None, Some((certificate, key))) => Some((
                PemSource::Given(certificate.clone()),
                PemSource::Given(key.clone()),
            )),
            (_, _, Some(_)) => return Err(twice("tls_identity")),
            (Some(certificate), Some(key), None) => {
                Some((PemSource::File(certificate), PemSource::File(key)))
            }
            (Some(_), None, None) => return Err(store.invalid("`cert` needs its `key`")),
            (None, Some(_), None) => return Err(store.invalid("`key` needs its `cert`")),
        };
        Ok(TlsMaterial {
            authority,
            identity,
        })
    }
}

/// Converts an error, naming its source: the url, or the builder.
fn to_error(store: &StoreConfig<'_>, error: TlsConfigError) -> Error {
    let TlsConfigError { part, reason } = error;
    let builder = store.tls;
    match part {
        TlsPart::Thread => Error::Unavailable {
            name: masked(store.url).into(),
            detail: reason,
        },
        TlsPart::Authority if builder.authority.is_some() => {
            Error::invalid_option("tls_ca", reason)
        }
        TlsPart::Certificate | TlsPart::Key if builder.identity.is_some() => {
            Error::invalid_option("tls_identity", reason)
        }
        TlsPart::Authority | TlsPart::Certificate | TlsPart::Key | TlsPart::System => {
            store.invalid(reason)
        }
    }
}

#[cfg(all(test, not(feature = "tls")))]
mod tests {
    use crate::{Client, Error};

    #[tokio::test]
    async fn an_address_that_needs_tls_names_the_feature() {
        let error = Client::connect("rediss://localhost:1/").await.unwrap_err();
        let told = "`rediss:` urls need the `tls` feature of this crate";
        assert_eq!(error.to_string(), told);
        assert!(matches!(error, Error::FeatureOff { feature: "tls", .. }));
    }
}
