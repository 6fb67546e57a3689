//! Certificates and keys for encrypted connections, where they are not in files.

use super::ClientBuilder;

impl ClientBuilder {
    /// The authority that has signed the server's certificate, in PEM form: it is trusted, and nobody else is. Several
    /// may stand one below the other. Default: those whom this system trusts.
    ///
    /// For a `rediss://` address, which may name a file instead: `?ca=/etc/redis/ca.pem`. There is no way to do without
    /// verification: a connection that is encrypted for whoever answers is no more secure than one that is not. A server
    /// that has signed its certificate itself is trusted by giving that certificate here, unless it was made as an
    /// authority's own.
    ///
    /// ```
    /// # #[tokio::main] async fn main() {
    /// use distlock::{Client, Error};
    ///
    /// let ca = "-----BEGIN CERTIFICATE-----\n…"; // from wherever you keep such things
    /// let error = Client::builder("rediss://redis.internal/").tls_ca(ca).connect().await.unwrap_err();
    /// assert!(matches!(error, Error::InvalidOption { option: "tls_ca", .. }), "that was none: {error}");
    /// # }
    /// ```
    pub fn tls_ca(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.tls.authority = Some(pem.as_ref().into());
        self
    }

    /// A certificate of our own, the authorities between it and one that the server trusts below it, and its key: for a
    /// server that asks who we are (`tls-auth-clients yes`). Both in PEM form, the key without a password. Default: none.
    ///
    /// For a `rediss://` address, which may name files instead: `?cert=/etc/redis/client.pem&key=/etc/redis/client.key`.
    /// Those are read again for every connection, so that they may be renewed; what is given here stays.
    ///
    /// ```
    /// # #[tokio::main] async fn main() {
    /// use distlock::{Client, Error};
    ///
    /// let builder = Client::builder("redis://redis.internal/").tls_identity("my certificate", "my key");
    /// assert!(!format!("{builder:?}").contains("my key"));
    /// // What was to be secret is not sent to an address that is not encrypted.
    /// let error = builder.connect().await.unwrap_err();
    /// assert!(matches!(error, Error::InvalidOption { option: "tls_identity", .. }));
    /// # }
    /// ```
    pub fn tls_identity(mut self, cert: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Self {
        self.tls.identity = Some((cert.as_ref().into(), key.as_ref().into()));
        self
    }
}
