//! Numbers that are nobody's: a change counts once, whatever is lost, doubled or late, and no permit is lost or made up.

use std::fmt::Debug;
use std::rc::Rc;
use std::time::Duration;

use distlock::{Client, Error};
use tokio::task::LocalSet;

use super::cases::play_all;
use super::support::{ChaosProxy, Fault, Match, Plain, SeededRng, eventually, heavy};
use super::world::{World, client_behind};
use super::{AT_ONCE, PATIENCE};

/// More than a command may take.
const LONG: Duration = Duration::from_millis(300);

pub(crate) const FAULTS: [Fault; 7] = [
    Fault::CutAfter,
    Fault::CutBefore,
    Fault::DelayReply(LONG),
    Fault::DelayRequest(LONG),
    Fault::DuplicateRequest,
    Fault::HoldReply,
    Fault::HoldRequest,
];

/// What there is to begin with.
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
    /// Carries it out, and says what it was told.
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
            Self::Set => semaphore.set(5).await.map(|()| None)?,
            Self::Forget => Some(u64::from(semaphore.delete().await?)),
        })
    }

    /// Whether there is nothing before it.
    const fn begins(self) -> bool {
        matches!(self, Self::CloseLatch | Self::SetOnce)
    }

    /// What is told to who does it for the nth time, and what there is afterwards.
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

#[tokio::test]
async fn a_change_counts_once_whatever_is_lost_of_it() {
    let mut cases = Vec::new();
    for fault in FAULTS {
        for change in CHANGES {
            for late in [false, true] {
                cases.push((fault, change, late));
            }
        }
    }
    at_once(
        cases,
        async |world: &World, number, (fault, change, late)| {
            let name = format!("{change:?}-{number}");
            let what = format!("{change:?}, {fault:?}, late: {late}");
            prepare(world, &name, !change.begins()).await;
            let (proxy, client) = behind(world).await;
            proxy.rule(script().nth(1), fault);
            // If that is too slow to be sent, another is met.
            let first = change.run(&client, &name).await;
            let before = (!change.begins()).then_some(i64::from(MANY));
            // How often it was done for certain, and at most.
            let (mut least, mut most) = (0, 0);
            match first {
                Ok(told) => {
                    assert_eq!(
                        (told, there(world, &name).await),
                        change.expected(1),
                        "{what}"
                    );
                    (least, most) = (1, 1);
                }
                Err(Error::Timeout { ref detail, .. }) => {
                    assert!(detail.contains("it may have been done"), "{what}: {detail}");
                    let there = there(world, &name).await;
                    let once = change.expected(1).1;
                    assert!([before, once].contains(&there), "{what}: {there:?}");
                    most = 1;
                }
                Err(Error::Unavailable { .. }) => {}
                Err(error) => panic!("{what}: {error:?}"),
            }
            if !late {
                proxy.let_go();
            }
            // Once more; a busy machine may be too slow for a command's time, and then it counts, too.
            let told = loop {
                most += 1;
                match change.run(&client, &name).await {
                    Ok(told) => break told,
                    Err(Error::Timeout { .. }) if most < 50 => {}
                    Err(error) => panic!("{what}: the network is whole: {error:?}"),
                }
            };
            least += 1;
            // From now on nothing of those before can come any more.
            let seen = (told, there(world, &name).await);
            let possible: Vec<_> = (least..=most).map(|nth| change.expected(nth)).collect();
            assert!(
                possible.contains(&seen),
                "{what}: {seen:?}, not one of {possible:?}"
            );
            proxy.let_go();
            eventually(PATIENCE, &what, async || !proxy.injected().is_empty()).await;
            client.close().await.expect("it has nothing to give back");
            assert_eq!(
                there(world, &name).await,
                seen.1,
                "{what}: a late one was carried out"
            );
        },
    )
    .await;
}

/// How permits are asked for.
#[derive(Clone, Copy, Debug)]
enum Ask {
    Try,
    Wait,
    Within,
    /// Stands in line meanwhile: there are too few.
    TooMany,
    /// The future is dropped when the network has done wrong.
    Dropped,
}

#[tokio::test]
async fn permits_that_were_asked_for_are_taken_once_or_given_back_whatever_is_lost() {
    let mut cases = Vec::new();
    for fault in FAULTS {
        for ask in [Ask::Try, Ask::Wait, Ask::Within, Ask::TooMany, Ask::Dropped] {
            for permits in [1, 3] {
                for nth in [1, 2] {
                    cases.push((fault, ask, permits, nth));
                }
            }
        }
    }
    at_once(
        cases,
        async |world: &World, number, (fault, ask, permits, nth)| {
            let name = format!("permits-{number}");
            let what = format!("{ask:?} {permits}, {fault:?} of request {nth}");
            prepare(world, &name, true).await;
            let (proxy, client) = behind(world).await;
            let semaphore = client.counting_semaphore(&*name);
            proxy.rule(script().nth(nth), fault);
            let wait = Duration::from_millis(700);
            let taken = match ask {
                Ask::Try => semaphore.try_acquire(permits).await,
                Ask::Wait => semaphore.acquire(permits).await.map(|()| true),
                Ask::Within => semaphore.acquire_timeout(permits, wait).await,
                Ask::TooMany => semaphore.acquire_timeout(MANY + permits, wait).await,
                Ask::Dropped => {
                    let dropped = tokio::time::timeout(LONG / 3, semaphore.acquire(permits)).await;
                    dropped.map_or(Ok(false), |got| got.map(|()| true))
                }
            };
            if nth > 1 {
                // It may never have come to that.
                proxy.clear_rules();
            }
            let ours = match taken {
                Ok(true) => permits,
                Ok(false) => 0,
                Err(Error::Timeout { .. } | Error::Unavailable { .. }) => 0,
                Err(error) => panic!("{what}: {error:?}"),
            };
            assert!(
                !matches!(ask, Ask::TooMany) || ours == 0,
                "{what}: there are too few"
            );
            let left = i64::from(MANY - ours);
            eventually(PATIENCE, &what, async || {
                there(world, &name).await == Some(left)
            })
            .await;
            proxy.let_go();
            if nth == 1 {
                // A late one has come by now.
                eventually(PATIENCE, &what, async || !proxy.injected().is_empty()).await;
            }
            client
                .close()
                .await
                .expect("it has given back what it could");
            assert_eq!(
                there(world, &name).await,
                Some(left),
                "{what}: a late one was carried out"
            );
            // Nobody of ours stands in line any more: whoever comes next gets them.
            let rest = world.other.counting_semaphore(&*name);
            assert!(rest.try_acquire(MANY - ours).await.unwrap(), "{what}");
        },
    )
    .await;
}

/// Random questions over a network that does wrong at random: what is out and what is in are what there was, always.
#[tokio::test]
async fn permits_are_conserved_in_every_random_walk() {
    let mut rng = SeededRng::from_env_or(0x7065_726d_6974_0001);
    let walks: Vec<u64> = (0..60).map(|_| rng.next_u64()).collect();
    at_once(walks, async |world: &World, number, seed| {
        let mut rng = SeededRng::new(seed);
        let name = format!("walk-{number}");
        prepare(world, &name, true).await;
        let (proxy, client) = behind(world).await;
        let ours = client.counting_semaphore(&*name);
        let theirs = world.other.counting_semaphore(&*name);
        // What each has for certain, and what may have been given back.
        let (mut mine, mut other, mut maybe) = (0, 0, 0);
        for step in 0..12 {
            proxy.clear_rules();
            if rng.chance(70) {
                let fault = *rng.pick(&FAULTS);
                proxy.rule(script().nth(1 + rng.below(2)), fault);
            }
            if rng.chance(10) {
                proxy.cut_all();
            }
            let many = 1 + u32::try_from(rng.below(4)).expect("a few");
            match rng.below(10) {
                0..3 => {
                    let got = ours.try_acquire(many).await;
                    mine += got.map_or(0, |got| if got { many } else { 0 });
                }
                3..5 => {
                    let wait = Duration::from_millis(50 + rng.below(400));
                    let got = ours.acquire_timeout(many, wait).await;
                    mine += got.map_or(0, |got| if got { many } else { 0 });
                }
                5..7 => {
                    let wait = Duration::from_millis(rng.below(300));
                    let got = tokio::time::timeout(wait, ours.acquire(many)).await;
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
                        Err(error) => panic!("seed {seed}, step {step}: {error:?}"),
                    }
                }
                _ if other > 0 && rng.chance(60) => {
                    theirs.release(other).await.unwrap();
                    other = 0;
                }
                _ => other += u32::from(theirs.try_acquire(1).await.unwrap()),
            }
            let there = there(world, &name).await.expect("nobody forgets it");
            let most = i64::from(MANY - mine - other);
            assert!(
                (0..=most).contains(&there),
                "seed {seed}, step {step}: {there} of {most}"
            );
        }
        proxy.clear_rules();
        proxy.let_go();
        client
            .close()
            .await
            .expect("it gives back what it did not get");
        let most = i64::from(MANY - mine - other);
        let least = most - i64::from(maybe);
        let there = there(world, &name).await.expect("nobody forgets it");
        assert!(
            (least..=most).contains(&there),
            "seed {seed}: {there}, not {least} to {most}"
        );
    })
    .await;
}

/// All of them, some at a time, on one server.
async fn at_once<C: Copy + Debug + 'static>(
    cases: Vec<C>,
    play: impl AsyncFn(&World, usize, C) + Copy + 'static,
) {
    let _heavy = heavy().await;
    let all = async move {
        let world: Rc<World> = Rc::new(World::start().await);
        // The server knows every script before the network does wrong.
        for change in CHANGES {
            let known = change.run(&world.other, "known").await;
            known.expect("the network is whole");
            world.server.cmd(&["DEL", "known"]);
        }
        let known = world.other.counting_semaphore("known");
        known.release(1).await.expect("the network is whole");
        drop(tokio::time::timeout(LONG, known.acquire(2)).await);
        play_all(AT_ONCE, cases, async move |number, case| {
            play(&world, number, case).await
        })
        .await;
    };
    LocalSet::new().run_until(all).await;
}

async fn prepare(world: &World, name: &str, set: bool) {
    if set {
        let set = redis::cmd("SET").arg(name).arg(MANY).clone();
        world.ask::<()>(&set).await;
    }
}

async fn there(world: &World, name: &str) -> Option<i64> {
    world.ask(redis::cmd("GET").arg(name)).await
}

async fn behind(world: &World) -> (ChaosProxy, Client) {
    let proxy = world.server.proxy();
    let client = client_behind::<Plain>(&proxy.url()).await;
    let client: Client = (*client).clone();
    (proxy, client)
}

fn script() -> Match {
    Match::command("EVALSHA")
}
