//! Without scripts a request is many commands: futures that are dropped while any one of them is on its way.

use std::sync::{Mutex, PoisonError};

use distlock::{Error, Guard, Lease};

use super::acquiring::hold;
use super::stage::{Behind, Stage, TRIES};
use super::support::command::Command;
use super::support::{ChaosProxy, Family, Fault, Fenced, Plain, Simple, eventually, heavy};
use super::{LEASE, SOON};

mod a_future_that_is_dropped_at_any_command_leaves_nothing_behind {
    use super::*;

    #[tokio::test]
    async fn of_plain_locks() {
        sweep::<Plain>().await;
    }

    #[tokio::test]
    async fn of_simple_locks() {
        sweep::<Simple>().await;
    }

    #[tokio::test]
    async fn of_fenced_locks() {
        sweep::<Fenced>().await;
    }
}

async fn sweep<F: Family>() {
    let _heavy = heavy().await;
    let stage = Stage::<F>::redis_without_scripts().await;
    let server = stage.server.as_ref().expect("it is on a server");
    let proxy = ChaosProxy::start(server.addr());
    let stage = stage
        .by_way_of(&proxy.url(), |builder| builder.handoff_limit(0))
        .await;
    stage.is_at_rest();

    at_every_command(&stage, &proxy, "acquire", async |drops: &Drops<'_>| {
        let name = stage.name();
        let acquiring = stage.ours.lock(name.as_str()).acquire();
        drop(drops.hit(&name, acquiring).await);
        stage.is_gone(&name).await;
    })
    .await;
    at_every_command(
        &stage,
        &proxy,
        "acquire, busy",
        async |drops: &Drops<'_>| {
            let name = stage.name();
            let theirs = hold(&stage.theirs.lock(name.as_str())).await;
            let acquiring = stage.ours.lock(name.as_str()).try_acquire();
            drop(drops.hit(&name, acquiring).await);
            stage.held_by(&theirs).await;
            theirs.release().await.expect("it is theirs");
            stage.is_gone(&name).await;
        },
    )
    .await;
    at_every_command(&stage, &proxy, "re-entry", async |drops: &Drops<'_>| {
        let lock = stage.ours.one_owners(&stage.name());
        let outer = hold(&lock).await;
        // Longer, so that there is something to write, however soon it comes.
        let longer = lock.with_lease(Lease::KeepAlive(LEASE * 2));
        drop(drops.hit(outer.name(), longer.acquire()).await);
        keeps(&stage, outer).await;
    })
    .await;
    at_every_command(
        &stage,
        &proxy,
        "partial release",
        async |drops: &Drops<'_>| {
            let lock = stage.ours.one_owners(&stage.name());
            let (outer, inner) = (hold(&lock).await, hold(&lock).await);
            drops.hit(outer.name(), inner.release()).await;
            keeps(&stage, outer).await;
        },
    )
    .await;
    at_every_command(&stage, &proxy, "extension", async |drops: &Drops<'_>| {
        let lock = stage.ours.lock(stage.name());
        let guard = hold(&lock.with_lease(Lease::Fixed(LEASE))).await;
        drops.hit(guard.name(), guard.extend(LEASE * 2)).await;
        keeps(&stage, guard).await;
    })
    .await;
    at_every_command(&stage, &proxy, "release", async |drops: &Drops<'_>| {
        let name = stage.name();
        let guard = hold(&stage.ours.lock(name.as_str())).await;
        drops.hit(&name, guard.release()).await;
        stage.is_gone(&name).await;
    })
    .await;
    at_every_command(
        &stage,
        &proxy,
        "release to the next",
        async |drops: &Drops<'_>| {
            let name = stage.name();
            let lock = stage.ours.lock(name.as_str());
            let guard = hold(&lock).await;
            let next = Behind::wait(&lock);
            drops.hit(&name, guard.release()).await;
            keeps(&stage, next.gets_its_turn().await).await;
        },
    )
    .await;
}

/// It is held once, and gone when it is given back.
async fn keeps<F: Family>(stage: &Stage<F>, guard: Guard<F::Kind>) {
    let name = guard.name().to_owned();
    assert_eq!(guard.hold_count(), 1);
    stage.held_by(&guard).await;
    guard.release().await.expect("it is ours");
    stage.is_gone(&name).await;
}

/// Tells a story once to see which commands its future sends, and then once for each.
async fn at_every_command<F: Family>(
    stage: &Stage<F>,
    proxy: &ChaosProxy,
    what: &str,
    story: impl AsyncFn(&Drops<'_>),
) {
    let look = Drops {
        proxy,
        at: None,
        sent: Mutex::default(),
    };
    story(&look).await;
    let commands = look.sent.into_inner();
    let commands = commands.unwrap_or_else(PoisonError::into_inner);
    let words: Vec<_> = commands.iter().map(|command| &*command.word).collect();
    eprintln!("{what}: dropped at each of {}", words.join(" "));
    assert!(words.contains(&"WATCH"), "there is not much to be dropped");
    for command in commands {
        let drops = Drops {
            proxy,
            at: Some(command),
            sent: Mutex::default(),
        };
        story(&drops).await;
        for slow in 1.. {
            if !stage.was_slow() {
                break;
            }
            assert!(slow < TRIES, "{what}: it takes too long");
            story(&drops).await;
        }
    }
}

/// Where a future is dropped, if it is: when this command of its has been sent and has not arrived.
struct Drops<'a> {
    proxy: &'a ChaosProxy,
    at: Option<Command>,
    /// What one that was not dropped has sent.
    sent: Mutex<Vec<Command>>,
}

impl Drops<'_> {
    async fn hit<T>(
        &self,
        name: &str,
        future: impl Future<Output = Result<T, Error>> + Send,
    ) -> Option<T> {
        let Some(command) = &self.at else {
            self.proxy.clear_requests();
            let output = future.await.expect("nothing goes wrong");
            let sent = Command::all(&self.proxy.requests(), name);
            *self.sent.lock().unwrap_or_else(PoisonError::into_inner) = sent;
            return Some(output);
        };
        let before = self.proxy.injected().len();
        self.proxy.rule(command.select(name), Fault::HoldRequest);
        let what = format!("{command:?} is sent");
        let sent = eventually(SOON, &what, async || self.proxy.injected().len() > before);
        tokio::select! {
            _ = future => panic!("it has not waited for {command:?}"),
            () = sent => {}
        }
        self.proxy.clear_rules();
        self.proxy.let_go();
        None
    }
}
