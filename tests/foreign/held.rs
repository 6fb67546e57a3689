//! Guards whose lock's key was replaced by another program's data while they held the lock.

use std::time::Duration;

use distlock::{Client, Error, Lease, Lock, Member, MultiLock, QuorumLock, Read, Write};

use super::PATIENCE;
use super::corpus::{LIKE_PERMITS, Shape, shapes};
use super::outcome::{Outcome, returned};
use super::stage::Stage;

/// The operations of guards that this file tests.
pub(crate) const COVERS: &[&str] = &[
    "Guard::release",
    "Guard::extend",
    "Guard::forget",
    "Guard::try_upgrade",
    "Guard::downgrade",
    "MultiGuard::release",
    "MultiGuard::extend",
    "MultiGuard::forget",
    "QuorumGuard::release",
    "QuorumGuard::extend",
    "QuorumGuard::forget",
];

#[tokio::test]
async fn no_guard_changes_data_that_replaced_its_lock() {
    replace_everything("").await;
}

#[tokio::test]
async fn no_guard_without_scripts_changes_data_that_replaced_its_lock() {
    replace_everything("?scripts=off").await;
}

async fn replace_everything(parameters: &str) {
    let mut play = Play {
        stage: Stage::start(),
        number: 0,
    };
    if !parameters.is_empty() {
        // Without scripts the names of up to 17 fields are sent, whole.
        play.stage.most_sent = 16 << 20;
    }
    let client = play.stage.client(parameters).await;
    let peers = [(); 2].map(|()| Client::connect("memory:"));
    let [one, two] = peers;
    let peers = [one.await.expect("memory"), two.await.expect("memory")];
    for shape in shapes() {
        play.lock(shape, "plain", |name| client.lock(name)).await;
        play.twice(shape, &client).await;
        let fenced = |name: &str| client.fenced_lock(name);
        play.lock(shape, "fenced", fenced).await;
        let simple = |name: &str| client.simple_lock(name);
        play.lock(shape, "simple", simple).await;
        play.several(shape, "plain", &client, |name| client.lock(name))
            .await;
        play.several(shape, "fenced", &client, fenced).await;
        play.several(shape, "simple", &client, simple).await;
        let clients = [&client, &peers[0], &peers[1]];
        play.quorum(shape, clients, |client, name| client.lock(name))
            .await;
        play.quorum(shape, clients, |client, name| client.simple_lock(name))
            .await;
        // The others need scripts.
        if parameters.is_empty() {
            let fair = |name: &str| client.fair_lock(name);
            play.lock(shape, "fair", fair).await;
            play.several(shape, "fair", &client, fair).await;
            play.sides(shape, &client).await;
            play.permits(shape, &client).await;
        }
    }
    drop(client.close().await);
    play.stage.end();
}

struct Play {
    stage: Stage,
    number: u32,
}

impl Play {
    fn name(&mut self) -> String {
        self.number += 1;
        format!("held:{}", self.number)
    }

    /// Plays the operations of a guard on a lock of any kind.
    async fn lock<K: 'static>(
        &mut self,
        shape: &Shape,
        kind: &str,
        lock: impl Fn(&str) -> Lock<K>,
    ) {
        let name = self.name();
        let guard = lock(&name).acquire().await.expect("it is free");
        self.with(shape, &name, &format!("{kind}: release"), async {
            guard.release().await.into()
        })
        .await;

        let name = self.name();
        let fixed = lock(&name).with_lease(Lease::Fixed(LEASE));
        let guard = fixed.acquire().await.expect("it is free");
        self.with(shape, &name, &format!("{kind}: extend"), async {
            let extended = guard.extend(2 * LEASE).await.into();
            guard.forget();
            extended
        })
        .await;
    }

    /// Plays the operations of an owner that holds a lock twice.
    async fn twice(&mut self, shape: &Shape, client: &Client) {
        let (name, owner) = (self.name(), client.new_owner());
        let lock = client.lock(&*name).with_owner(&owner);
        let outer = lock.acquire().await.expect("it is free");
        let inner = lock.acquire().await.expect("it is held by this owner");
        self.with(shape, &name, "plain: release one of two", async {
            let again = lock.try_acquire().await.map(|again| again.is_some());
            let released = inner.release().await;
            outer.forget();
            worst([again.into(), released.into()])
        })
        .await;
    }

    /// Plays the operations of readers and writers.
    async fn sides(&mut self, shape: &Shape, client: &Client) {
        let (read, write) = (
            |name: &str| client.rw_lock(name).read(),
            |name: &str| client.rw_lock(name).write(),
        );
        self.lock(shape, "read", read).await;
        self.lock(shape, "write", write).await;
        self.several(shape, "read", client, read).await;
        self.several(shape, "write", client, write).await;

        let name = self.name();
        let lock: Lock<Read> = client.rw_lock(&*name).read();
        let reader = lock.acquire().await.expect("it is free");
        self.with(shape, &name, "read: upgrade", async {
            let upgraded = reader.try_upgrade().await.map(|writer| writer.is_some());
            reader.forget();
            upgraded.into()
        })
        .await;

        let name = self.name();
        let lock: Lock<Write> = client.rw_lock(&*name).write();
        let writer = lock.acquire().await.expect("it is free");
        self.with(shape, &name, "write: downgrade", async {
            writer.downgrade().await.map(drop).into()
        })
        .await;
    }

    /// Plays the operations of permits. They have two keys, and either may be replaced. The key of the number may be replaced by another
    /// number.
    async fn permits(&mut self, shape: &Shape, client: &Client) {
        if !self.stage.is_integer(shape.key) {
            let permits = |name: &str| client.semaphore(name).with_permits(5).permits(2);
            self.several(shape, "permits", client, permits).await;
        }
        for of_number in [true, false] {
            if of_number && self.stage.is_integer(shape.key)
                || !of_number && shape.key == LIKE_PERMITS
            {
                continue;
            }
            let name = self.name();
            let semaphore = client.semaphore(&*name).with_permits(5);
            let fixed = semaphore.permits(2).with_lease(Lease::Fixed(LEASE));
            let guard = fixed.acquire().await.expect("there are five");
            let other = semaphore.permit().acquire().await.expect("there are three");
            let out = format!("{{{name}}}:timeout");
            let key = if of_number { &name } else { &out };
            self.with(shape, key, "permits", async {
                let extended = guard.extend(2 * LEASE).await.into();
                let released = guard.release().await.into();
                let id = other.permit_ids()[0];
                let by_id = semaphore.release(id).await.into();
                let other = other.release().await.into();
                worst([extended, released, by_id, other])
            })
            .await;
        }
    }

    /// Plays the operations of a guard of several locks, one of which is of this kind.
    async fn several<K: 'static>(
        &mut self,
        shape: &Shape,
        kind: &str,
        client: &Client,
        lock: impl Fn(&str) -> Lock<K>,
    ) {
        for extends in [false, true] {
            let (name, free) = (self.name(), self.name());
            let members = [lock(&name).into(), client.lock(&*free).into()];
            let lock = MultiLock::new(members).with_lease(Lease::Fixed(LEASE));
            let guard = lock.acquire().await.expect("both are free");
            self.with(shape, &name, &format!("several, {kind}"), async {
                if !extends {
                    return guard.release().await.into();
                }
                let extended = guard.extend(2 * LEASE).await;
                guard.forget();
                extended.into()
            })
            .await;
        }
    }

    /// Plays the operations of a guard that two other servers have granted, too.
    async fn quorum<K: 'static>(
        &mut self,
        shape: &Shape,
        clients: [&Client; 3],
        lock: impl Fn(&Client, &str) -> Lock<K>,
    ) {
        for extends in [false, true] {
            let name = self.name();
            let members = clients.map(|client| Member::from(lock(client, &name)));
            // A server that has just started has no vote for this long.
            let lock = QuorumLock::new(members).with_lease(Lease::Fixed(SHORT));
            let lock = lock.with_longest_lease(2 * SHORT);
            let guard = lock.acquire().await.expect("two others grant it");
            self.with(shape, &name, "quorum", async {
                if !extends {
                    return quietly(guard.release().await);
                }
                let extended = guard.extend(2 * SHORT).await;
                guard.forget();
                quietly(extended)
            })
            .await;
        }
    }

    /// Puts a key of the corpus under another name during an operation.
    async fn with(
        &mut self,
        shape: &Shape,
        name: &str,
        what: &str,
        doing: impl Future<Output = Outcome>,
    ) {
        self.stage.rename(shape.key, name);
        let what = format!("{what}, replaced by `{}`", shape.key);
        let before = self.stage.reading();
        let outcome = returned(doing, PATIENCE).await;
        if !matches!(outcome, Outcome::Refused | Outcome::Nothing) {
            self.stage.fail(format!("{what}: {outcome:?}"));
        }
        let cost = before.until(self.stage.reading());
        self.stage.bounded(&what, cost);
        self.stage.rename(name, shape.key);
        if cost.writes > 0 {
            self.stage.unchanged(&what, &[shape.key]);
        }
    }
}

/// Returns the outcome for a quorum, which holds its lock on the other servers.
fn quietly(result: Result<(), Error>) -> Outcome {
    match result {
        Ok(()) => Outcome::Nothing,
        Err(error) => error.into(),
    }
}

/// Returns the outcome that must not occur, if there is one.
fn worst<const N: usize>(outcomes: [Outcome; N]) -> Outcome {
    let is_well = |outcome: &Outcome| matches!(outcome, Outcome::Refused | Outcome::Nothing);
    let mut outcomes = outcomes.into_iter();
    outcomes
        .find(|outcome| !is_well(outcome))
        .unwrap_or(Outcome::Nothing)
}

const LEASE: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_secs(4);
