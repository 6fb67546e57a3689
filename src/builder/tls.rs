//! Certificates and keys for TLS connections that are given in memory instead of in files.

use super::ClientBuilder;

impl ClientBuilder {
    /// Sets the authority that has signed the server's certificate, in PEM form: no other authority is trusted then.
    /// Several certificates may be concatenated. Default: the authorities that the system trusts.
    ///
    /// For `rediss://` urls, which may name a file instead: `?ca=/etc/redis/ca.pem`. Verification cannot be turned off:
    /// an encrypted connection to an unknown server is no more secure than an unencrypted one. A server with a
    /// self-signed certificate is trusted by passing that certificate here, unless it was made as an authority's own.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() {
    /// use distlock::{Client, Error};
    ///
    /// let ca = "-----BEGIN CERTIFICATE-----\n…"; // from your configuration
    /// let error = Client::builder("rediss://redis.internal/").tls_ca(ca).connect().await.unwrap_err();
    /// assert!(matches!(error, Error::InvalidOption { option: "tls_ca", .. }), "that was none: {error}");
    /// # }
    /// ```
    pub fn tls_ca(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.tls.authority = Some(pem.as_ref().into());
        self
    }

    /// Sets the client's certificate and its key, for a server that asks for one (`tls-auth-clients yes`). Both are in
    /// PEM form, the key without a password. Intermediate authorities, between the certificate and an authority that
    /// the server trusts, follow below the certificate. Default: none.
    ///
    /// For `rediss://` urls, which may name files instead: `?cert=/etc/redis/client.pem&key=/etc/redis/client.key`. The
    /// files are read again for every connection, so that they may be renewed; a certificate that is set here stays the
    /// same.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() {
    /// use distlock::{Client, Error};
    ///
    /// let builder = Client::builder("redis://redis.internal/").tls_identity("my certificate", "my key");
    /// assert!(!format!("{builder:?}").contains("my key"));
    /// // A client certificate is refused for a url without TLS.
    /// let error = builder.connect().await.unwrap_err();
    /// assert!(matches!(error, Error::InvalidOption { option: "tls_identity", .. }));
    /// # }
    /// ```
    pub fn tls_identity(mut self, cert: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Self {
        self.tls.identity = Some((cert.as_ref().into(), key.as_ref().into()));
        self
    }
}
