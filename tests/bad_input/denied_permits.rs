//! Permits while one command is denied in the middle of any operation: no permit is lost for good, and none is made up.

#![expect(
    clippy::future_not_send,
    reason = "the cases run side by side on one thread"
)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use distlock::{Client, Error, Lease};
use tokio::task::{JoinSet, LocalSet};

use super::support::{RedisServer, eventually, rights, simulated};
use super::{PATIENCE, connect};

/// A lease that does not expire before its release, although thirty tests share one thread. The tests wait for its end.
const LEASE: Duration = Duration::from_secs(8);
const TOTAL: i64 = 3;

/// A user with all rights, until a command is denied to it.
struct User {
    server: Arc<RedisServer>,
    name: String,
    client: Client,
    /// The client of a user with all rights.
    others: Client,
}

impl User {
    async fn new(server: Arc<RedisServer>, name: String) -> Self {
        let rules = ["on", ">secret", "~*", "&*", "+@all"];
        server.cmd(&[&["ACL", "SETUSER", &name][..], &rules].concat());
        let url = format!("redis://{name}:secret@127.0.0.1:{}/", server.port());
        let (client, others) = (connect(&url).await, connect(&server.url()).await);
        Self {
            server,
            name,
            client,
            others,
        }
    }

    /// Denies (`-`) or allows (`+`) the command.
    fn may(&self, sign: char, command: &str) {
        let rule = format!("{sign}{command}");
        self.server.cmd(&["ACL", "SETUSER", &self.name, &rule]);
    }

    /// Returns the reply of one script: no state changes meanwhile.
    fn seen(&self, script: &str) -> i64 {
        let out = format!("{{{}}}:timeout", self.name);
        self.server.query(&["EVAL", script, "2", &self.name, &out])
    }
}

/// Plays a scenario once for each command that these permits and plain locks need, with that command denied and under a name of its own.
async fn with_each_denied<F>(of: Vec<String>, play: impl Fn(User, String) -> F)
where
    F: Future<Output = ()> + 'static,
{
    let server = Arc::new(RedisServer::start());
    let plain = rights::commands().into_iter().map(ToOwned::to_owned);
    let commands: BTreeSet<_> = of.into_iter().chain(plain).collect();
    let (here, mut all) = (LocalSet::new(), JoinSet::new());
    for command in commands.iter().filter_map(|rule| rule.strip_prefix('+')) {
        // Without this command the user cannot connect.
        if ["auth", "hello"].contains(&command) {
            continue;
        }
        let name = format!("without-{}", command.replace('|', "-"));
        let user = User::new(server.clone(), name).await;
        all.spawn_local_on(play(user, command.to_owned()), &here);
    }
    assert!(all.len() > 20, "the lists are there");
    here.run_until(all.join_all()).await;
}

fn error_if_denied<T>(command: &str, answer: Result<T, Error>) -> Option<T> {
    match answer {
        Ok(answer) => Some(answer),
        Err(Error::PermissionDenied { .. }) => None,
        Err(other) => panic!("without {command}: {other:?}"),
    }
}

#[test]
fn no_leased_permit_is_lost_whichever_command_is_denied() {
    simulated(async || {
        with_each_denied(rights::of_semaphores("any"), leased).await;
    });
}

async fn leased(user: User, command: String) {
    let semaphore = user.client.semaphore(&*user.name);
    let all_there = |when: &str| {
        let script = "return redis.call('GET', KEYS[1]) + redis.call('ZCARD', KEYS[2])";
        assert_eq!(user.seen(script), TOTAL, "without {command}, {when}");
    };
    let one = semaphore.permit().with_lease(Lease::Fixed(LEASE));
    semaphore.set_total(3).await.unwrap();
    let held = one.acquire().await.unwrap();
    let forgotten = one.acquire().await.unwrap();
    let id = forgotten.permit_ids()[0];
    forgotten.forget();

    user.may('-', &command);
    let taken = one.try_acquire().await;
    all_there("acquire");
    drop(error_if_denied(&command, taken));
    error_if_denied(&command, held.release().await);
    all_there("release");
    error_if_denied(&command, semaphore.release(id).await);
    all_there("give_back");
    // A permit that was not returned in time.
    let late = "return redis.call('DECRBY', KEYS[1], redis.call('ZADD', KEYS[2], 1000000000000, 'late-0123456789a'))";
    user.seen(late);
    error_if_denied(&command, semaphore.count().await);
    all_there("count");
    user.seen(late);
    drop(error_if_denied(&command, one.try_acquire().await));
    all_there("another acquire");
    let others = user.others.semaphore(&*user.name).permit();
    let another = others.with_lease(Lease::Fixed(LEASE)).try_acquire().await;
    // The permits may also all be in use already.
    if let Some(another) = another.unwrap() {
        another.forget();
    }
    let admin = user.client.admin();
    error_if_denied(&command, admin.force_release(&user.name).await);
    all_there("force_release");

    user.may('+', &command);
    eventually(PATIENCE, "they are back with their leases", async || {
        let count = semaphore.count().await.unwrap();
        assert_eq!(count.available + count.out.cast_signed(), TOTAL);
        count.out == 0
    })
    .await;
}

#[test]
fn no_counted_permit_is_lost_whichever_command_is_denied() {
    simulated(async || {
        let rules = rights::of_counting().into_iter().map(ToOwned::to_owned);
        with_each_denied(rules.collect(), counted).await;
    });
}

async fn counted(user: User, command: String) {
    let slots = user.client.counting_semaphore(&*user.name);
    let there = || user.seen("return tonumber(redis.call('GET', KEYS[1]) or -1)");
    let none_lost = async |taken: i64, when: &str| {
        let what = format!("none is lost without {command}, {when}");
        eventually(PATIENCE, &what, async || there() == TOTAL - taken).await;
    };
    slots.set_available(3).await.unwrap();
    // The waiter is queued when the command is denied.
    slots.acquire(1).await.unwrap();
    let waiting = tokio::spawn(slots.acquire(3));
    let line = format!("distlock_line:{{{}}}", user.name);
    eventually(PATIENCE, "it stands in line", async || {
        user.server.query::<i64>(&["LLEN", &line]) == 1
    })
    .await;
    user.may('-', &command);
    user.others
        .counting_semaphore(&*user.name)
        .release(1)
        .await
        .unwrap();
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    let waited = waited.expect("it is told").expect("no panic");
    let waited = error_if_denied(&command, waited).map_or(0, |()| 3);
    none_lost(waited, "in line").await;

    let others = user.others.counting_semaphore(&*user.name);
    others.add(waited).await.unwrap();
    // The acquire may find its entry still in the queue, which it could not remove.
    let taken = error_if_denied(&command, slots.try_acquire(2).await) == Some(true);
    let taken = if taken { 2 } else { 0 };
    none_lost(taken, "acquire").await;
    if taken > 0 && error_if_denied(&command, slots.release(2).await).is_none() {
        // A client that may not notify the others can release all the same.
        let left = if command == "publish" { 0 } else { taken };
        assert_eq!(there(), TOTAL - left, "without {command}");
        others.add(left).await.unwrap();
    }
    none_lost(0, "release").await;

    // Without a number, a release that succeeds must not make one.
    others.delete().await.unwrap();
    if error_if_denied(&command, slots.release(2).await).is_none() && command != "publish" {
        assert_eq!(there(), -1, "without {command}");
    }
}
