//! A renewal that fails is tried again sooner than one that succeeded.

use std::time::Duration;

use distlock::Guard;

use super::journal::renewals;
use super::{
    ChaosProxy, Fault, Journal, Match, PATIENCE, SHARED, connect_with, eventually, renewed, taken,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_whose_connection_is_cut_is_tried_again_sooner_than_after_a_success() {
    let (proxy, journal, guard) = stage("cut").await;
    proxy.rule(renewals(), Fault::CutBefore);
    at_risk(&guard).await;
    tried(&journal, &guard, 3).await;
    guard.check().expect("three failures are no loss");
    proxy.clear_rules();
    assert_saved(&guard).await;
    assert_gaps(&journal, &guard, 3, LEASE / 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_whose_reply_is_lost_is_tried_again_sooner_than_after_a_success() {
    let (proxy, journal, guard) = stage("reply").await;
    proxy.rule(renewals(), Fault::CutAfter);
    at_risk(&guard).await;
    tried(&journal, &guard, 3).await;
    guard.check().expect("three failures are no loss");
    proxy.clear_rules();
    assert_saved(&guard).await;
    assert_gaps(&journal, &guard, 3, LEASE / 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_without_an_answer_is_tried_again_when_its_time_is_up() {
    let (proxy, journal, guard) = stage("silence").await;
    proxy.rule(renewals(), Fault::HoldReply);
    at_risk(&guard).await;
    tried(&journal, &guard, 2).await;
    proxy.clear_rules();
    assert_saved(&guard).await;
    // It is given up after the command time-out, and tried again soon after that.
    assert_gaps(&journal, &guard, 2, COMMAND + LEASE / 3);
}

/// The command time-out may be longer than a third of a lease. A connection that has fallen silent must
/// not be waited for until the lease is over: another one would do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_connection_is_replaced_in_time_to_save_a_lease_shorter_than_the_command_time_out()
{
    let proxy = ChaosProxy::start(SHARED.addr());
    let client = connect_with(&proxy.url(), LEASE, 2 * LEASE).await;
    let guard = client.lock("silent-connection").acquire().await.unwrap();
    renewed(&guard).await;

    // Only this one reply is held, and with it every later one on the same connection.
    proxy.rule(renewals().nth(1), Fault::HoldReply);
    at_risk(&guard).await;

    // On another connection: this one stays silent.
    renewed(&guard).await;
    assert_eq!(guard.at_risk(), None);
}

/// To connect may take longer than a command may, by itself or together with what is then sent: the try that made it necessary
/// is given up, the next one has a connection. With scripts somebody sees to that all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_takes_longer_than_a_command_may_is_waited_for() {
    tokio::join!(
        is_kept_though_slow(COMMAND * 3 / 2, Duration::ZERO),
        is_kept_though_slow(COMMAND * 3 / 4, COMMAND / 2),
    );
}

/// To connect takes so long, and to read what is then written so long.
async fn is_kept_though_slow(connects: Duration, reads: Duration) {
    let proxy = ChaosProxy::start(SHARED.addr());
    let client = connect_with(&proxy.url_with("scripts=off"), LEASE, COMMAND).await;
    let guard = taken(&client.lock(format!("slow-connection-{reads:?}"))).await;
    renewed(&guard).await;
    proxy.rule(Match::command("HELLO"), Fault::DelayReply(connects));
    proxy.rule(Match::command("WATCH"), Fault::DelayReply(reads));
    proxy.cut_all();
    renewed(&guard).await;
    let slowly = |what: &str| {
        let slow = proxy.injected().into_iter();
        slow.filter(|fault| fault.contains(what)).count()
    };
    assert!(slowly("HELLO") > 0, "nobody had to connect");
    assert!(slowly("WATCH") > 0, "nobody read");
}

/// Long, so that there is time for several tries that are given up.
const LEASE: Duration = Duration::from_secs(12);
const COMMAND: Duration = Duration::from_millis(1200);

/// A lock behind a proxy, renewed once without trouble.
async fn stage(name: &str) -> (ChaosProxy, Journal, Guard) {
    let proxy = ChaosProxy::start(SHARED.addr());
    let client = connect_with(&proxy.url(), LEASE, COMMAND).await;
    let guard = taken(&client.lock(format!("retried-{name}"))).await;
    renewed(&guard).await;
    let journal = Journal::of(&proxy);
    (proxy, journal, guard)
}

async fn at_risk(guard: &Guard) {
    eventually(PATIENCE, "a renewal has failed", async || {
        guard.check().expect("a failure is no loss");
        guard.at_risk().is_some()
    })
    .await;
}

async fn tried(journal: &Journal, guard: &Guard, times: usize) {
    let owner = guard.owner();
    eventually(PATIENCE, "it is tried again", async || {
        journal.count(&owner) >= times
    })
    .await;
}

async fn assert_saved(guard: &Guard) {
    renewed(guard).await;
    assert_eq!(guard.at_risk(), None);
}

/// The first so many tries followed each other this quickly; all but one may have been held up by a busy
/// machine.
fn assert_gaps(journal: &Journal, guard: &Guard, tries: usize, limit: Duration) {
    let times = journal.times(&guard.owner());
    let gaps: Vec<_> = times[..tries]
        .windows(2)
        .map(|two| two[1] - two[0])
        .collect();
    eprintln!("tried again after {gaps:?}");
    assert!(gaps.iter().any(|gap| *gap < limit), "{gaps:?}");
}
