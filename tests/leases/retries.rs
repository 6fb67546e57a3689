//! A renewal that failed is retried sooner than the next regular one, and no error reply ends the hold.

use std::time::Duration;

use distlock::{Guard, LostReason, Risk};
use distlock_sim::Fault as Refusal;
use tokio::time::{Instant, sleep};

use super::journal::renewals;
use super::{COMMAND, GONE, LEASE, LeaseFixture, PERIOD, ROUND_TRIP, renewed};
use crate::support::{Fault, Match, PATIENCE, eventually, simulated};

/// A tenth of the lease, plus the time that the failure itself takes.
const AGAIN: Duration = Duration::from_millis(900).saturating_add(ROUND_TRIP);

/// Waits until a renewal has failed this many times since that moment.
async fn failed(scene: &LeaseFixture, guard: &Guard, times: usize, since: Instant) {
    let owner = guard.owner();
    eventually(PATIENCE, "a renewal has failed", async || {
        guard.check().expect("a failure is no loss");
        let tries = scene.journal.times(&owner).into_iter();
        let tries = tries.filter(|at| *at >= since).count();
        tries >= times && guard.at_risk() == Some(Risk::RenewalFailed)
    })
    .await;
}

async fn assert_saved(scene: &LeaseFixture, guard: &Guard) {
    renewed(guard).await;
    assert_eq!(guard.at_risk(), None);
    assert!(scene.server.pttl(guard.name()) > 0);
}

#[test]
fn an_unanswered_renewal_is_retried_soon() {
    simulated(async || {
        for (fault, within) in [
            (Fault::CutBefore, AGAIN),
            (Fault::CutAfter, AGAIN),
            // The renewal is given up after the command time-out.
            (Fault::HoldReply, COMMAND + AGAIN),
        ] {
            let scene = LeaseFixture::new().await;
            let guard = scene.hold("retried").await;
            renewed(&guard).await;
            let begun = Instant::now();
            scene.proxy.rule(renewals(), fault);
            failed(&scene, &guard, 3, begun).await;
            scene.proxy.clear_rules();
            assert_saved(&scene, &guard).await;
            let mut tries = scene.journal.times(&guard.owner());
            tries.retain(|at| *at >= begun);
            for two in tries[..3].windows(2) {
                let gap = two[1] - two[0];
                assert!(gap < within && gap < PERIOD, "{fault:?}: {gap:?}");
            }
        }
    });
}

#[test]
fn a_transiently_refused_renewal_is_retried_soon_and_finally_the_cause_of_the_loss() {
    simulated(async || {
        for (refusal, code) in [
            (Refusal::Busy, "BUSY"),
            (Refusal::Loading, "LOADING"),
            (Refusal::ReadOnly, "READONLY"),
        ] {
            let scene = LeaseFixture::new().await;
            let guard = scene.hold("refused").await;
            renewed(&guard).await;
            let begun = Instant::now();
            let server = scene.server.simulated();
            server.set_fault(Some(refusal));
            failed(&scene, &guard, 3, begun).await;
            server.set_fault(None);
            assert_saved(&scene, &guard).await;

            server.set_fault(Some(refusal));
            let lost = guard.lost().await.expect("it is not released");
            assert_eq!(lost.reason, LostReason::Expired);
            let cause = lost.cause.expect("renewals failed");
            assert!(cause.contains(code), "{cause}");
            server.set_fault(None);
            drop(guard);
            sleep(LEASE).await;
            assert_eq!(scene.server.pttl("refused"), GONE);
        }
    });
}

/// The command time-out may be longer than the lease. The watchdog must not wait for a connection that has fallen silent until the lease
/// has expired, since another connection would work.
#[test]
fn a_silent_connection_is_replaced_in_time_to_save_a_lease_below_the_command_timeout() {
    simulated(async || {
        let scene = LeaseFixture::with("", LEASE, 2 * LEASE).await;
        let guard = scene.hold("silent").await;
        renewed(&guard).await;
        // Only this one reply is held, and with it every later one on the same connection.
        scene.proxy.rule(renewals().nth(1), Fault::HoldReply);
        failed(&scene, &guard, 1, Instant::now()).await;
        assert_saved(&scene, &guard).await;
    });
}

/// Connecting may take longer than the command time-out, by itself or together with the request that follows: the attempt that needed the
/// connection is given up, and the next one finds it open. With scripts a separate task connects.
#[test]
fn a_connection_slower_than_the_command_timeout_is_waited_for() {
    simulated(async || {
        for (connects, reads) in [
            (COMMAND * 3 / 2, Duration::ZERO),
            (COMMAND * 3 / 4, COMMAND / 2),
        ] {
            let scene = LeaseFixture::with("scripts=off", LEASE, COMMAND).await;
            let guard = scene.hold("slow").await;
            renewed(&guard).await;
            let proxy = &scene.proxy;
            proxy.rule(Match::command("HELLO"), Fault::DelayReply(connects));
            proxy.rule(Match::command("WATCH"), Fault::DelayReply(reads));
            proxy.cut_all();
            renewed(&guard).await;
            for command in ["HELLO", "WATCH"] {
                let mut slow = proxy.injected().into_iter();
                assert!(slow.any(|fault| fault.contains(command)), "no {command}");
            }
        }
    });
}
