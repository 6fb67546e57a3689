//! Scenarios beyond a single lock: nested guards, clients that close, numbers, several locks, quorums.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use distlock::{Client, Error, Lease, MultiLock, QuorumLock};
use distlock_sim::{Clock, MessageFault, Random, Server};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::{
    BUSY, FAULTS, NAME, STRICT, is_free, let_faults_happen, lock_of, millis, number, owner_of,
    seconds, servers_of, watch,
};
use crate::faults::{FaultKind, Schedule};
use crate::judge::{Claim, Judge, Ledger};
use crate::scenario::{Run, Scenario};
use crate::store::Store;
use crate::workload::{Grant, Kind, Limit, Subject, View};
use crate::world::{HOST, World};

/// Returns all of these scenarios.
pub(super) fn scenarios() -> Vec<Scenario> {
    let draw = |seed: u64, kinds: &[FaultKind]| {
        let names = [0, 1, 2].map(|number| format!("client-{number}"));
        Schedule::generate(&mut Random::stream(seed, 1), BUSY, kinds, &names, 1)
    };
    vec![
        Scenario::new("nested", nested),
        // Half of the seeds have no faults: they show the effects of many concurrent requests.
        Scenario::new("fresh-names", fresh_names).with_faults(
            FAULTS,
            move |seed, kinds| match seed % 2 {
                0 => draw(seed, kinds),
                _ => Schedule::default(),
            },
        ),
        Scenario::new("closing", closing),
        Scenario::new("permit-counts", permit_counts).with_faults(FAULTS, draw),
        Scenario::new("latches", latches),
        Scenario::new("quorum-restarts", quorum_restarts),
        Scenario::new("several", several),
        Scenario::new("readers-and-writers", readers_and_writers),
        Scenario::new("max-hold", max_hold),
    ]
}

async fn clients(world: &World, count: usize) -> Vec<(String, Client)> {
    let mut clients = Vec::new();
    for number in 0..count {
        let name = format!("client-{number}");
        let client = world.client(&name).connect().await;
        clients.push((name, client.expect("nothing is wrong yet")));
    }
    clients
}

/// Waits for all of these tasks.
async fn ended(mut working: JoinSet<()>, ledger: &Ledger) {
    let all = timeout(seconds(120), async {
        while let Some(ended) = working.join_next().await {
            ended.expect("a task does not panic");
        }
    });
    if all.await.is_err() {
        let what = "a call has not ended two minutes after the last fault";
        ledger.violation(Judge::Resolution, what);
    }
}

/// Nests guards of one owner, with leases of their own and lost replies.
async fn nested(run: Run) {
    let Run {
        world,
        seed,
        ledger,
        ..
    } = run.clone();
    let random = &mut Random::stream(seed, 2);
    let (_, client) = clients(&world, 1).await.remove(0);
    let servers = servers_of(&run);
    let watch = watch(ledger.clone(), servers.clone(), Kind::Plain, STRICT);
    let watching = tokio::spawn(watch);
    ledger.look_into(Store::new(servers.clone()), Kind::Plain);
    for _ in 0..6 {
        let owner = client.new_owner();
        let outer = [Lease::Fixed(seconds(40)), Lease::KeepAlive(seconds(6))];
        let outer = outer[usize::from(random.percent(50))];
        let lock = client.lock("stock").with_owner(&owner);
        let Ok(guard) = lock.clone().with_lease(outer).acquire().await else {
            continue;
        };
        let view = guard.view();
        let entry = ledger.enter("client-0", Claim::Alone, seconds(40), &view);
        let store = Store::new(servers.clone());
        ledger.follow(entry, Kind::Plain, store, Duration::ZERO);
        for _ in 0..random.below(3) {
            let fault = match random.below(6) {
                0 => Some((MessageFault::Cut, "client-0", HOST)),
                1 => Some((MessageFault::CutAfter, "client-0", HOST)),
                2 => Some((MessageFault::Cut, HOST, "client-0")),
                // The stalled message arrives when no caller waits for it any more.
                3 | 4 => Some((MessageFault::Stall(seconds(4)), "client-0", HOST)),
                _ => None,
            };
            if let Some((fault, from, to)) = fault {
                run.fault(fault);
                world.network.fault_next(from, to, fault);
            }
            let lease = Lease::KeepAlive(seconds(3));
            let inner = lock.clone().with_lease(lease).acquire_timeout(seconds(1));
            if let Ok(Some(inner)) = inner.await {
                sleep(random.up_to(seconds(3))).await;
                match random.percent(50) {
                    true => drop(inner),
                    false => drop(inner.release().await),
                }
            }
        }
        sleep(seconds(6)).await;
        if !view.is_held() {
            ledger.violation(Judge::Loss, "a lock was lost for no reason");
        }
        let count = world
            .server
            .call(&[b"HGET", NAME, owner_of(&*view).as_bytes()]);
        if view.is_held() && number(&count) != 1 {
            let what = format!("one guard was left, and the store counts {count:?}");
            ledger.violation(Judge::Counts, what);
        }
        let releasing = ledger.release(entry);
        let released = guard.release().await;
        releasing.ended(&released);
        sleep(seconds(4)).await;
        if released.is_ok() && !is_free(&world.server, Kind::Plain) {
            ledger.violation(Judge::Orphans, "it was held after its last guard");
        }
    }
    watching.abort();
}

/// Tries names that no other client ever uses.
async fn fresh_names(run: Run) {
    let Run {
        world,
        seed,
        ledger,
        ..
    } = run.clone();
    let end = Instant::now() + BUSY / 3;
    let clients = clients(&world, 3).await;
    let mut working = JoinSet::new();
    for task in 0..9 {
        let (name, client) = clients[usize::try_from(task % 3).expect("it is small")].clone();
        let mut random = Random::stream(seed, 10 + task);
        let ledger = ledger.clone();
        working.spawn(async move {
            let mut number = 0;
            while Instant::now() < end {
                number += 1;
                let lock = client.lock(format!("{name} {task} {number}"));
                match lock.try_acquire().await {
                    Ok(Some(guard)) => {
                        ledger.granted();
                        sleep(random.up_to(millis(20))).await;
                        if let Err(error) = guard.release().await {
                            ledger.error(&error);
                        }
                    }
                    Ok(None) => {
                        let what = "a name that no other client uses was busy";
                        ledger.violation(Judge::Errors, what);
                    }
                    Err(error) => ledger.error(&error),
                }
                sleep(random.up_to(millis(10))).await;
            }
        });
    }
    let_faults_happen(&run, end).await;
    ended(working, &ledger).await;
    let errors = ledger.summary().errors;
    if seed % 2 == 1 && errors > 0 {
        ledger.violation(Judge::Errors, format!("{errors} errors without a fault"));
    }
}

/// Closes a client while it holds one lock and waits for another.
async fn closing(run: Run) {
    let Run {
        world,
        seed,
        ledger,
        ..
    } = run.clone();
    let random = &mut Random::stream(seed, 2);
    let other = clients(&world, 1).await.remove(0).1;
    for (round, kind) in (0..).zip([Kind::Plain, Kind::Fair, Kind::Write, Kind::Simple]) {
        let client = world.client(&format!("closed-{round}")).connect().await;
        let client = client.expect("nothing is wrong");
        let lease = Lease::KeepAlive(seconds(300));
        let own = client.lock("own").with_lease(lease).acquire().await;
        let own = own.expect("nothing is wrong");
        ledger.granted();
        let subject = lock_of(kind, &other, lease);
        let taken = subject.acquire(Limit::Forever).await;
        let taken = taken.expect("nothing is wrong").expect("it waits for ever");
        let mut waiting = JoinSet::new();
        for _ in 0..2 {
            let subject = lock_of(kind, &client, lease);
            waiting.spawn(async move {
                let got = subject.acquire(Limit::Forever).await;
                matches!(got, Err(Error::Closed { .. }))
            });
        }
        sleep(random.up_to(seconds(4))).await;
        let closed = client.close().await;
        match timeout(seconds(2), waiting.join_all()).await {
            Err(_) => {
                let what = "a waiter of a closed client went on waiting";
                ledger.violation(Judge::Resolution, what);
            }
            Ok(closed) if !closed.iter().all(|closed| *closed) => {
                let what = "a waiter of a closed client was not told so";
                ledger.violation(Judge::Resolution, what);
            }
            Ok(_) => {}
        }
        if closed.is_err() || number(&world.server.call(&[b"EXISTS", b"own"])) == 1 {
            let what = "a closed client went on holding a lock";
            ledger.violation(Judge::Orphans, what);
        }
        drop(own);
        if let Err(error) = taken.release().await {
            ledger.error(&error);
        }
        sleep(seconds(1)).await;
    }
}

/// Plays counted permits with lost replies.
async fn permit_counts(run: Run) {
    let Run {
        world,
        seed,
        ledger,
        ..
    } = run.clone();
    const ALL: i64 = 3;
    let end = Instant::now() + BUSY;
    let clients = clients(&world, 3).await;
    world.server.call(&[b"SET", NAME, b"3"]);
    let (out, doubtful) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicI64::new(0)));
    let mut working = JoinSet::new();
    for task in 0..6 {
        let (name, client) = clients[usize::try_from(task % 3).expect("it is small")].clone();
        let mut random = Random::stream(seed, 10 + task);
        let (ledger, out, doubtful) = (ledger.clone(), out.clone(), doubtful.clone());
        working.spawn(async move {
            let permits = client.counting_semaphore("stock");
            while Instant::now() < end {
                let count = 1 + u32::try_from(random.below(2)).expect("it is small");
                let longest = random.up_to(seconds(3));
                let begun = Instant::now();
                let got = match random.percent(30) {
                    true => match timeout(longest, permits.acquire(count)).await {
                        Ok(got) => got.map(|()| true),
                        Err(_) => Ok(false),
                    },
                    false => {
                        let got = permits.acquire_timeout(count, longest).await;
                        if matches!(got, Ok(false)) {
                            ledger.busy(&name, begun, longest);
                        }
                        got
                    }
                };
                if let Err(error) = &got {
                    ledger.error(error);
                }
                if got.unwrap_or(false) {
                    ledger.granted();
                    let now = out.fetch_add(count.into(), Ordering::Relaxed) + i64::from(count);
                    if now > ALL {
                        let what = format!("{now} of {ALL} permits were in use");
                        ledger.violation(Judge::Exclusion, what);
                    }
                    sleep(random.up_to(millis(200))).await;
                    out.fetch_sub(count.into(), Ordering::Relaxed);
                    if let Err(error) = permits.release(count).await {
                        ledger.error(&error);
                        doubtful.fetch_add(count.into(), Ordering::Relaxed);
                    }
                }
                sleep(random.up_to(millis(30))).await;
            }
        });
    }
    let_faults_happen(&run, end).await;
    ended(working, &ledger).await;
    sleep(seconds(30)).await;
    let left = number(&world.server.call(&[b"GET", NAME]));
    let lost = doubtful.load(Ordering::Relaxed);
    if !(ALL - lost..=ALL).contains(&left) {
        let what = format!("{left} permits were there in the end, of {ALL}, {lost} in doubt");
        ledger.violation(Judge::Counts, what);
    }
}

/// Has several clients count down latches and wait for them.
async fn latches(run: Run) {
    let Run {
        world,
        seed,
        ledger,
        ..
    } = run.clone();
    let random = &mut Random::stream(seed, 2);
    let clients = clients(&world, 3).await;
    for round in 0..12 {
        let calm = round % 2 == 0;
        let name = format!("latch {round}");
        if let Err(error) = clients[0].1.latch(&*name).try_set(3).await {
            ledger.error(&error);
            continue;
        }
        let begun = Arc::new(AtomicU64::new(0));
        let mut waiting = JoinSet::new();
        for task in 0..9 {
            let latch = clients[task % 3].1.latch(&*name);
            let (ledger, begun) = (ledger.clone(), begun.clone());
            let patience = match random.percent(30) {
                true => random.up_to(seconds(2)),
                false => seconds(60),
            };
            waiting.spawn(async move {
                match timeout(patience, latch.wait()).await {
                    Ok(Ok(())) => {
                        ledger.granted();
                        if begun.load(Ordering::Relaxed) < 3 {
                            ledger.violation(Judge::Exclusion, "a latch opened too early");
                        }
                    }
                    Ok(Err(error)) => ledger.error(&error),
                    Err(_) => {}
                }
            });
        }
        let mut certain = true;
        for (client, handle) in &clients {
            sleep(random.up_to(seconds(2))).await;
            begun.fetch_add(1, Ordering::Relaxed);
            if !calm {
                let fault = [MessageFault::Cut, MessageFault::CutAfter];
                let fault = fault[usize::from(random.percent(50))];
                run.fault(fault);
                match random.percent(50) {
                    true => world.network.fault_next(client, HOST, fault),
                    false => world.network.fault_next(HOST, client, fault),
                }
            }
            if let Err(error) = handle.latch(&*name).count_down().await {
                ledger.error(&error);
                certain = false;
            }
        }
        let longest = if calm { seconds(1) } else { seconds(5) };
        let all = timeout(longest, async {
            while let Some(ended) = waiting.join_next().await {
                ended.expect("a waiter does not panic");
            }
        });
        if all.await.is_err() && certain {
            let what = "a latch was open and a client went on waiting";
            ledger.violation(Judge::Progress, what);
        }
        world.network.heal();
    }
}

/// Plays one lock on a majority of five servers, which restart without their data.
async fn quorum_restarts(run: Run) {
    let Run {
        world,
        seed,
        ledger,
        ..
    } = run.clone();
    const LEASE: Duration = seconds(2);
    let end = Instant::now() + BUSY;
    let servers: Vec<_> = (0..5)
        .map(|number| {
            let server = Server::new(Clock::new(), seed * 10 + number);
            world
                .network
                .listen(&format!("redis-{number}"), 6379, &server);
            server
        })
        .collect();
    let mut working = JoinSet::new();
    for task in 0..4 {
        let mut members = Vec::new();
        for server in 0..5 {
            let url = format!("redis://redis-{server}:6379/");
            let client = world
                .client_of(&url, &format!("client-{task}"))
                .connect()
                .await;
            members.push(client.expect("nothing is wrong yet").lock("stock"));
        }
        let lock = QuorumLock::new(members.into_iter().map(Into::into));
        let lock = lock
            .with_lease(Lease::KeepAlive(LEASE))
            .with_longest_lease(LEASE);
        let (ledger, mut random) = (ledger.clone(), Random::stream(seed, 10 + task));
        working.spawn(async move {
            while Instant::now() < end {
                let (name, begun) = (format!("client-{task}"), Instant::now());
                let got = lock.acquire_timeout(seconds(4)).await;
                if let Err(error) = &got {
                    ledger.error(error);
                }
                if matches!(got, Ok(None)) {
                    ledger.busy(&name, begun, seconds(4));
                }
                if let Ok(Some(guard)) = got {
                    let view: Arc<dyn View> = Arc::new(guard.held());
                    let entry = ledger.enter(&name, Claim::Alone, LEASE, &view);
                    let longest = if random.percent(30) {
                        seconds(4)
                    } else {
                        millis(300)
                    };
                    sleep(random.up_to(longest)).await;
                    let releasing = ledger.release(entry);
                    releasing.ended(&guard.release().await);
                }
                sleep(random.up_to(millis(100))).await;
            }
        });
    }
    let random = &mut Random::stream(seed, 2);
    while Instant::now() < end {
        sleep(random.up_to(seconds(3))).await;
        let place = usize::try_from(random.below(5)).expect("it is small");
        let client = format!("client-{}", random.below(4));
        let draw = random.below(4);
        run.fault(["restart", "stall", "block", "restart"][usize::try_from(draw).expect("small")]);
        match draw {
            0 => servers[place].restart(false),
            // A majority of the servers loses its data, and one client cannot notice.
            3 => {
                for place in (0..3).map(|next| (place + next) % 5) {
                    world.network.block(&client, &format!("redis-{place}"));
                    servers[place].restart(false);
                }
                sleep(random.up_to(seconds(3))).await;
                world.network.heal();
            }
            1 => servers[place].stall(random.up_to(seconds(2))),
            _ => {
                world.network.block(&client, &format!("redis-{place}"));
                sleep(random.up_to(seconds(2))).await;
                world.network.heal();
            }
        }
    }
    ended(working, &ledger).await;
}

/// Acquires several locks at once, all or none.
async fn several(run: Run) {
    let Run {
        world,
        seed,
        ledger,
        ..
    } = run.clone();
    let end = Instant::now() + BUSY;
    ledger.set_calm(true);
    let clients = clients(&world, 2).await;
    let mut working = JoinSet::new();
    for task in 0..4 {
        let (name, client) = clients[usize::try_from(task % 2).expect("it is small")].clone();
        let (ledger, mut random) = (ledger.clone(), Random::stream(seed, 10 + task));
        working.spawn(async move {
            while Instant::now() < end {
                let names = [["a", "b"], ["b", "c"], ["a", "c"]];
                let names = names[usize::try_from(random.below(3)).expect("it is small")];
                let lock = MultiLock::new(names.map(|name| client.lock(name).into()));
                let lock = lock.with_lease(Lease::KeepAlive(seconds(3)));
                let got = match random.percent(40) {
                    true => lock.try_acquire().await,
                    false => {
                        let got = lock.acquire_timeout(seconds(20)).await;
                        if matches!(got, Ok(None)) {
                            let what = "several locks were not granted within 20 s";
                            ledger.violation(Judge::Progress, what);
                        }
                        got
                    }
                };
                match got {
                    Ok(Some(guard)) => {
                        let view: Arc<dyn View> = Arc::new(guard.held());
                        let entry = ledger.enter(&name, Claim::Alone, seconds(3), &view);
                        sleep(random.up_to(millis(200))).await;
                        let releasing = ledger.release(entry);
                        releasing.ended(&guard.release().await);
                    }
                    Ok(None) => {}
                    Err(error) => ledger.error(&error),
                }
                sleep(random.up_to(millis(20))).await;
            }
        });
    }
    sleep_until(end).await;
    ended(working, &ledger).await;
}

/// Plays readers and writers of one lock; some writers read as well.
async fn readers_and_writers(run: Run) {
    let Run {
        world,
        seed,
        ledger,
        ..
    } = run.clone();
    let (servers, end) = (servers_of(&run), Instant::now() + BUSY);
    ledger.set_calm(true);
    ledger.look_into(Store::new(servers.clone()), Kind::ReadWrite);
    let clients = clients(&world, 3).await;
    let mut working = JoinSet::new();
    for task in 0..9 {
        let (name, client) = clients[usize::try_from(task % 3).expect("it is small")].clone();
        let (ledger, store) = (ledger.clone(), Store::new(servers.clone()));
        let mut random = Random::stream(seed, 10 + task);
        working.spawn(async move {
            while Instant::now() < end {
                let owner = client.new_owner();
                let lease = Lease::KeepAlive(seconds(3));
                let reads = client
                    .rw_lock("stock")
                    .read()
                    .with_owner(&owner)
                    .with_lease(lease);
                let writes = client
                    .rw_lock("stock")
                    .write()
                    .with_owner(&owner)
                    .with_lease(lease);
                let (kind, claim) = match task == 0 {
                    true => (Kind::Write, Claim::Alone),
                    false => (Kind::Read, Claim::Shared),
                };
                let waiting = ledger.wait(&name);
                let got = match kind {
                    Kind::Write => Subject::acquire(&writes, Limit::Forever).await,
                    _ => Subject::acquire(&reads, Limit::Forever).await,
                };
                drop(waiting);
                let guard = match got {
                    Ok(Some(guard)) => guard,
                    Ok(None) => continue,
                    Err(error) => {
                        ledger.error(&error);
                        continue;
                    }
                };
                let view: Arc<dyn View> = guard.view();
                let entry = ledger.enter(&name, claim, seconds(3), &view);
                ledger.follow(entry, kind, store.clone(), Duration::ZERO);
                if kind == Kind::Write && random.percent(50) {
                    match reads.try_acquire().await {
                        Ok(Some(inner)) => {
                            sleep(random.up_to(millis(50))).await;
                            if let Err(error) = inner.release().await {
                                ledger.error(&error);
                            }
                        }
                        Ok(None) => {
                            let what = "a writer could not read";
                            ledger.violation(Judge::Progress, what);
                        }
                        Err(error) => ledger.error(&error),
                    }
                }
                let longest = if random.percent(10) {
                    seconds(6)
                } else {
                    millis(300)
                };
                sleep(random.up_to(longest)).await;
                if !view.is_held() {
                    ledger.violation(Judge::Loss, "a lock was lost for no reason");
                }
                let releasing = ledger.release(entry);
                releasing.ended(&guard.release().await);
                let pause = if kind == Kind::Write {
                    millis(500)
                } else {
                    millis(10)
                };
                sleep(random.up_to(pause)).await;
            }
        });
    }
    let rules = super::Rules {
        wait: seconds(25),
        idle: Some(seconds(1)),
        ..STRICT
    };
    let _ = timeout_at(end, watch(ledger.clone(), servers, Kind::Read, rules)).await;
    ended(working, &ledger).await;
}

/// Plays holds that end after `max_hold`, whatever their leases are.
async fn max_hold(run: Run) {
    let Run { world, ledger, .. } = run;
    let (_, client) = clients(&world, 1).await.remove(0);
    let lock = client
        .lock("stock")
        .with_lease(Lease::KeepAlive(seconds(3)));
    let guard = lock.with_max_hold(seconds(5)).acquire().await;
    let guard = guard.expect("it is free");
    ledger.granted();
    sleep(millis(5050)).await;
    if guard.is_held() {
        let what = "it was held for longer than it may be";
        ledger.violation(Judge::Backing, what);
    }
    sleep(seconds(1)).await;
    if !is_free(&world.server, Kind::Plain) {
        let what = "the store had it for longer than it may be held";
        ledger.violation(Judge::Orphans, what);
    }
}
