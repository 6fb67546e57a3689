//! A connection for one watch: it hears of every release of a lock whose name matches a pattern.
//!
//! A message says only which lock was freed; a grant, or a lease that runs out, has no message. The server counts this
//! subscription as a listener, so a client that releases a lock stands back for a few milliseconds, as if somebody
//! waited for it. That costs time and nothing else.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ErrorKind, PushInfo, PushKind, Value};

use super::door::{Door, Opened};
use super::failure;
use super::keys::Keys;
use super::sentinel::Follower;
use crate::engine::feed::{Batch, Inbox, Notice, Source};
use crate::engine::names::Names;
use crate::engine::{Answer, Cause, Ear, Failure, Feed, Listener};

/// What those who wait are told to make them ask, though nothing was freed.
const NO_RELEASE: &[u8] = b"2";
/// What Redisson's are told in its place, on their own channels; on that of a read/write lock its writer has left.
const WAKE_UP: &[u8] = b"1";

/// How such connections are made.
#[derive(Debug)]
pub(super) struct Overhear {
    pub(super) door: Door,
    pub(super) keys: Keys,
    pub(super) command_timeout: Duration,
}

/// Turns messages into names.
struct Translator {
    keys: Keys,
    names: Names,
    /// As [`Keys::channel_patterns`] has them, or fewer that find as much.
    subscriptions: Vec<String>,
    inbox: Arc<Inbox>,
}

impl Overhear {
    /// Connects and subscribes. The connection ends when the feed, or this future, is dropped.
    pub(super) async fn begin(&self, pattern: String) -> Result<Feed, Failure> {
        let subscriptions = self.keys.channel_patterns(&pattern);
        let all = Keys::every_channel();
        let mut begun = self.subscribe(&pattern, subscriptions).await;
        // An ACL that allows `*` may still refuse a narrower pattern; or allow the channels of some locks only.
        let mut others = [all.clone(), all[..1].to_vec()].into_iter();
        while let Err(why) = &begun
            && why.cause == Cause::Denied
            && let Some(subscriptions) = others.next()
        {
            begun = self.subscribe(&pattern, subscriptions).await;
        }
        begun
    }

    async fn subscribe(&self, pattern: &str, subscriptions: Vec<String>) -> Result<Feed, Failure> {
        let ear = Arc::new(Ear::default());
        let inbox = Arc::new(Inbox::new(ear.clone()));
        let translator = Translator {
            keys: self.keys.clone(),
            names: self.keys.names(pattern),
            subscriptions: subscriptions.clone(),
            inbox: inbox.clone(),
        };
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(Some(self.command_timeout))
            .set_push_sender(move |push: PushInfo| {
                translator.hear(&push);
                Ok::<(), std::convert::Infallible>(())
            });
        let Opened {
            mut connection,
            stay,
        } = self.door.open(config).await?;
        let subscribed = connection.psubscribe(&subscriptions).await;
        subscribed.map_err(|error| failure::of_calling(&error))?;
        let connection = Arc::new(Mutex::new(Some(connection)));
        let (left, closed) = (connection.clone(), inbox.clone());
        let follower = stay.follow(move || {
            lock(&left).take();
            closed.close();
        });
        let reader = Reader {
            connection,
            inbox,
            _follower: follower,
        };
        // The connection is the reader's, and goes with it.
        Ok(Feed::new(Listener::new(ear, || {}), reader, 0))
    }
}

impl Translator {
    fn hear(&self, push: &PushInfo) {
        match push.kind {
            PushKind::Disconnection => self.inbox.close(),
            PushKind::PMessage => {
                if let [
                    Value::BulkString(by),
                    Value::BulkString(channel),
                    Value::BulkString(word),
                ] = &*push.data
                    && let (Ok(by), Ok(channel)) =
                        (std::str::from_utf8(by), std::str::from_utf8(channel))
                    && !(word == NO_RELEASE || word == WAKE_UP && Keys::is_waiters(channel))
                    && let Some(name) = self.name(by, channel)
                {
                    self.inbox.put(Notice::Freed(name.to_owned()));
                }
            }
            _ => {}
        }
    }

    fn name<'a>(&self, by: &str, channel: &'a str) -> Option<&'a str> {
        let (name, pattern) = self.keys.name_in(channel)?;
        // A message that several subscriptions match comes as often.
        let again = match &*self.subscriptions {
            [_] | [_, _] => false,
            all => all.get(pattern).is_some_and(|certain| by != certain),
        };
        (!again && self.names.has(name)).then_some(name)
    }
}

struct Reader {
    /// None once the server is no longer the one to be at.
    connection: Arc<Mutex<Option<MultiplexedConnection>>>,
    inbox: Arc<Inbox>,
    _follower: Option<Follower>,
}

impl Source for Reader {
    fn tells_all(&self) -> bool {
        false
    }

    fn read(&self, _cursor: i64, all: bool) -> Answer<Result<Batch, Failure>> {
        let (connection, inbox) = (lock(&self.connection).clone(), self.inbox.clone());
        Box::pin(async move {
            if all && let Some(mut connection) = connection {
                // The answer comes behind every message that was sent before it; so does a refusal.
                let answered = redis::cmd("PING")
                    .query_async::<Value>(&mut connection)
                    .await;
                if let Err(error) = answered
                    && !matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension)
                {
                    return Err(failure::of_calling(&error));
                }
            }
            inbox.take()
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
