//! TLS connections: encrypted, to a server whose certificate was verified.
//!
//! The stream is made here and handed to the crate, which would read the system's certificates again for each
//! connection and rely on the crypto provider of the process, or panic if there is none. Here an application that has
//! installed a provider gets that one; otherwise ours is used, and nothing is installed for the process.
//!
//! Verification cannot be turned off: a connection that is encrypted to an unverified server is not secure, and looks
//! as if it were. A self-signed certificate is trusted by naming it as the authority.

#![expect(
    clippy::disallowed_methods,
    reason = "engines may read the clock and start tasks"
)]

use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, RedisError};
use rustls::ProtocolVersion;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tracing::Level;

mod client_cert;
mod dial;
mod handshake_error;
mod tls_config;

use self::client_cert::ClientCertResolver;
use self::handshake_error::Peer;
use self::tls_config::{TlsConfig, read};
use super::failure;
use super::tls_material::{TlsConfigError, TlsMaterial, TlsPart};
use crate::engine::events::Events;
use crate::engine::{StoreError, StoreErrorKind};

/// Upper bound for the time to connect: an `Instant` cannot represent every deadline that a `Duration` allows.
const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);
/// Time for a server that has requested our certificate to reject it. A server that sends session tickets has done so
/// by then; others only send a rejection.
const ALERT_WAIT: Duration = Duration::from_millis(200);

const NOT_IN_TIME: &str = "no connection in time";
const NO_HANDSHAKE: &str =
    "no reply to the TLS handshake in time (does this port use TLS? if not, use redis://)";
const NO_REPLY: &str = "no reply in time";

/// Reads files on a thread of its own, so that no task waits for a disk. Tokio's own blocking threads are not used:
/// tokio panics if none can be started.
async fn run_on_thread<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, TlsConfigError> + Send + 'static,
) -> Result<T, TlsConfigError> {
    let (done, outcome) = oneshot::channel();
    let thread = std::thread::Builder::new().name("distlock-tls".into());
    let started = thread.spawn(move || {
        // The receiver may have gone.
        let _ = done.send(read());
    });
    let config_error = |reason| {
        let part = TlsPart::Thread;
        Err(TlsConfigError { part, reason })
    };
    match started {
        Ok(_) => outcome.await.unwrap_or_else(|_| {
            config_error("the thread that reads the certificates panicked".into())
        }),
        Err(error) => config_error(format!("no thread can be started: {error}")),
    }
}

/// Makes TLS connections, with the certificates and keys that are current.
#[derive(Clone)]
pub struct Tls {
    material: Arc<TlsMaterial>,
    current: Arc<Mutex<Arc<TlsConfig>>>,
    events: Events,
}

impl Tls {
    /// Whether TLS is compiled in.
    pub const IS_AVAILABLE: bool = true;

    /// Reads the files, and checks that certificates and keys match.
    ///
    /// # Errors
    ///
    /// If something cannot be read, is not what it should be, or does not match the rest.
    pub async fn load(material: TlsMaterial) -> Result<Self, TlsConfigError> {
        let mine = material.clone();
        let tls_config = run_on_thread(move || TlsConfig::new(read(&mine)?, None)).await?;
        Ok(Self {
            material: Arc::new(material),
            current: Arc::new(Mutex::new(Arc::new(tls_config))),
            events: Events::inline(),
        })
    }

    /// Returns a copy that emits its events to `events`.
    pub(super) fn emitting_to(&self, events: &Events) -> Self {
        Self {
            events: events.clone(),
            ..self.clone()
        }
    }

    /// Makes a connection. If that fails, nothing was sent, except to a server whose certificate was verified.
    pub(super) async fn open(
        &self,
        info: &ConnectionInfo,
        config: AsyncConnectionConfig,
        limit: Duration,
    ) -> Result<MultiplexedConnection, StoreError> {
        let deadline = Instant::now() + limit.min(MAX_TIMEOUT);
        let ConnectionAddr::TcpTls { host, port, .. } = info.addr() else {
            let why = "TLS needs a TCP port";
            return Err(StoreError::new(StoreErrorKind::Unusable, why));
        };
        let name = ServerName::try_from(host.clone()).map_err(|_| {
            let why = format!("`{host}` is not a valid host name for a certificate");
            StoreError::new(StoreErrorKind::Unusable, why)
        })?;
        let tls_config = self.current_config().await;
        let client_cert = Arc::new(ClientCertResolver::new(tls_config.identity.clone()));
        let peer = Peer {
            host,
            port: *port,
            client_cert: &client_cert,
        };

        let socket = timeout_at(deadline, dial::dial(host, *port, info.tcp_settings())).await;
        let socket = socket.map_err(|_| peer.unreachable(NOT_IN_TIME))?;
        let socket = socket.map_err(|error| peer.unreachable(&error.to_string()))?;

        let connector = TlsConnector::from(tls_config.config(&client_cert));
        let handshake = timeout_at(deadline, connector.connect(name, socket)).await;
        let handshake = handshake.map_err(|_| peer.unreachable(NO_HANDSHAKE))?;
        let mut stream = handshake.map_err(|error| peer.failure(&error))?;
        if client_cert.was_requested() {
            let limit = deadline.min(Instant::now() + ALERT_WAIT);
            let accepted = accepted(&mut stream, limit).await;
            accepted.map_err(|error| peer.failure(&error))?;
        }

        let made = MultiplexedConnection::new_with_config(info.redis_settings(), stream, config);
        let made = timeout_at(deadline, made).await;
        let made = made.map_err(|_| peer.unreachable(NO_REPLY))?;
        let (connection, driver) = made.map_err(|error| match io_error(&error) {
            Some(error) => peer.failure(error),
            None => failure::from_connect_error(&error),
        })?;
        // The task ends when the last handle to the connection is dropped.
        tokio::spawn(driver);
        Ok(connection)
    }

    /// Returns the configuration from the current files. A file that is missing or being replaced is no reason to stop:
    /// the previous configuration stays valid until a better one is available.
    async fn current_config(&self) -> Arc<TlsConfig> {
        let before = self.lock().clone();
        if !self.material.are_files() {
            return before;
        }
        let (material, known) = (self.material.clone(), before.clone());
        let reloading = run_on_thread(move || {
            let pems = read(&material)?;
            if known.pems == pems {
                return Ok(None);
            }
            TlsConfig::new(pems, known.system.clone()).map(Some)
        });
        match reloading.await {
            Ok(Some(new)) => {
                let new = Arc::new(new);
                *self.lock() = new.clone();
                self.events.emit(Level::INFO, || {
                    tracing::info!(target: "distlock::connection", "the certificate files have changed; the new certificates are used from now on");
                });
                new
            }
            Err(TlsConfigError { reason, .. }) => {
                self.events.emit(Level::WARN, move || {
                    tracing::warn!(target: "distlock::connection", error = reason, "the changed certificate files cannot be used; the old certificates stay in use");
                });
                before
            }
            Ok(None) => before,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Arc<TlsConfig>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for the server to accept our certificate. In TLS 1.3 a server checks it after the handshake is complete on our
/// side, and replies only to reject it. Data written before that would meet a closed socket, whose error may hide the
/// reason; so a rejection is read first.
async fn accepted(stream: &mut TlsStream<TcpStream>, limit: Instant) -> io::Result<()> {
    let (socket, session) = stream.get_ref();
    if session.protocol_version() != Some(ProtocolVersion::TLSv1_3) {
        return Ok(());
    }
    // No data is no rejection.
    let _ = timeout_at(limit, socket.readable()).await;
    let mut byte = [0];
    let mut buffer = ReadBuf::new(&mut byte);
    let read =
        poll_fn(|context| Poll::Ready(Pin::new(&mut *stream).poll_read(context, &mut buffer)));
    match read.await {
        // Only tickets have arrived, or nothing yet.
        Poll::Pending => Ok(()),
        Poll::Ready(Err(error)) => Err(error),
        Poll::Ready(Ok(())) if buffer.filled().is_empty() => {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
        Poll::Ready(Ok(())) => {
            let why = "the server sent data before the first request";
            Err(io::Error::new(io::ErrorKind::InvalidData, why))
        }
    }
}

/// Returns the I/O error inside. The crate keeps it in an `Arc`, which is an error type of its own.
fn io_error(error: &RedisError) -> Option<&io::Error> {
    let shared: &Arc<dyn Error + Send + Sync> = error.source()?.downcast_ref()?;
    shared.downcast_ref()
}

/// Omits keys and certificates.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tls").field(&self.material).finish()
    }
}
