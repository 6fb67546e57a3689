//! Monitor: the connection of one watch, which receives a message for every release of a lock whose name matches a
//! pattern.
//!
//! A message says only which lock was released; a grant, or a lease that expires, has no message. The server counts
//! this subscription as a subscriber, so a client that releases a lock yields for a few milliseconds, as if there were
//! a waiter. That costs time and nothing else.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ErrorKind, PushInfo, PushKind, Value};

use super::connector::{Connector, NewConnection};
use super::failure;
use super::keys::Keys;
use super::sentinel::AbortOnDrop;
use crate::engine::change_feed::{FeedBatch, FeedBuffer, FeedItem, FeedSource};
use crate::engine::name_filter::NameFilter;
use crate::engine::{BoxFuture, ChangeFeed, StoreError, StoreErrorKind, Subscriber, Subscription};

/// Message that makes waiters retry although nothing was released.
const NO_RELEASE: &[u8] = b"2";
/// Message that Redisson's waiters get in its place, on their own channels. On the channel of a read/write lock it
/// means that the writer has released it.
const WAKE_UP: &[u8] = b"1";

/// Makes the connections of watches.
#[derive(Debug)]
pub(super) struct PatternMonitor {
    pub(super) connector: Connector,
    pub(super) keys: Keys,
    pub(super) command_timeout: Duration,
}

/// Translates messages to lock names.
struct PushTranslator {
    keys: Keys,
    names: NameFilter,
    /// The patterns of [`Keys::channel_patterns`], or fewer that match as much.
    subscriptions: Vec<String>,
    inbox: Arc<FeedBuffer>,
}

impl PatternMonitor {
    /// Connects and subscribes. The connection ends when the feed, or this future, is dropped.
    pub(super) async fn start(&self, pattern: String) -> Result<ChangeFeed, StoreError> {
        let subscriptions = self.keys.channel_patterns(&pattern);
        let all = Keys::all_channel_patterns();
        let mut feed = self.subscribe(&pattern, subscriptions).await;
        // An ACL that allows `*` may still refuse a narrower pattern, or allow the channels of some locks only.
        let mut others = [all.clone(), all[..1].to_vec()].into_iter();
        while let Err(why) = &feed
            && why.kind == StoreErrorKind::Denied
            && let Some(subscriptions) = others.next()
        {
            feed = self.subscribe(&pattern, subscriptions).await;
        }
        feed
    }

    async fn subscribe(
        &self,
        pattern: &str,
        subscriptions: Vec<String>,
    ) -> Result<ChangeFeed, StoreError> {
        let subscriber = Arc::new(Subscriber::default());
        let inbox = Arc::new(FeedBuffer::new(subscriber.clone()));
        let translator = PushTranslator {
            keys: self.keys.clone(),
            names: self.keys.names(pattern),
            subscriptions: subscriptions.clone(),
            inbox: inbox.clone(),
        };
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(Some(self.command_timeout))
            .set_push_sender(move |push: PushInfo| {
                translator.on_push(&push);
                Ok::<(), std::convert::Infallible>(())
            });
        let NewConnection {
            mut connection,
            master_term,
        } = self.connector.open(config).await?;
        let subscribed = connection.psubscribe(&subscriptions).await;
        subscribed.map_err(|error| failure::from_call_error(&error))?;
        let connection = Arc::new(Mutex::new(Some(connection)));
        let (left, closed) = (connection.clone(), inbox.clone());
        let epoch_watcher = master_term.on_change(move || {
            lock(&left).take();
            closed.close();
        });
        let source = MonitorSource {
            connection,
            inbox,
            _epoch_watcher: epoch_watcher,
        };
        // The reader owns the connection, which ends with it.
        Ok(ChangeFeed::new(
            Subscription::new(subscriber, || {}),
            source,
            0,
        ))
    }
}

impl PushTranslator {
    fn on_push(&self, push: &PushInfo) {
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
                    && !(word == NO_RELEASE || word == WAKE_UP && Keys::is_waiter_channel(channel))
                    && let Some(name) = self.name(by, channel)
                {
                    self.inbox.push(FeedItem::MaybeReleased(name.to_owned()));
                }
            }
            _ => {}
        }
    }

    fn name<'a>(&self, by: &str, channel: &'a str) -> Option<&'a str> {
        let (name, pattern) = self.keys.name_of_channel(channel)?;
        // A message that several subscriptions match arrives once for each of them.
        let again = match &*self.subscriptions {
            [_] | [_, _] => false,
            all => all.get(pattern).is_some_and(|certain| by != certain),
        };
        (!again && self.names.matches(name)).then_some(name)
    }
}

struct MonitorSource {
    /// `None` once the server is no longer the master.
    connection: Arc<Mutex<Option<MultiplexedConnection>>>,
    inbox: Arc<FeedBuffer>,
    _epoch_watcher: Option<AbortOnDrop>,
}

impl FeedSource for MonitorSource {
    fn is_complete(&self) -> bool {
        false
    }

    fn read(&self, _cursor: i64, all: bool) -> BoxFuture<Result<FeedBatch, StoreError>> {
        let (connection, inbox) = (lock(&self.connection).clone(), self.inbox.clone());
        Box::pin(async move {
            if all && let Some(mut connection) = connection {
                // The reply comes after every message that was sent before it; so does an error.
                let reply = redis::cmd("PING")
                    .query_async::<Value>(&mut connection)
                    .await;
                if let Err(error) = reply
                    && !matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension)
                {
                    return Err(failure::from_call_error(&error));
                }
            }
            inbox.take()
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
