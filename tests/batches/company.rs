//! A server, a network before it, and one client whose calls travel together when they are told to.

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

pub(crate) struct Company {
    pub(crate) server: RedisServer,
    pub(crate) proxy: ChaosProxy,
    pub(crate) client: Client,
}

pub(crate) type Call<T = (String, Answer)> = Pin<Box<dyn Future<Output = T> + Send>>;
/// A guard for a call that takes a lock; none for one that releases it, or finds it busy.
pub(crate) type Answer = Result<Option<Guard>, Error>;

impl Company {
    pub(crate) async fn start() -> Self {
        Self::with(RedisServer::start(), "", PATIENCE / 2).await
    }

    /// With this in the client's address, the user's name and password or parameters, and this command time-out.
    pub(crate) async fn with(server: RedisServer, address: &str, time_out: Duration) -> Self {
        Script::make_known(&server);
        let proxy = ChaosProxy::start(server.addr());
        let url = match address.ends_with('@') {
            true => proxy.url().replace("//", &format!("//{address}")),
            false => format!("{}{address}", proxy.url()),
        };
        let client = builder(&url)
            .default_lease(Lease::KeepAlive(LEASE))
            .command_timeout(time_out)
            // The next in the queue gets the lock through the store.
            .handoff_limit(0);
        let client = client.connect().await.expect("the server is up");
        Self {
            server,
            proxy,
            client,
        }
    }

    /// Sets these off while another call is under way. No request reaches the server until the network is whole again, but
    /// all are in one batch.
    pub(crate) async fn set_off<T: Send + 'static>(
        &self,
        calls: Vec<Call<T>>,
    ) -> Vec<JoinHandle<T>> {
        let many = calls.len();
        // There is a connection, whatever went before.
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
        let calls = self.set_off(calls).await;
        self.proxy.partition(false);
        ended(calls).await
    }

    /// How many calls travelled in each batch of late.
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

    /// The holder of each lock becomes the guard's owner, or none where there is no guard. What the network still holds
    /// changes nothing when it arrives.
    pub(crate) async fn settle(&self, names: &[&str], guards: &BTreeMap<String, Guard>) {
        let right =
            |name: &&str| self.holds(name) == guards.get(*name).map(said).unwrap_or_default();
        for late in [false, true] {
            becomes(&format!("{names:?} are {guards:?}'s, {late}"), || {
                names.iter().all(right)
            })
            .await;
            self.proxy.let_go();
            // All that is under way, and the clean-up after it.
            tokio::time::sleep(LEASE / 6).await;
        }
        assert!(names.iter().all(right), "{names:?} were {guards:?}'s");
    }
}

/// A call that releases a lock.
pub(crate) fn gives(guard: Guard) -> Call {
    let name = guard.name().to_owned();
    Box::pin(async move { (name, guard.release().await.map(|()| None)) })
}

/// The call after its first poll, which sends its request, or puts it where it waits.
pub(crate) fn begun<T>(
    mut call: Pin<Box<dyn Future<Output = T> + Send>>,
) -> Pin<Box<dyn Future<Output = T> + Send>> {
    let polled = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending(), "no call is answered now");
    call
}

/// What the calls came to.
pub(crate) async fn ended<T>(calls: Vec<JoinHandle<T>>) -> Vec<T> {
    let mut answers = Vec::new();
    for call in calls {
        let answer = timeout(PATIENCE, call).await;
        let answer = answer.expect("a call comes to an end");
        answers.push(answer.expect("no panic"));
    }
    answers
}

/// The holder of a lock by the word of a guard.
pub(crate) fn said(guard: &Guard) -> BTreeMap<String, String> {
    BTreeMap::from([(guard.owner(), guard.hold_count().to_string())])
}

pub(crate) async fn becomes(what: &str, condition: impl Fn() -> bool) {
    eventually(PATIENCE, what, async || condition()).await;
}

/// The error says that the store has not answered.
pub(crate) fn is_silence(error: &Error) -> bool {
    matches!(error, Error::Timeout { .. } | Error::Unavailable { .. })
}
