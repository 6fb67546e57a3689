//! The raw ceiling: a minimal tokio client that pipelines distlock's own two scripts, one call each, and does nothing else: it has no
//! leases to renew, nothing to cancel, no waiters, no second connection.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redis::Script;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};

use crate::failure::{Failure, Outcome, ensure};
use crate::line::{Job, Work};
use crate::serve::Locker;

/// The variant that writes a request at once.
#[derive(Clone)]
pub(super) struct Raw(Pipe);

/// The variant that lets other tasks run once before it writes, so that more goes into one write: the gain of batching without any script
/// of its own.
#[derive(Clone)]
pub(super) struct Yielding(Pipe);

macro_rules! locker {
    ($name:ident, $version:literal, $yields:literal) => {
        impl Locker for $name {
            type Hold = HeldLock;

            fn cannot(work: &Work) -> Option<&'static str> {
                match work.job {
                    // A caller that finds the lock held fails.
                    Job::Cycle if work.names >= work.callers => None,
                    Job::Cycle | Job::Queue | Job::Step => Some("does not wait"),
                    Job::Hold => Some("does not renew"),
                }
            }

            fn version() -> String {
                $version.into()
            }

            async fn connect(work: &Work) -> Outcome<Self> {
                Ok(Self(Pipe::open(&work.url, $yields).await?))
            }

            async fn acquire(&self, name: &Arc<str>) -> Outcome<HeldLock> {
                self.0.acquire(name).await
            }

            async fn release(&self, hold: HeldLock) -> Outcome {
                self.0.release(hold).await
            }
        }
    };
}

locker!(Raw, "one script a call, tokio", false);
locker!(Yielding, "the same, yields once before writing", true);

/// A held lock: its name and its owner.
pub(super) struct HeldLock {
    name: Arc<str>,
    owner: u64,
}

#[derive(Clone)]
struct Pipe {
    calls: mpsc::UnboundedSender<Call>,
    scripts: Arc<Scripts>,
}

struct Call {
    bytes: Vec<u8>,
    answer: oneshot::Sender<i64>,
}

impl Pipe {
    /// Connects to the server. Both tasks end when the last handle is dropped: the writer's input ends, the reader's connection with it.
    async fn open(url: &str, yields: bool) -> Outcome<Self> {
        let stream = TcpStream::connect(address(url)?).await?;
        stream.set_nodelay(true)?;
        let (reading, writing) = stream.into_split();
        let (calls, inbox) = mpsc::unbounded_channel();
        let (sent, owed) = mpsc::unbounded_channel();
        tokio::spawn(write(writing, inbox, sent, yields));
        tokio::spawn(read(reading, owed));
        Ok(Self {
            calls,
            scripts: Arc::new(Scripts::load(url)?),
        })
    }

    async fn acquire(&self, name: &Arc<str>) -> Outcome<HeldLock> {
        let owner = self.scripts.fresh_owner();
        let said = self.call(self.scripts.acquire(name, owner)).await?;
        ensure!(said == -3, "acquire answered {said}");
        let name = name.clone();
        Ok(HeldLock { name, owner })
    }

    async fn release(&self, taken: HeldLock) -> Outcome {
        let call = self.scripts.release(&taken.name, taken.owner);
        let said = self.call(call).await?;
        ensure!(said >= 0, "release answered {said}");
        Ok(())
    }

    async fn call(&self, bytes: Vec<u8>) -> Outcome<i64> {
        let (answer, answered) = oneshot::channel();
        let gone = || Failure::new("the connection is gone");
        let call = Call { bytes, answer };
        self.calls.send(call).map_err(|_| gone())?;
        answered.await.map_err(|_| gone())
    }
}

async fn write(
    mut stream: OwnedWriteHalf,
    mut inbox: mpsc::UnboundedReceiver<Call>,
    sent: mpsc::UnboundedSender<oneshot::Sender<i64>>,
    yields: bool,
) -> io::Result<()> {
    let mut calls = Vec::new();
    let mut bytes = Vec::new();
    while inbox.recv_many(&mut calls, MOST).await > 0 {
        if yields {
            tokio::task::yield_now().await;
            while let Ok(call) = inbox.try_recv() {
                calls.push(call);
            }
        }
        bytes.clear();
        for call in calls.drain(..) {
            bytes.extend_from_slice(&call.bytes);
            // Sending fails only when the reader has stopped, and then so does the write.
            let _ = sent.send(call.answer);
        }
        stream.write_all(&bytes).await?;
    }
    Ok(())
}

async fn read(
    mut stream: OwnedReadHalf,
    mut owed: mpsc::UnboundedReceiver<oneshot::Sender<i64>>,
) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(1 << 16);
    while stream.read_buf(&mut bytes).await? > 0 {
        let mut from = 0;
        while let Some(length) = bytes[from..].iter().position(|byte| *byte == b'\n') {
            let line = &bytes[from..from + length];
            from += length + 1;
            let answer = owed.recv().await.expect("an answer follows its question");
            let number = number(line).ok_or_else(|| {
                io::Error::other(format!("answered: {}", String::from_utf8_lossy(line)))
            })?;
            // A caller that is gone needs no reply.
            let _ = answer.send(number);
        }
        bytes.drain(..from);
    }
    Ok(())
}

/// Parses `:123\r`; `None` for anything else.
pub(super) fn number(line: &[u8]) -> Option<i64> {
    let digits = line.strip_prefix(b":")?.strip_suffix(b"\r")?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

pub(super) fn address(url: &str) -> Outcome<&str> {
    let address = url
        .strip_prefix("redis://")
        .map(|rest| rest.trim_end_matches('/'));
    address.ok_or_else(|| Failure::new(format!("not an address: {url}")))
}

/// distlock's own two scripts, as calls on the wire: the constant bytes are made once, the rest is written in place.
pub(super) struct Scripts {
    /// The bytes up to the name.
    acquire: Vec<u8>,
    release: Vec<u8>,
    owners: AtomicU64,
}

impl Scripts {
    pub(super) fn load(url: &str) -> Outcome<Self> {
        let mut connection = redis::Client::open(url)?.get_connection()?;
        let mut load = |text| -> Outcome<String> {
            Ok(Script::new(text).prepare_invoke().load(&mut connection)?)
        };
        let acquire = load(concat!(
            include_str!("../../../src/engine/redis/lua/format/owner.lua"),
            include_str!("../../../src/engine/redis/lua/format/lock.lua"),
            include_str!("../../../src/engine/redis/lua/mutex/acquire.lua"),
        ))?;
        let release = load(include_str!(
            "../../../src/engine/redis/lua/mutex/release.lua"
        ))?;
        let begin = |words: u8, script: &str, keys: &str| {
            let mut bytes = format!("*{words}\r\n").into_bytes();
            for each in ["EVALSHA", script, keys] {
                word(&mut bytes, &[each.as_bytes()]);
            }
            bytes
        };
        Ok(Self {
            acquire: begin(9, &acquire, "2"),
            release: begin(7, &release, "1"),
            owners: AtomicU64::new(0),
        })
    }

    /// Returns an owner id that is not in use yet, as distlock's own protocol does.
    pub(super) fn fresh_owner(&self) -> u64 {
        self.owners.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn acquire(&self, name: &str, owner: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(ROOM + 2 * name.len());
        bytes.extend_from_slice(&self.acquire);
        word(&mut bytes, &[name.as_bytes()]);
        word(&mut bytes, &[b"distlock_undone:{", name.as_bytes(), b"}"]);
        Self::owner(&mut bytes, owner);
        bytes.extend_from_slice(b"$1\r\n1\r\n$1\r\n1\r\n$5\r\n30000\r\n");
        bytes
    }

    pub(super) fn release(&self, name: &str, owner: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(ROOM + 2 * name.len());
        bytes.extend_from_slice(&self.release);
        word(&mut bytes, &[name.as_bytes()]);
        Self::owner(&mut bytes, owner);
        bytes.extend_from_slice(b"$1\r\n0\r\n");
        word(
            &mut bytes,
            &[b"redisson_lock__channel:{", name.as_bytes(), b"}"],
        );
        bytes
    }

    fn owner(bytes: &mut Vec<u8>, owner: u64) {
        let mut digits = itoa::Buffer::new();
        word(bytes, &[CLIENT, digits.format(owner).as_bytes()]);
    }
}

/// Appends one argument of a command, made of these pieces.
fn word(bytes: &mut Vec<u8>, pieces: &[&[u8]]) {
    let length: usize = pieces.iter().map(|piece| piece.len()).sum();
    bytes.push(b'$');
    bytes.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
    bytes.extend_from_slice(b"\r\n");
    for piece in pieces {
        bytes.extend_from_slice(piece);
    }
    bytes.extend_from_slice(b"\r\n");
}

/// A client id as long as the real ones.
const CLIENT: &[u8] = b"b5dbdb44-6a3c-4c2e-9d0b-7f1d3a0c9e11:";
/// The size of a call without its names.
const ROOM: usize = 256;
/// The maximum number of callers: one write for all pending calls.
const MOST: usize = 8192;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_encoded_word_by_word() {
        let mut bytes = Vec::new();
        word(&mut bytes, &[b"GET"]);
        word(&mut bytes, &[b"a", b"b"]);
        assert_eq!(bytes, b"$3\r\nGET\r\n$2\r\nab\r\n");
    }

    #[test]
    fn an_error_reply_is_no_number() {
        assert_eq!(number(b":-3\r"), Some(-3));
        assert_eq!(number(b"-NOSCRIPT\r"), None);
    }
}
