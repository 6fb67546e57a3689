//! A server, a network before it, and one client whose calls travel in one batch on request.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use distlock::{Client, Error, Guard, Lease};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{LEASE, PATIENCE};
use crate::support::batch::{apart, is_batch};
use crate::support::{ChaosProxy, RedisServer, Script, builder, eventually};

pub(crate) struct BatchFixture {
    pub(crate) server: RedisServer,
    pub(crate) proxy: ChaosProxy,
    pub(crate) client: Client,
}

pub(crate) type Call<T = (String, Answer)> = Pin<Box<dyn Future<Output = T> + Send>>;
/// The result of a call: a guard for an acquire; none for a release, or for a lock that is busy.
pub(crate) type Answer = Result<Option<Guard>, Error>;

impl BatchFixture {
    pub(crate) async fn start() -> Self {
        Self::with(RedisServer::start(), "", PATIENCE / 2).await
    }

    /// Like [`start`](Self::start), with this text (the user's name and password, or parameters) in the client's address and this command
    /// time-out.
    pub(crate) async fn with(server: RedisServer, address: &str, time_out: Duration) -> Self {
        Script::load_all(&server);
        let proxy = ChaosProxy::start(server.addr());
        let url = match address.ends_with('@') {
            true => proxy.url().replace("//", &format!("//{address}")),
            false => format!("{}{address}", proxy.url()),
        };
        let client = builder(&url)
            .default_lease(Lease::KeepAlive(LEASE))
            .command_timeout(time_out)
            // The next waiter in the queue is granted the lock through the store.
            .handoff_limit(0);
        let client = client.connect().await.expect("the server is up");
        Self {
            server,
            proxy,
            client,
        }
    }

    /// Starts these calls while another is under way. No request reaches the server until the network is whole again, but all are in one
    /// batch.
    pub(crate) async fn start_call<T: Send + 'static>(
        &self,
        calls: Vec<Call<T>>,
    ) -> Vec<JoinHandle<T>> {
        let many = calls.len();
        // This request makes sure that there is a connection.
        drop(self.client.admin().inspect("first").await);
        self.proxy.partition(true);
        self.proxy.clear_requests();
        tokio::spawn(begun(self.tries("first")));
        let calls = calls.into_iter().map(|call| tokio::spawn(begun(call)));
        let calls = calls.collect();
        becomes("they travel together", || self.batches().contains(&many)).await;
        calls
    }

    /// Makes these calls in one batch, over a network that is whole then.
    pub(crate) async fn together<T: Send + 'static>(&self, calls: Vec<Call<T>>) -> Vec<T> {
        let calls = self.start_call(calls).await;
        self.proxy.partition(false);
        ended(calls).await
    }

    /// Returns the number of calls in each recent batch.
    pub(crate) fn batches(&self) -> Vec<usize> {
        let mut sent = self.proxy.requests();
        sent.retain(|words| is_batch(words));
        sent.into_iter().map(|words| apart(words).len()).collect()
    }

    pub(crate) fn tries(&self, name: &str) -> Call {
        let (name, lock) = (name.to_owned(), self.client.lock(name));
        Box::pin(async move { (name, lock.try_acquire().await) })
    }

    pub(crate) fn acquires(&self, name: &str) -> Call {
        let (name, lock) = (name.to_owned(), self.client.lock(name));
        Box::pin(async move { (name, lock.acquire().await.map(Some)) })
    }

    pub(crate) async fn hold(&self, name: &str) -> Guard {
        let held = self.client.lock(name).acquire().await;
        held.expect("it is free")
    }

    pub(crate) fn hold_as_stranger(&self, name: &str) {
        let stranger = "5b3e1d7c-0000-4000-8000-000000000000:1";
        self.server.cmd(&["HSET", name, stranger, "1"]);
        self.server.cmd(&["PEXPIRE", name, "60000"]);
    }

    pub(crate) fn holds(&self, name: &str) -> BTreeMap<String, String> {
        self.server.hgetall(name)
    }

    /// Waits until the holder of each lock is the guard's owner, or none where there is no guard. Messages that the network still holds
    /// back change nothing when they arrive.
    pub(crate) async fn settle(&self, names: &[&str], guards: &BTreeMap<String, Guard>) {
        let right =
            |name: &&str| self.holds(name) == guards.get(*name).map(said).unwrap_or_default();
        for late in [false, true] {
            becomes(&format!("{names:?} are {guards:?}'s, {late}"), || {
                names.iter().all(right)
            })
            .await;
            self.proxy.deliver_held();
            // This is longer than all requests under way, and the cleanup after them.
            tokio::time::sleep(LEASE / 6).await;
        }
        assert!(names.iter().all(right), "{names:?} were {guards:?}'s");
    }
}

/// Returns a call that releases a lock.
pub(crate) fn gives(guard: Guard) -> Call {
    let name = guard.name().to_owned();
    Box::pin(async move { (name, guard.release().await.map(|()| None)) })
}

/// Returns the call after its first poll, which sends its request, or queues it.
pub(crate) fn begun<T>(
    mut call: Pin<Box<dyn Future<Output = T> + Send>>,
) -> Pin<Box<dyn Future<Output = T> + Send>> {
    let polled = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending(), "no call is answered now");
    call
}

/// Returns the results of the calls.
pub(crate) async fn ended<T>(calls: Vec<JoinHandle<T>>) -> Vec<T> {
    let mut answers = Vec::new();
    for call in calls {
        let answer = timeout(PATIENCE, call).await;
        let answer = answer.expect("a call comes to an end");
        answers.push(answer.expect("no panic"));
    }
    answers
}

/// Returns the holder of a lock that a guard reports.
pub(crate) fn said(guard: &Guard) -> BTreeMap<String, String> {
    BTreeMap::from([(guard.owner(), guard.hold_count().to_string())])
}

pub(crate) async fn becomes(what: &str, condition: impl Fn() -> bool) {
    eventually(PATIENCE, what, async || condition()).await;
}

/// Returns whether the error says that the store has not answered.
pub(crate) fn is_silence(error: &Error) -> bool {
    matches!(error, Error::Timeout { .. } | Error::Unavailable { .. })
}
