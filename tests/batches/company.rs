//! A server, a network before it, and one client whose calls travel together when they are told to.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::Duration;

use distlock::{Client, ClientBuilder, Error, Guard, Lease};
use tokio::task::JoinHandle;

use super::mix::begin;
use super::support::batch::{apart, is_batch};
use super::support::{ChaosProxy, RedisServer, Script, eventually};
use super::{CONNECT_TIMEOUT, LEASE, PATIENCE};

pub(crate) struct Company {
    pub(crate) server: RedisServer,
    pub(crate) proxy: ChaosProxy,
    pub(crate) client: Client,
}

pub(crate) type Call<T> = Pin<Box<dyn Future<Output = T> + Send>>;
/// A guard for who takes a lock; none for who gives one back, or finds it busy.
pub(crate) type Answer = Result<Option<Guard>, Error>;

impl Company {
    pub(crate) async fn start() -> Self {
        Self::on(RedisServer::start(), "", |builder| builder).await
    }

    /// As this user: `name:password@`.
    pub(crate) async fn on(
        server: RedisServer,
        user: &str,
        build: impl FnOnce(ClientBuilder) -> ClientBuilder,
    ) -> Self {
        Self::at(server, user, "", build).await
    }

    /// The same with these parameters in the client's address.
    pub(crate) async fn at(
        server: RedisServer,
        user: &str,
        parameters: &str,
        build: impl FnOnce(ClientBuilder) -> ClientBuilder,
    ) -> Self {
        Script::make_known(&server);
        let proxy = ChaosProxy::start(server.addr());
        let url = proxy.url().replace("redis://", &format!("redis://{user}"));
        let url = format!("{url}{parameters}");
        let builder = Client::builder(&url)
            .default_lease(Lease::KeepAlive(LEASE))
            .command_timeout(TIME_OUT)
            .connect_timeout(CONNECT_TIMEOUT)
            // Whoever is next in line gets it through the store.
            .handoff_limit(0);
        let client = build(builder).connect().await.expect("the server is up");
        Self {
            server,
            proxy,
            client,
        }
    }

    /// Sets these off while another call is under way. Nothing reaches the server until the network is
    /// whole again, but all are in one batch.
    pub(crate) async fn set_off<T: Send + 'static>(
        &self,
        calls: Vec<Call<T>>,
    ) -> Vec<JoinHandle<T>> {
        let begun = self.try_set_off(calls).await;
        begun.expect("they travel together")
    }

    /// The same; none if all of them had ended before they were sent, as calls do that may not take long on a machine that
    /// stands still.
    pub(crate) async fn try_set_off<T: Send + 'static>(
        &self,
        calls: Vec<Call<T>>,
    ) -> Option<Vec<JoinHandle<T>>> {
        let many = calls.len();
        // There is a connection, whatever went before.
        drop(self.client.admin().inspect("first").await);
        self.proxy.partition(true);
        self.proxy.clear_requests();
        let mut first = Box::pin(self.client.lock("first").try_acquire());
        assert!(begin(first.as_mut()), "nothing is answered now");
        tokio::spawn(first);
        let begun = calls.into_iter().map(|mut call| {
            assert!(begin(call.as_mut()), "nothing is answered now");
            tokio::spawn(call)
        });
        let begun: Vec<_> = begun.collect();
        let travel = || self.batches().contains(&many);
        eventually(PATIENCE, "they travel together", async || {
            travel() || begun.iter().all(JoinHandle::is_finished)
        })
        .await;
        travel().then_some(begun)
    }

    /// Makes these calls in one batch, over a network that is whole then, and gives their answers in the
    /// same order.
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

    pub(crate) fn acquire(&self, name: &str) -> Call<Result<Guard, Error>> {
        Box::pin(self.client.lock(name).acquire())
    }

    pub(crate) async fn hold(&self, name: &str) -> Guard {
        let held = self.client.lock(name).acquire().await;
        held.expect("it is free")
    }

    pub(crate) fn holds(&self, name: &str) -> BTreeMap<String, String> {
        self.server.hgetall(name)
    }

    /// Sooner or later this is who holds it.
    pub(crate) async fn becomes(&self, name: &str, held: &BTreeMap<String, String>) {
        eventually(
            PATIENCE,
            &format!("`{name}` becomes {held:?}"),
            async || self.holds(name) == *held,
        )
        .await;
    }
}

/// What they came to.
pub(crate) async fn ended<T>(calls: Vec<JoinHandle<T>>) -> Vec<T> {
    let mut answers = Vec::new();
    for call in calls {
        let answer = tokio::time::timeout(PATIENCE, call).await;
        let answer = answer.expect("a call comes to an end");
        answers.push(answer.expect("no panic"));
    }
    answers
}

/// Who a guard says holds the lock.
pub(crate) fn said(guard: &Guard) -> BTreeMap<String, String> {
    BTreeMap::from([(guard.owner(), guard.hold_count().to_string())])
}

/// Nothing is lost in time here unless it is said so.
const TIME_OUT: Duration = Duration::from_secs(10);
