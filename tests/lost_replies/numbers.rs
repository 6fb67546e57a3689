//! Numbers without an owner: a change counts once, whatever is lost, doubled or late, and no permit is lost or made up.

use std::time::Duration;

use distlock::{Client, Error};
use tokio::time::timeout;

use super::losses::{FAULTS, LONG};
use super::server::{TestServer, client_behind};
use super::{Label, PATIENCE};
use crate::support::{ChaosProxy, Fault, Match, Plain, eventually, simulated, world};

/// The number at the beginning.
const MANY: u32 = 10;

/// A change that has no owner.
#[derive(Clone, Copy, Debug)]
enum Change {
    CountDown,
    CloseLatch,
    OpenLatch,
    Release,
    TakeAway,
    Drain,
    SetOnce,
    Set,
    Forget,
}

const CHANGES: [Change; 9] = [
    Change::CountDown,
    Change::CloseLatch,
    Change::OpenLatch,
    Change::Release,
    Change::TakeAway,
    Change::Drain,
    Change::SetOnce,
    Change::Set,
    Change::Forget,
];

impl Change {
    /// Makes the change, and returns the reply.
    async fn run(self, client: &Client, name: &str) -> Result<Option<u64>, Error> {
        let (latch, semaphore) = (client.latch(name), client.counting_semaphore(name));
        Ok(match self {
            Self::CountDown => Some(latch.count_down().await?),
            Self::CloseLatch => Some(u64::from(latch.try_set(4).await?)),
            Self::OpenLatch => Some(u64::from(latch.delete().await?)),
            Self::Release => semaphore.release(2).await.map(|()| None)?,
            Self::TakeAway => semaphore.add(-3).await.map(|()| None)?,
            Self::Drain => Some(semaphore.drain().await?),
            Self::SetOnce => Some(u64::from(semaphore.try_set(4).await?)),
            Self::Set => semaphore.set_available(5).await.map(|()| None)?,
            Self::Forget => Some(u64::from(semaphore.delete().await?)),
        })
    }

    /// Returns whether the number must not exist before the change.
    const fn begins(self) -> bool {
        matches!(self, Self::CloseLatch | Self::SetOnce)
    }

    /// Returns the reply to the nth such change, and the number that is left afterwards.
    fn expected(self, nth: u32) -> (Option<u64>, Option<i64>) {
        let first = nth == 1;
        let times = i64::from(nth);
        let many = i64::from(MANY);
        match self {
            Self::CountDown => {
                let left = (many - times).max(0);
                let told = u64::try_from(left).expect("none at least");
                (Some(told), (left > 0).then_some(left))
            }
            Self::CloseLatch | Self::SetOnce => (Some(u64::from(first)), Some(4)),
            Self::OpenLatch | Self::Forget => (Some(u64::from(first)), None),
            Self::Release => (None, Some(many + 2 * times)),
            Self::TakeAway => (None, Some(many - 3 * times)),
            Self::Drain => (Some(if first { u64::from(MANY) } else { 0 }), Some(0)),
            Self::Set => (None, Some(5)),
        }
    }
}

#[test]
fn a_change_with_any_lost_message_counts_once() {
    simulated(async || {
        let server = known().await;
        for fault in FAULTS {
            for change in CHANGES {
                for late in [false, true] {
                    let name = format!("{change:?}, {fault:?}, late: {late}");
                    let _label = Label(name.clone());
                    change_once(&server, &name, fault, change, late).await;
                }
            }
        }
    });
}

async fn change_once(server: &TestServer, name: &str, fault: Fault, change: Change, late: bool) {
    let (proxy, client) = case(server, name, !change.begins()).await;
    proxy.rule(script().nth(1), fault);
    let first = change.run(&client, name).await;
    let before = (!change.begins()).then_some(i64::from(MANY));
    // The number of times that the change may have been made.
    let possible = match first {
        Ok(told) => {
            assert_eq!((told, available(server, name)), change.expected(1));
            1..=1
        }
        Err(Error::Timeout { ref detail, .. }) => {
            assert!(detail.contains("the change may have been made"), "{detail}");
            let seen = available(server, name);
            assert!([before, change.expected(1).1].contains(&seen), "{seen:?}");
            0..=1
        }
        Err(Error::Unavailable { .. }) => 0..=0,
        Err(error) => panic!("{error:?}"),
    };
    if !late {
        proxy.deliver_held();
    }
    // From then on the first change cannot arrive any more.
    let told = change
        .run(&client, name)
        .await
        .expect("the network is whole");
    let seen = (told, available(server, name));
    let possible: Vec<_> = possible.map(|times| change.expected(times + 1)).collect();
    assert!(
        possible.contains(&seen),
        "{seen:?}, not one of {possible:?}"
    );
    proxy.deliver_held();
    eventually(PATIENCE, "it is sent", async || {
        !proxy.injected().is_empty()
    })
    .await;
    client.close().await.expect("it has nothing to release");
    assert_eq!(
        available(server, name),
        seen.1,
        "a late one was carried out"
    );
}

/// The ways to request permits.
#[derive(Clone, Copy, Debug)]
enum Ask {
    Try,
    Wait,
    Within,
    /// Requests more permits than are available, and so waits in the queue.
    TooMany,
    /// The future is dropped when the network has done wrong.
    Dropped,
}

#[test]
fn requested_permits_are_acquired_once_or_released_with_any_lost_message() {
    simulated(async || {
        let server = known().await;
        for fault in FAULTS {
            for ask in [Ask::Try, Ask::Wait, Ask::Within, Ask::TooMany, Ask::Dropped] {
                for permits in [1, 3] {
                    for nth in [1, 2] {
                        let name = format!("{ask:?} {permits}, {fault:?} of request {nth}");
                        let _label = Label(name.clone());
                        ask_once(&server, &name, fault, ask, permits, nth).await;
                    }
                }
            }
        }
    });
}

async fn ask_once(server: &TestServer, name: &str, fault: Fault, ask: Ask, permits: u32, nth: u64) {
    let (proxy, client) = case(server, name, true).await;
    let semaphore = client.counting_semaphore(name);
    proxy.rule(script().nth(nth), fault);
    let wait = LONG * 3;
    let taken = match ask {
        Ask::Try => semaphore.try_acquire(permits).await,
        Ask::Wait => semaphore.acquire(permits).await.map(|()| true),
        Ask::Within => semaphore.acquire_timeout(permits, wait).await,
        Ask::TooMany => semaphore.acquire_timeout(MANY + permits, wait).await,
        Ask::Dropped => {
            let dropped = timeout(LONG / 3, semaphore.acquire(permits)).await;
            dropped.map_or(Ok(false), |got| got.map(|()| true))
        }
    };
    // The waiter may never have sent a second request.
    proxy.clear_rules();
    let ours = match taken {
        Ok(true) => permits,
        Ok(false) | Err(Error::Timeout { .. } | Error::Unavailable { .. }) => 0,
        Err(error) => panic!("{error:?}"),
    };
    assert!(
        ours == 0 || !matches!(ask, Ask::TooMany),
        "there are too few"
    );
    let left = i64::from(MANY - ours);
    eventually(PATIENCE, "the others are available", async || {
        available(server, name) == Some(left)
    })
    .await;
    proxy.deliver_held();
    if nth == 1 {
        eventually(PATIENCE, "it is sent", async || {
            !proxy.injected().is_empty()
        })
        .await;
    }
    client.close().await.expect("it has released what it could");
    assert_eq!(
        available(server, name),
        Some(left),
        "a late one was carried out"
    );
    // No waiter of ours is in the queue any more: the next caller gets the permits.
    let rest = server.other.counting_semaphore(name);
    assert!(rest.try_acquire(MANY - ours).await.unwrap());
}

/// Random requests over a network with random faults: permits in use and available permits always add up to the total.
#[test]
fn permits_are_conserved_in_every_random_walk() {
    simulated(async || {
        let server = known().await;
        for number in 0..60 {
            let name = format!("walk-{number}");
            let _label = Label(name.clone());
            walk(&server, &name).await;
        }
    });
}

async fn walk(server: &TestServer, name: &str) {
    let world = world();
    let (proxy, client) = case(server, name, true).await;
    let ours = client.counting_semaphore(name);
    let theirs = server.other.counting_semaphore(name);
    // The permits that each client holds for certain, and the permits that may have been released.
    let (mut mine, mut other, mut maybe) = (0, 0, 0);
    for step in 0..12 {
        proxy.clear_rules();
        if world.percent(70) {
            let fault = FAULTS[usize::try_from(world.below(7)).expect("few")];
            proxy.rule(script().nth(1 + world.below(2)), fault);
        }
        if world.percent(10) {
            proxy.cut_all();
        }
        let many = 1 + u32::try_from(world.below(4)).expect("a few");
        match world.below(10) {
            0..3 => {
                let got = ours.try_acquire(many).await;
                mine += got.map_or(0, |got| if got { many } else { 0 });
            }
            3..5 => {
                let wait = Duration::from_millis(50 + world.below(400));
                let got = ours.acquire_timeout(many, wait).await;
                mine += got.map_or(0, |got| if got { many } else { 0 });
            }
            5..7 => {
                let wait = Duration::from_millis(world.below(300));
                let got = timeout(wait, ours.acquire(many)).await;
                mine += got.map_or(0, |got| got.map_or(0, |()| many));
            }
            7..9 if mine > 0 => {
                let many = many.min(mine);
                match ours.release(many).await {
                    Ok(()) => mine -= many,
                    Err(Error::Timeout { .. }) => {
                        mine -= many;
                        maybe += many;
                    }
                    Err(Error::Unavailable { .. }) => {}
                    Err(error) => panic!("step {step}: {error:?}"),
                }
            }
            _ if other > 0 && world.percent(60) => {
                theirs.release(other).await.unwrap();
                other = 0;
            }
            _ => other += u32::from(theirs.try_acquire(1).await.unwrap()),
        }
        let there = available(server, name).expect("nobody forgets it");
        let most = i64::from(MANY - mine - other);
        assert!(
            (0..=most).contains(&there),
            "step {step}: {there} of {most}"
        );
    }
    proxy.clear_rules();
    proxy.deliver_held();
    client
        .close()
        .await
        .expect("it gives back what it did not get");
    let most = i64::from(MANY - mine - other);
    let least = most - i64::from(maybe);
    let there = available(server, name).expect("nobody forgets it");
    assert!(
        (least..=most).contains(&there),
        "{there}, not {least} to {most}"
    );
}

/// Returns a server that knows every script before the network does wrong.
async fn known() -> TestServer {
    let server: TestServer = TestServer::start().await;
    for change in CHANGES {
        let known = change.run(&server.other, "known").await;
        known.expect("the network is whole");
        server.redis.cmd(&["DEL", "known"]);
    }
    let known = server.other.counting_semaphore("known");
    known.release(1).await.expect("the network is whole");
    drop(timeout(LONG, known.acquire(2)).await);
    server
}

/// Returns a client behind a proxy, and creates the number to change, if `set`.
async fn case(server: &TestServer, name: &str, set: bool) -> (ChaosProxy, Client) {
    if set {
        server.redis.cmd(&["SET", name, &MANY.to_string()]);
    }
    let proxy = server.proxy();
    let client = client_behind::<Plain>(&proxy, "").await;
    let client: Client = (*client).clone();
    (proxy, client)
}

fn available(server: &TestServer, name: &str) -> Option<i64> {
    server.redis.query(&["GET", name])
}

fn script() -> Match {
    Match::command("EVALSHA")
}
