//! One connection: requests in, replies and pushes out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::clients::Blocked;
use crate::core::Core;
use crate::decoder::Decoder;
use crate::server::Server;
use crate::{Value, dispatch};

/// The bytes to send to a connection's client.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    bytes: Mutex<Vec<u8>>,
    /// Signals that there are bytes to send, that the connection is to be closed, or that a stall has begun.
    changed: Notify,
    is_closed: AtomicBool,
}

impl Outbox {
    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a reply or a push.
    pub(crate) fn send(&self, value: &Value, protocol: u8) {
        value.encode(protocol, &mut self.bytes());
        self.changed.notify_one();
    }

    /// Ends the connection; nothing more is sent.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.changed.notify_one();
    }

    pub(crate) fn wake(&self) {
        self.changed.notify_one();
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }
}

/// Serves a connection until it ends.
pub(crate) async fn serve<S>(server: &Server, stream: S)
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let Some(connection) = Connection::open(server) else {
        return;
    };
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut decoder = Decoder::new();
    let mut input = vec![0; 16 * 1024];
    let mut has_ended = false;
    // The bytes that were taken from the outbox and are being written.
    let mut output = Vec::new();
    loop {
        let (stalled_until, is_last) = connection.execute(&mut decoder);
        if connection.outbox.is_closed() {
            break;
        }
        if output.is_empty() {
            output = std::mem::take(&mut *connection.outbox.bytes());
        }
        // If a client closes its side, its requests are still executed, and their replies are lost.
        if (is_last || has_ended) && output.is_empty() && stalled_until.is_none() {
            break;
        }
        let is_stalled = stalled_until.is_some();
        let resume = stalled_until.unwrap_or_else(Instant::now);
        // A client that has closed its side does not wait for replicas any more.
        if has_ended && connection.is_blocked() {
            break;
        }
        // The order is fixed, so that every run is the same.
        tokio::select! {
            biased;
            () = connection.outbox.changed.notified() => {}
            written = writer.write(&output), if !output.is_empty() => match written {
                Ok(count @ 1..) => drop(output.drain(..count)),
                Ok(_) | Err(_) => break,
            },
            read = reader.read(&mut input), if !has_ended && !is_last => match read {
                Ok(0) => has_ended = true,
                Ok(count) => decoder.feed(&input[..count]),
                Err(_) => break,
            },
            () = sleep_until(resume), if is_stalled => {}
        }
    }
    drop(connection);
    // The client sees the end even if others keep the stream.
    let _ = writer.shutdown().await;
}

/// A connection that is registered at the server until this is dropped.
struct Connection<'a> {
    server: &'a Server,
    id: u64,
    outbox: Arc<Outbox>,
}

impl<'a> Connection<'a> {
    /// Registers a connection, or returns `None` if the server is dead.
    fn open(server: &'a Server) -> Option<Self> {
        let mut inner = server.lock();
        if !inner.is_alive {
            return None;
        }
        let core = inner.core();
        let id = core.next_client;
        core.next_client += 1;
        core.connections += 1;
        let outbox = Arc::clone(&core.connect(id).outbox);
        drop(inner);
        Some(Self { server, id, outbox })
    }

    /// Answers a client whose wait is over, or returns until when it waits.
    fn go_on(&self, core: &mut Core) -> Option<Instant> {
        let client = core.client(self.id);
        let protocol = client.protocol;
        let (until, blocked) = client.blocked.take()?;
        let now = Instant::now();
        let (reply, next) = match &blocked {
            Blocked::Moment(reply) => (reply.clone(), until),
            Blocked::Replicas {
                wanted,
                offset,
                deadline,
            } => {
                let count = core.acknowledgements(*offset);
                let is_done = count >= *wanted || now >= *deadline;
                let arrival = core.acknowledged_at(*offset, *wanted);
                let next = arrival.unwrap_or(*deadline).min(*deadline);
                (Value::count(count), if is_done { now } else { next })
            }
        };
        if next > now {
            core.client(self.id).blocked = Some((next, blocked));
            return Some(next);
        }
        self.outbox.send(&reply, protocol);
        None
    }

    /// Returns whether the client waits for a reply for another reason than a stall.
    fn is_blocked(&self) -> bool {
        let mut inner = self.server.lock();
        let core = inner.core();
        core.stalled_until.is_none() && core.client(self.id).blocked.is_some()
    }

    /// Executes the requests that have arrived whole. Returns until when the server is stalled, if it is, and whether the connection is to
    /// be closed once everything is sent.
    fn execute(&self, decoder: &mut Decoder) -> (Option<Instant>, bool) {
        let mut inner = self.server.lock();
        while !self.outbox.is_closed() {
            let core = inner.core();
            if let Some(until) = core.stalled_until {
                if until > Instant::now() {
                    return (Some(until), false);
                }
                core.stalled_until = None;
            }
            if let Some(until) = self.go_on(core) {
                return (Some(until), false);
            }
            if core.client(self.id).is_closing {
                return (None, true);
            }
            match decoder.next_request() {
                Ok(None) => break,
                Ok(Some(request)) => {
                    let reply = dispatch::execute(&mut inner, self.id, &request);
                    // The protocol is that after the command: the reply to HELLO is in the protocol that HELLO has chosen.
                    let protocol = inner.core().client(self.id).protocol;
                    self.outbox.send(&reply, protocol);
                }
                Err(error) => {
                    let text = format!("ERR Protocol error: {}", error.0);
                    self.outbox.send(&Value::Error(text), 2);
                    core.client(self.id).is_closing = true;
                }
            }
        }
        (None, false)
    }
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        let mut inner = self.server.lock();
        // This is harmless after a restart, which removes all connections and never reuses their ids.
        inner.core().disconnect(self.id);
    }
}
