//! The reasons why no secure connection could be made.

/// The reason why no secure connection could be made: part of [`Error::Tls`](crate::Error::Tls).
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
    /// The server's certificate cannot be used: it is damaged, revoked, made for another purpose,
    /// or an authority's own, as `openssl req -x509` makes them.
    BadCertificate,
    /// The server asks for a client certificate, and has received none, or one that it does not
    /// trust.
    ClientRefused,
    /// The server's certificate has expired, or is not valid yet. A clock that is wrong looks the
    /// same.
    Expired,
    /// The server does not speak TLS, or no version and cipher that this client supports.
    NoAgreement,
    /// The server's certificate was signed by no trusted authority, or by itself.
    UnknownAuthority,
    /// The server's certificate is for other hosts than the one in the url.
    WrongHost,
}
