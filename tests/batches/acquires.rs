//! Batches of nothing but acquires.

use std::collections::BTreeMap;
use std::time::Duration;

use distlock::{Client, Error, Guard, Lease};
use tokio::task::JoinSet;

use super::support::batch::{BATCH, apart, is_batch};
use super::support::{ChaosProxy, Fault, Match, RedisServer, eventually};
use super::{LEASE, PATIENCE};

/// A server, a network before it, and one client of which a call is always under way, so that all others
/// travel together.
struct World {
    server: RedisServer,
    proxy: ChaosProxy,
    client: Client,
}

impl World {
    async fn start() -> Self {
        let server = RedisServer::start();
        Self::on(server, Client::builder).await
    }

    async fn on(server: RedisServer, builder: impl Fn(&str) -> distlock::ClientBuilder) -> Self {
        server.cmd(&["SCRIPT", "LOAD", &BATCH]);
        let proxy = ChaosProxy::start(server.addr());
        let client = builder(&proxy.url())
            .command_timeout(TIME_OUT)
            .default_lease(Lease::Fixed(LEASE))
            .connect()
            .await
            .expect("the server is up");
        let world = Self {
            server,
            proxy,
            client,
        };
        // Scripts are known before anything is counted or goes wrong.
        drop(world.client.lock("warm").acquire().await);
        eventually(PATIENCE, "all is quiet", async || world.held().is_empty()).await;
        world
    }

    /// Sets these off while another call waits for its answer.
    async fn acquire(&self, names: &[String]) -> JoinSet<(String, Result<Guard, Error>)> {
        let busy = Match::words(|words| words.iter().any(|word| word == b"first"));
        self.proxy.rule(busy, Fault::DelayReply(TIME_OUT / 4));
        let first = tokio::spawn(self.client.lock("first").acquire());
        eventually(PATIENCE, "one is under way", async || {
            let sent = self.proxy.requests().into_iter();
            sent.flatten().any(|word| word == "first")
        })
        .await;
        let mut acquiring = JoinSet::new();
        for name in names {
            let (name, lock) = (name.clone(), self.client.lock(name.as_str()));
            acquiring.spawn(async move { (name, lock.acquire().await) });
        }
        tokio::spawn(async move { drop(first.await) });
        acquiring
    }

    /// Who holds what.
    fn held(&self) -> BTreeMap<String, String> {
        let keys = self.server.keys().into_iter();
        let locks = keys.filter(|key| !key.starts_with("distlock_"));
        let holder = |key: String| {
            let (owner, count) = self.server.hgetall(&key).into_iter().next()?;
            assert_eq!(count, "1", "{key}");
            Some((key, owner))
        };
        locks.filter_map(holder).collect()
    }

    fn batches(&self) -> Vec<usize> {
        let sent = self.proxy.requests().into_iter();
        let batches = sent.filter(|words| is_batch(words));
        batches.map(|words| apart(words).len()).collect()
    }
}

fn names() -> Vec<String> {
    (0..MANY).map(|number| format!("stock-{number}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_becomes_of_a_batch_the_store_has_what_the_guards_say() {
    for fault in [
        Fault::CutAfter,
        Fault::CutBefore,
        Fault::DelayReply(2 * TIME_OUT),
        Fault::DelayRequest(2 * TIME_OUT),
        Fault::DuplicateRequest,
        Fault::HoldReply,
        Fault::HoldRequest,
    ] {
        let world = World::start().await;
        let batch = Match::words(is_batch);
        world.proxy.rule(batch.nth(1), fault);
        let acquired = world.acquire(&names()).await.join_all().await;
        let mut guards = BTreeMap::new();
        for (name, outcome) in acquired {
            match outcome {
                Ok(guard) => drop(guards.insert(name, guard)),
                Err(Error::Timeout { .. } | Error::Unavailable { .. }) => {}
                Err(error) => panic!("{fault:?}: {error}"),
            }
        }
        let said: BTreeMap<_, _> = guards
            .iter()
            .map(|(name, guard)| (name.clone(), guard.owner()))
            .collect();
        assert!(
            world.batches().into_iter().max() > Some(MANY / 2),
            "{fault:?}"
        );
        let what = format!("{fault:?}: {} are held", said.len());
        eventually(PATIENCE, &what, async || world.held() == said).await;
        // What was on its way all the time arrives now, and finds itself undone.
        world.proxy.let_go();
        tokio::time::sleep(TIME_OUT).await;
        eventually(PATIENCE, &what, async || world.held() == said).await;
        for (_, guard) in guards {
            guard.release().await.expect("it is ours");
        }
        eventually(PATIENCE, "all are free", async || world.held().is_empty()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_that_go_while_their_batch_is_under_way_leave_nothing_behind() {
    let world = World::start().await;
    let batch = Match::words(is_batch);
    world
        .proxy
        .rule(batch.nth(1), Fault::DelayReply(TIME_OUT / 2));
    let mut acquiring = world.acquire(&names()).await;
    eventually(PATIENCE, "they are on their way", async || {
        world.batches().iter().sum::<usize>() >= MANY
    })
    .await;
    acquiring.shutdown().await;
    eventually(PATIENCE, "all are free", async || world.held().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_the_wrong_type_in_a_batch_is_its_own_callers_trouble() {
    let world = World::start().await;
    world.server.cmd(&["SET", "stock-3", "theirs"]);
    for (name, outcome) in world.acquire(&names()).await.join_all().await {
        if name == "stock-3" {
            let error = outcome.expect_err("it is no lock");
            assert!(matches!(error, Error::WrongKind { .. }), "{error:?}");
        } else {
            outcome
                .expect("it is free")
                .release()
                .await
                .expect("it is ours");
        }
    }
    assert!(world.batches().into_iter().max() > Some(MANY / 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_we_may_not_touch_in_a_batch_is_its_own_callers_trouble() {
    let server = RedisServer::start();
    let user = "ACL SETUSER worker on >secret +@all &* ~stock-?* ~first ~warm ~distlock*";
    server.cmd(&user.split(' ').collect::<Vec<_>>());
    let world = World::on(server, |url| {
        Client::builder(&url.replace("redis://", "redis://worker:secret@"))
    })
    .await;
    let mut names = names();
    names.push("not-for-us".into());
    for (name, outcome) in world.acquire(&names).await.join_all().await {
        if name == "not-for-us" {
            let error = outcome.expect_err("it may not");
            assert!(matches!(error, Error::PermissionDenied { .. }), "{error:?}");
        } else {
            outcome
                .expect("it is free")
                .release()
                .await
                .expect("it is ours");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_callers_need_few_calls_and_one_needs_two() {
    let world = World::start().await;
    let calls = || world.server.commandstats("evalsha");
    let before = calls();
    let guard = world
        .client
        .lock("one")
        .acquire()
        .await
        .expect("it is free");
    guard.release().await.expect("it is ours");
    assert_eq!(calls() - before, 2);

    let before = calls();
    let mut cycles = JoinSet::new();
    for number in 0..256 {
        let lock = world.client.lock(format!("many-{number}"));
        cycles.spawn(async move {
            for _ in 0..10 {
                let guard = lock.acquire().await.expect("it is free");
                guard.release().await.expect("it is ours");
            }
        });
    }
    cycles.join_all().await;
    let calls = calls() - before;
    eprintln!("{calls} calls for {} cycles", 256 * 10);
    assert!(calls < 256 * 10, "{calls} calls");
}

const MANY: usize = 30;
const TIME_OUT: Duration = Duration::from_secs(1);
