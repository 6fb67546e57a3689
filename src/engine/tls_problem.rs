//! Why a connection that was to be secure is none.

/// What stands between us and a connection that nobody else can read: part of [`Error::Tls`](crate::Error::Tls).
///
/// ```
/// use distlock::{Error, TlsProblem};
///
/// fn whom_to_call(error: &Error) -> &'static str {
///     match error {
///         Error::Tls { problem: TlsProblem::Expired, .. } => "whoever renews certificates",
///         Error::Tls { problem: TlsProblem::ClientRefused, .. } => "whoever gave us ours",
///         _ => "whoever is on duty",
///     }
/// }
/// # let name = "stock".into();
/// # let detail = String::new();
/// # assert_eq!(whom_to_call(&Error::WrongKind { name, detail }), "whoever is on duty");
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum TlsProblem {
    /// The server's certificate is no use for this: damaged, revoked, made for something else, or an authority's own, as
    /// `openssl req -x509` makes them.
    BadCertificate,
    /// The server asks for a certificate of ours, and has got none, or one that it does not trust.
    ClientRefused,
    /// The time of the server's certificate is over, or has not begun. A clock that is wrong looks the same.
    Expired,
    /// What answers there does not speak TLS, or no version and cipher that we do.
    NoAgreement,
    /// The server's certificate was signed by nobody whom we trust, or by itself.
    UnknownAuthority,
    /// The server's certificate is for other hosts than the one in the address.
    WrongHost,
}
