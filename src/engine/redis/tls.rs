//! Connections that nobody else can read, to a server that has shown who it is.
//!
//! The stream is made here and handed to the crate, which would read the system's certificates anew for each connection
//! and lean on whatever ciphers the whole process has agreed on, or panic where it has not. Here an application that has
//! chosen its ciphers gets those; for one that has not, ours are used and nothing is chosen for it.
//!
//! Nothing can turn the verification off: a connection that is encrypted for whoever answers is not secure, and looks as
//! if it were. Who signs for itself is trusted by naming it as the authority.

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

/// However long connecting may take: clocks do not reach as far as durations do.
const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);
/// For how long a server that has asked for our certificate is given to say what it thinks of it. Those that send
/// tickets have said so by then; others only refuse.
const ALERT_WAIT: Duration = Duration::from_millis(200);

const NOT_IN_TIME: &str = "no connection in time";
const NO_HANDSHAKE: &str =
    "no answer to a TLS greeting in time (does this port speak TLS? without it is redis://)";
const NO_ANSWER: &str = "no answer in time";

/// Reads files where nobody waits for a disk. Not tokio's threads: it panics where none can be started.
async fn run_on_thread<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, TlsConfigError> + Send + 'static,
) -> Result<T, TlsConfigError> {
    let (done, outcome) = oneshot::channel();
    let thread = std::thread::Builder::new().name("distlock-tls".into());
    let started = thread.spawn(move || {
        // Nobody may be there to hear it.
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

/// How connections are made secure.
#[derive(Clone)]
pub struct Tls {
    material: Arc<TlsMaterial>,
    current: Arc<Mutex<Arc<TlsConfig>>>,
    events: Events,
}

impl Tls {
    /// Whether it is compiled in.
    pub const IS_AVAILABLE: bool = true;

    /// Reads the files, and sees whether everything fits together.
    ///
    /// # Errors
    ///
    /// If something cannot be read, is not what it should be, or does not belong to the rest.
    pub async fn load(material: TlsMaterial) -> Result<Self, TlsConfigError> {
        let mine = material.clone();
        let tls_config = run_on_thread(move || TlsConfig::new(read(&mine)?, None)).await?;
        Ok(Self {
            material: Arc::new(material),
            current: Arc::new(Mutex::new(Arc::new(tls_config))),
            events: Events::inline(),
        })
    }

    /// The same, whose events are emitted there.
    pub(super) fn emitting_to(&self, events: &Events) -> Self {
        Self {
            events: events.clone(),
            ..self.clone()
        }
    }

    /// Makes a connection. Nothing was sent on one that cannot be made, but to a server that has shown who it is.
    pub(super) async fn open(
        &self,
        info: &ConnectionInfo,
        config: AsyncConnectionConfig,
        limit: Duration,
    ) -> Result<MultiplexedConnection, StoreError> {
        let deadline = Instant::now() + limit.min(MAX_TIMEOUT);
        let ConnectionAddr::TcpTls { host, port, .. } = info.addr() else {
            let why = "only a TCP port can speak TLS";
            return Err(StoreError::new(StoreErrorKind::Unusable, why));
        };
        let name = ServerName::try_from(host.clone()).map_err(|_| {
            let why = format!("`{host}` is no name that a certificate can have");
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
        if client_cert.was_asked() {
            let limit = deadline.min(Instant::now() + ALERT_WAIT);
            let accepted = accepted(&mut stream, limit).await;
            accepted.map_err(|error| peer.failure(&error))?;
        }

        let made = MultiplexedConnection::new_with_config(info.redis_settings(), stream, config);
        let made = timeout_at(deadline, made).await;
        let made = made.map_err(|_| peer.unreachable(NO_ANSWER))?;
        let (connection, driver) = made.map_err(|error| match io_error(&error) {
            Some(error) => peer.failure(error),
            None => failure::from_connect_error(&error),
        })?;
        // Ends when the last handle to the connection is dropped.
        tokio::spawn(driver);
        Ok(connection)
    }

    /// What is in the files by now. One that is being replaced, or has gone, is no reason to stop: what was there before
    /// holds until there is something better.
    async fn current_config(&self) -> Arc<TlsConfig> {
        let before = self.lock().clone();
        if !self.material.are_files() {
            return before;
        }
        let (material, known) = (self.material.clone(), before.clone());
        let looking = run_on_thread(move || {
            let pems = read(&material)?;
            if known.pems == pems {
                return Ok(None);
            }
            TlsConfig::new(pems, known.system.clone()).map(Some)
        });
        match looking.await {
            Ok(Some(new)) => {
                let new = Arc::new(new);
                *self.lock() = new.clone();
                self.events.emit(Level::INFO, || {
                    tracing::info!("other certificates are in the files, and used from now on");
                });
                new
            }
            Err(TlsConfigError { reason, .. }) => {
                self.events.emit(Level::WARN, move || {
                    tracing::warn!(why = reason, "going on with the certificates from before");
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

/// In TLS 1.3 a server looks at our certificate when we are through, and says so only if it does not like it. What is
/// written before that meets a closed socket, whose end may hide why; so it is heard out first.
async fn accepted(stream: &mut TlsStream<TcpStream>, limit: Instant) -> io::Result<()> {
    let (socket, session) = stream.get_ref();
    if session.protocol_version() != Some(ProtocolVersion::TLSv1_3) {
        return Ok(());
    }
    // Nothing to hear is no objection.
    let _ = timeout_at(limit, socket.readable()).await;
    let mut byte = [0];
    let mut buffer = ReadBuf::new(&mut byte);
    let read =
        poll_fn(|context| Poll::Ready(Pin::new(&mut *stream).poll_read(context, &mut buffer)));
    match read.await {
        // It was tickets, or nothing yet.
        Poll::Pending => Ok(()),
        Poll::Ready(Err(error)) => Err(error),
        Poll::Ready(Ok(())) if buffer.filled().is_empty() => {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
        Poll::Ready(Ok(())) => {
            let why = "it speaks before it is spoken to";
            Err(io::Error::new(io::ErrorKind::InvalidData, why))
        }
    }
}

/// The crate keeps it in an `Arc`, which is an error of its own.
fn io_error(error: &RedisError) -> Option<&io::Error> {
    let shared: &Arc<dyn Error + Send + Sync> = error.source()?.downcast_ref()?;
    shared.downcast_ref()
}

/// Nothing of keys and certificates.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tls").field(&self.material).finish()
    }
}
