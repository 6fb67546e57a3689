//! The two ends of a connection.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::network::{Delivery, Network};

/// One end of a connection. When it is dropped, the other end can still read everything that was sent.
pub struct Stream {
    network: Network,
    incoming: Pipe,
    outgoing: Pipe,
    /// The server's host, if this is the client's end.
    server: Option<Arc<str>>,
    /// The timer of the next message that is under way.
    sleep: Option<Pin<Box<Sleep>>>,
}

/// One direction of a connection. Clones are the same.
#[derive(Clone)]
struct Pipe(Arc<Mutex<State>>);

struct State {
    from: Arc<str>,
    to: Arc<str>,
    /// The messages under way, and when each of them arrives.
    messages: VecDeque<(Instant, VecDeque<u8>)>,
    /// The moment at which the last part arrives.
    last: Instant,
    end: Option<(Instant, End)>,
    is_black_hole: bool,
    /// Whether a message was lost: TCP delivers nothing behind it.
    has_lost: bool,
    reader: Option<Waker>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End {
    Closed,
    Broken,
    /// The connection is broken for the reader; the writer has not noticed.
    Abandoned,
}

/// Makes the two ends of a connection: that of the client, and that of the server.
pub(crate) fn pair(network: &Network, client: &str, server: &str) -> (Stream, Stream) {
    let (to_server, to_client) = (Pipe::new(client, server), Pipe::new(server, client));
    let end = |incoming: &Pipe, outgoing: &Pipe, server| Stream {
        network: network.clone(),
        incoming: incoming.clone(),
        outgoing: outgoing.clone(),
        server,
        sleep: None,
    };
    let host: Arc<str> = server.into();
    network.opened(&host);
    let ours = end(&to_client, &to_server, Some(host));
    (ours, end(&to_server, &to_client, None))
}

impl Pipe {
    fn new(from: &str, to: &str) -> Self {
        Self(Arc::new(Mutex::new(State {
            from: from.into(),
            to: to.into(),
            messages: VecDeque::new(),
            last: Instant::now(),
            end: None,
            is_black_hole: false,
            has_lost: false,
            reader: None,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the direction at a moment, of which the reader is notified then. The earliest end counts.
    fn end(&self, at: Instant, end: End) {
        let mut state = self.lock();
        if state.end.is_none_or(|(earlier, _)| at < earlier) {
            state.end = Some((at, end));
        }
        state.wake();
    }
}

impl State {
    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    /// Reads the bytes that have arrived, or returns when the next may arrive.
    fn next(&mut self, now: Instant, buffer: &mut ReadBuf<'_>) -> Result<(), Option<Instant>> {
        if self.is_black_hole {
            return Err(None);
        }
        // Bytes that would arrive behind the end never do.
        let end = self.end.filter(|(at, _)| {
            let first = self.messages.front();
            first.is_none_or(|(arrival, _)| at < arrival)
        });
        if let Some((at, _)) = end {
            // The caller distinguishes the kinds of ends: here nothing is read.
            return if at > now { Err(Some(at)) } else { Ok(()) };
        }
        let Some((arrival, message)) = self.messages.front_mut() else {
            return Err(None);
        };
        if *arrival > now {
            return Err(Some(*arrival));
        }
        let size = buffer.remaining().min(message.len());
        for byte in message.drain(..size) {
            buffer.put_slice(&[byte]);
        }
        if message.is_empty() {
            self.messages.pop_front();
        }
        Ok(())
    }

    fn is_broken(&self, now: Instant) -> bool {
        self.end
            .is_some_and(|(at, end)| end == End::Broken && at <= now)
    }

    fn is_broken_for_reader(&self, now: Instant) -> bool {
        self.end
            .is_some_and(|(at, end)| end != End::Closed && at <= now)
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            let now = Instant::now();
            let again = {
                let mut state = this.incoming.lock();
                state.reader = Some(cx.waker().clone());
                if this.network.blocks(&state.from, &state.to, cx.waker()) {
                    return Poll::Pending;
                }
                let before = buffer.filled().len();
                match state.next(now, buffer) {
                    Ok(())
                        if buffer.filled().len() == before && state.is_broken_for_reader(now) =>
                    {
                        return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
                    }
                    Ok(()) => return Poll::Ready(Ok(())),
                    Err(again) => again,
                }
            };
            let Some(again) = again else {
                return Poll::Pending;
            };
            let sleep = this.sleep.insert(Box::pin(sleep_until(again)));
            ready!(sleep.as_mut().poll(cx));
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        message: &[u8],
    ) -> Poll<io::Result<usize>> {
        let now = Instant::now();
        if self.incoming.lock().is_broken_for_reader(now) || self.outgoing.lock().is_broken(now) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let (fate, latency, arrival) = {
            let mut state = self.outgoing.lock();
            let (fate, latency) = self.network.send(&state.from, &state.to, message);
            let arrival = state.last.max(now + latency);
            state.last = arrival;
            state.has_lost |= matches!(fate, Delivery::Lost | Delivery::BlackHole);
            if !state.has_lost {
                let message = message.iter().copied().collect();
                state.messages.push_back((arrival, message));
                state.wake();
            }
            (fate, latency, arrival)
        };
        match fate {
            Delivery::Delivered => {}
            Delivery::Lost => self.break_at(now + latency),
            Delivery::LastDelivered => self.break_at(arrival + Duration::from_micros(500)),
            Delivery::Late => self.incoming.end(now, End::Abandoned),
            Delivery::BlackHole => {
                self.incoming.lock().is_black_hole = true;
                self.outgoing.lock().is_black_hole = true;
            }
        }
        Poll::Ready(Ok(message.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.close();
        Poll::Ready(Ok(()))
    }
}

impl Stream {
    fn break_at(&self, at: Instant) {
        self.incoming.end(at, End::Broken);
        self.outgoing.end(at, End::Broken);
    }

    fn close(&self) {
        let arrival = {
            let state = self.outgoing.lock();
            state.last.max(Instant::now() + self.network.latency())
        };
        // The end arrives behind everything that was sent.
        let behind = arrival + Duration::from_micros(500);
        self.outgoing.end(behind, End::Closed);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.close();
        if let Some(host) = &self.server {
            self.network.closed(host);
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.outgoing.lock();
        write!(f, "{} -> {}", state.from, state.to)
    }
}
