//! Many locks, few calls; and one bad key costs only itself.

use std::time::Duration;

use distlock::{Error, Lease, LostReason};
use tokio::task::JoinSet;

use super::support::{Family, Plain, Player, Simple};
use super::{
    ChaosProxy, Fault, Journal, LEASE, Match, PATIENCE, RedisServer, SHARED, connect, connect_with,
    eventually, renewed, taken,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_locks_are_renewed_in_few_calls_and_none_is_lost() {
    let server = RedisServer::start();
    let client = connect_with(&server.url(), MANY_LEASE, PATIENCE).await;
    let mut acquiring = JoinSet::new();
    for number in 0..MANY {
        acquiring.spawn(client.lock(format!("many-{number}")).acquire());
    }
    let guards: Vec<_> = acquiring
        .join_all()
        .await
        .into_iter()
        .map(|guard| guard.expect("nobody else wants it"))
        .collect();
    let granted = guards.iter().map(|guard| guard.valid_until()).max();
    let granted = granted.expect("there are some");
    let before = server.commandstats("evalsha") + server.commandstats("eval");

    // From then on every one of them has been renewed at least three times.
    eventually(2 * PATIENCE, "three periods pass", async || {
        let latest = guards.iter().map(|guard| guard.valid_until()).min();
        latest.is_some_and(|latest| latest > granted + MANY_LEASE)
    })
    .await;

    let calls = server.commandstats("evalsha") + server.commandstats("eval") - before;
    eprintln!("{calls} calls for {MANY} locks over three periods and a bit");
    assert!(calls >= 3 * MANY / 100, "too few calls to be renewals");
    assert!(calls < MANY / 2, "{calls} calls");
    for guard in &guards {
        guard.check().expect("none is lost");
        assert_eq!(guard.at_risk(), None);
    }
    assert_eq!(server.keys().len() as u64, MANY);
    drop(guards);
    eventually(PATIENCE, "all are given back", async || {
        server.keys().is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_of_the_wrong_type_in_a_batch_costs_only_its_own_lock() {
    tokio::join!(
        costs_only_its_own_lock::<Plain>("wrong", "SET"),
        costs_only_its_own_lock::<Simple>("odd", "LPUSH"),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_semaphore_that_is_none_any_more_costs_the_others_no_permit() {
    let client = connect(&SHARED.url()).await;
    let names = ["a", "b", "c"].map(|name| format!("semaphores-{name}"));
    let mut guards = Vec::new();
    for name in &names {
        let permit = client.semaphore(name.as_str()).with_permits(1).permit();
        guards.push(permit.acquire().await.unwrap());
    }
    let [before, spoilt, after] = guards.try_into().expect("three of them");
    SHARED.cmd(&["DEL", &names[1]]);
    SHARED.cmd(&["LPUSH", &names[1], "not a number"]);
    let lost = tokio::time::timeout(PATIENCE, spoilt.lost()).await;
    assert!(matches!(lost, Ok(Some(_))), "{lost:?}");
    // It lasted for as long as a lease: the others were renewed meanwhile, in the same call.
    for guard in [&before, &after] {
        assert!(guard.is_held(), "{guard:?}");
        let count = client.semaphore(guard.name()).count().await.unwrap();
        assert_eq!((count.available, count.out), (0, 1));
    }
    SHARED.cmd(&["DEL", &names[1]]);
}

/// A key that this command makes.
async fn costs_only_its_own_lock<F: Family>(prefix: &str, command: &str) {
    let proxy = ChaosProxy::start(SHARED.addr());
    let client = Player::<F>::new(connect(&proxy.url()).await);
    let names = ["a", "b", "c"].map(|name| format!("{prefix}-{name}"));
    let take = |name: &String| client.lock(name.as_str()).acquire();
    // At once: a busy machine may take so long for one after the other that they are not renewed together.
    let (before, spoilt, after) = tokio::join!(take(&names[0]), take(&names[1]), take(&names[2]));
    let (before, spoilt, after) = (before.unwrap(), spoilt.unwrap(), after.unwrap());
    let journal = Journal::of(&proxy);

    let name = names[1].as_str();
    let type_of = || SHARED.query::<String>(&["TYPE", name]);
    let other = format!("{prefix}-other");
    SHARED.cmd(&[command, &other, "not a lock"]);
    SHARED.cmd(&["RENAME", &other, name]);
    let kind = type_of();
    let lost = tokio::time::timeout(PATIENCE, spoilt.lost())
        .await
        .expect("it is lost")
        .expect("nobody gave it back");

    eprintln!("the spoilt one was lost: {:?}", lost.reason);
    assert_ne!(lost.reason, LostReason::Closed);
    let with_others = |named: &[String]| named.contains(&names[1]) && named.len() > 1;
    assert!(
        journal.all().iter().any(|call| with_others(&call.names)),
        "they travelled together"
    );
    renewed(&before).await;
    renewed(&after).await;
    assert_eq!((before.at_risk(), after.at_risk()), (None, None));
    for guard in [&before, &after] {
        assert!(SHARED.pttl(guard.name()) > 0);
    }
    // What is not ours is left alone.
    let error = spoilt.release().await.unwrap_err();
    eprintln!("{error}");
    assert!(matches!(
        error,
        Error::Lost { .. } | Error::WrongKind { .. }
    ));
    assert_eq!(type_of(), kind);
    SHARED.cmd(&["DEL", name]);
}

/// One key that may not be touched spoils the call of them all; what is then sent for each must not wait
/// for the one before, or a slow network costs them all their lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denied_key_in_a_batch_costs_only_its_own_lock_also_over_a_slow_network() {
    let server = RedisServer::start();
    let allow = |keys: &str| {
        let user = [
            "ACL",
            "SETUSER",
            "worker",
            "on",
            ">secret",
            "+@all",
            "allchannels",
        ];
        server.cmd(&[&user[..], &["resetkeys", keys]].concat());
    };
    allow("~*");
    let proxy = ChaosProxy::start(server.addr());
    let url = proxy.url().replace("redis://", "redis://worker:secret@");
    let client = connect_with(&url, MANY_LEASE, PATIENCE).await;
    let mut guards = Vec::new();
    for number in 0..60 {
        let lock = client.lock(format!("fine-{number}"));
        guards.push(lock.acquire().await.expect("nobody else wants it"));
    }
    let spoilt = client.lock("spoilt").acquire().await.expect("allowed yet");
    allow("~*fine-*");
    // One after the other, these would take longer than a lease.
    proxy.rule(Match::any(), Fault::DelayReply(Duration::from_millis(200)));

    let lost = tokio::time::timeout(PATIENCE, spoilt.lost()).await;
    let lost = lost.expect("it is lost").expect("nobody gave it back");
    assert_eq!(lost.reason, LostReason::Expired);
    for guard in &guards {
        guard.check().expect("none of the others is lost");
    }
    let latest = guards.iter().map(|guard| guard.valid_until()).min();
    let latest = latest.expect("there are some");
    eventually(PATIENCE, "they are renewed once more", async || {
        guards.iter().all(|guard| guard.valid_until() > latest)
    })
    .await;
}

/// Without scripts each is renewed by itself, and those that were in time must not be taken for failed with the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_without_scripts_are_kept_though_all_together_take_longer_than_a_call_may() {
    let server = RedisServer::start();
    let proxy = ChaosProxy::start(server.addr());
    let url = format!("{}?scripts=off", proxy.url());
    // Long enough for a machine on which a tenth of a second is several.
    let lease = MANY_LEASE * 2;
    let client = connect_with(&url, lease, SLOW * 8).await;
    let mut guards = Vec::new();
    // Two round trips for each are more than a call may take, and far less than there is time for.
    for number in 0..6 {
        guards.push(taken(&client.lock(format!("some-{number}"))).await);
    }
    proxy.rule(Match::any(), Fault::DelayReply(SLOW));
    let granted = guards.iter().map(|guard| guard.valid_until()).max();
    let granted = granted.expect("there are some");
    eventually(2 * PATIENCE, "all are renewed twice", async || {
        for guard in &guards {
            guard.check().expect("none is lost");
        }
        let latest = guards.iter().map(|guard| guard.valid_until()).min();
        latest.is_some_and(|latest| latest > granted + lease / 2)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fixed_lease_is_never_renewed() {
    let proxy = ChaosProxy::start(SHARED.addr());
    let client = connect(&proxy.url()).await;
    let journal = Journal::of(&proxy);
    let kept = client.lock("kept").acquire().await.unwrap();
    let lock = client.lock("fixed").with_lease(Lease::Fixed(LEASE));
    let fixed = lock.acquire().await.unwrap();

    let lost = tokio::time::timeout(PATIENCE, fixed.lost()).await;
    assert_eq!(lost.unwrap().unwrap().reason, LostReason::Expired);

    assert_eq!(journal.count(&fixed.owner()), 0);
    eventually(PATIENCE, "the other one was renewed", async || {
        journal.count(&kept.owner()) >= 2
    })
    .await;
}

const SLOW: Duration = Duration::from_millis(100);
const MANY: u64 = 1000;
/// Two thirds of it are what a busy machine may cost without costing a lock.
const MANY_LEASE: Duration = Duration::from_secs(9);
