//! Classification of failed TLS handshakes. Pure, except for the query whether our certificate was requested.

use std::io;
use std::time::Duration;

use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError, Error};

use super::client_cert::ClientCertResolver;
use crate::engine::{StoreError, StoreErrorKind, TlsProblem};

/// Maximum number of a certificate's names in a message.
const MAX_NAMES: usize = 4;

/// The server at the other end.
pub(super) struct Peer<'a> {
    pub(super) host: &'a str,
    pub(super) port: u16,
    pub(super) client_cert: &'a ClientCertResolver,
}

/// Returns whether a certificate is of version 1, which does not say what it is for, or for whom. rustls has no error
/// for that: only the verifier's own text names it.
pub(super) fn is_of_version_1(error: &CertificateError) -> bool {
    let other = matches!(error, CertificateError::Other(_));
    other && error.to_string().contains("UnsupportedCertVersion")
}

impl Peer<'_> {
    /// Returns the error of a connection that could not be made, for no known reason of TLS.
    pub(super) fn unreachable(&self, why: &str) -> StoreError {
        StoreError::new(
            StoreErrorKind::Unreachable,
            format!("{}: {why}", self.server()),
        )
    }

    pub(super) fn failure(&self, error: &io::Error) -> StoreError {
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref());
        match tls {
            Some(tls) => self.tls_failure(tls),
            None => self.unreachable(&self.ended(error)),
        }
    }

    /// Describes a connection that ended without an alert, with a hint at what may be behind it.
    fn ended(&self, error: &io::Error) -> String {
        let hint = match (
            self.client_cert.was_requested(),
            self.client_cert.has_certificate(),
        ) {
            (true, false) => "; it had requested a client certificate, and none is configured",
            (true, true) => "; it had received the client certificate",
            (false, _) => "",
        };
        match error.kind() {
            io::ErrorKind::UnexpectedEof => format!("the server closed the connection{hint}"),
            _ => format!("{error}{hint}"),
        }
    }

    fn tls_failure(&self, error: &Error) -> StoreError {
        let (problem, why) = match error {
            Error::InvalidCertificate(error) => self.certificate(error),
            Error::AlertReceived(alert) => match self.alert(*alert) {
                Some(refused) => refused,
                None => {
                    return self
                        .unreachable(&format!("the server ended the connection with {alert:?}"));
                }
            },
            Error::InvalidMessage(_) => (
                TlsProblem::NoAgreement,
                "does not use TLS on this port; use redis:// without TLS".into(),
            ),
            error => (
                TlsProblem::NoAgreement,
                format!("cannot negotiate TLS with this client: {error}"),
            ),
        };
        StoreError::new(
            StoreErrorKind::Tls(problem),
            format!("{} {why}", self.server()),
        )
    }

    fn certificate(&self, error: &CertificateError) -> (TlsProblem, String) {
        let problem = match error {
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => TlsProblem::Expired,
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                TlsProblem::WrongHost
            }
            CertificateError::UnknownIssuer => TlsProblem::UnknownAuthority,
            _ => TlsProblem::BadCertificate,
        };
        let why = match error {
            CertificateError::ExpiredContext { time, not_after } => format!(
                "has a certificate that expired {} ago; renew it, or correct the clock of this machine",
                time_between(*not_after, *time)
            ),
            CertificateError::NotValidYetContext { time, not_before } => format!(
                "has a certificate that is not valid for another {}; correct the clock of this machine or of the server",
                time_between(*time, *not_before)
            ),
            CertificateError::NotValidForNameContext { presented, .. } => format!(
                "has a certificate {}; use a name of the certificate, or have a certificate issued for `{}`",
                presented_names(presented),
                self.host
            ),
            CertificateError::UnknownIssuer => {
                "has a certificate that is self-signed or signed by an unknown authority; \
                 name its authority with `?ca=FILE` or `tls_ca`"
                    .into()
            }
            CertificateError::Other(_) if error.to_string().contains("CaUsedAsEndEntity") => {
                "has an authority's own certificate (as `openssl req -x509` creates it); let that authority sign one for the server"
                    .into()
            }
            error if is_of_version_1(error) => {
                "has a certificate of version 1 (as `openssl x509 -req` creates it without `-extfile`); have one of version 3 issued"
                    .into()
            }
            error => format!("has a certificate that cannot be used: {error}"),
        };
        (problem, why)
    }

    fn alert(&self, alert: AlertDescription) -> Option<(TlsProblem, String)> {
        let refused = match alert {
            AlertDescription::AccessDenied
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateRequired
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateUnknown
            | AlertDescription::NoCertificate
            | AlertDescription::UnknownCA
            | AlertDescription::UnsupportedCertificate => true,
            // OpenSSL sends this before TLS 1.3 to a client that has no certificate.
            AlertDescription::HandshakeFailure => {
                self.client_cert.was_requested() && !self.client_cert.has_certificate()
            }
            // The server has a problem of its own, which may pass.
            AlertDescription::CloseNotify
            | AlertDescription::InternalError
            | AlertDescription::UserCanceled => return None,
            _ => false,
        };
        let why = match (refused, self.client_cert.has_certificate()) {
            (true, true) => format!(
                "does not accept the client certificate ({alert:?}); check that it has not expired, and that the \
                 server trusts its authority"
            ),
            (true, false) => {
                "requires a client certificate, and none is configured; name it with `?cert=FILE&key=FILE` or `tls_identity`"
                    .into()
            }
            (false, _) => {
                let why = format!("cannot negotiate TLS with this client ({alert:?})");
                return Some((TlsProblem::NoAgreement, why));
            }
        };
        Some((TlsProblem::ClientRefused, why))
    }

    fn server(&self) -> String {
        let Self { host, port, .. } = self;
        match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        }
    }
}

fn time_between(earlier: UnixTime, later: UnixTime) -> String {
    let time_between = Duration::from_secs(later.as_secs().saturating_sub(earlier.as_secs()));
    let seconds = time_between.as_secs();
    match (seconds / 86_400, seconds / 3600) {
        (0, 0) => format!("{} min", seconds.div_ceil(60)),
        (0, hours) => format!("{hours} h"),
        (days, _) => format!("{days} days"),
    }
}

/// Formats a certificate's names, which rustls gives as `DnsName("example.org")` or `IpAddress(192.0.2.1)`.
fn presented_names(presented: &[String]) -> String {
    if presented.is_empty() {
        return "that has no subjectAltName".into();
    }
    let bare = presented.iter().take(MAX_NAMES).map(|name| {
        let inner = name
            .split_once('(')
            .and_then(|(_, rest)| rest.strip_suffix(')'));
        inner.unwrap_or(name).trim_matches('"')
    });
    let more = if presented.len() > MAX_NAMES {
        ", …"
    } else {
        ""
    };
    format!("for {}{more}", bare.collect::<Vec<_>>().join(", "))
}
