//! A holder whose whole process stands still for longer than its lease, as in a pause of a garbage collector, on a closed laptop or under a
//! debugger.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use distlock::{Error, Held, LostReason};

use super::support::process::{say, url, wall_clock};
use super::{LEASE, PATIENCE, Process, SHARED, connect};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_stopped_for_two_leases_never_reports_the_lock_as_held_afterwards() {
    let holder = Process::start(ROLE, &SHARED.url());
    let owner = holder.expect_line("holds");
    let client = connect(&SHARED.url()).await;
    let waiter = tokio::spawn(client.lock(NAME).acquire());

    holder.stop();
    let stopped_at = wall_clock();
    let taken = tokio::time::timeout(PATIENCE, waiter).await;
    let taken = taken.expect("its lease is over").unwrap().unwrap();
    assert_ne!(taken.owner(), owner);
    let stood_still = Duration::from_nanos(u64::try_from(wall_clock() - stopped_at).unwrap());
    tokio::time::sleep((2 * LEASE).saturating_sub(stood_still)).await;
    let resumed_at = wall_clock();
    holder.resume();

    assert!(["Expired", "TakenOver"].contains(&holder.expect_line("lost").as_str()));
    let last_true: u128 = holder.expect_line("last true").parse().unwrap();
    let last_step: u128 = holder.expect_line("last step").parse().unwrap();
    let late_steps: u64 = holder.expect_line("late").parse().unwrap();
    let false_calls: u64 = holder.expect_line("false").parse().unwrap();
    let ago = |then: u128| resumed_at as f64 / 1e9 - then as f64 / 1e9;
    eprintln!(
        "stopped {:.3} s before it went on; it last claimed to hold the lock {:.3} s and last worked \
         {:.3} s before; {false_calls} calls said no",
        ago(stopped_at),
        ago(last_true),
        ago(last_step),
    );
    assert!(last_true < resumed_at, "`is_held()` lied after SIGCONT");
    // A poll that had begun when the process was stopped is completed; none begins after it.
    assert!(late_steps <= 1, "its work went on after SIGCONT");
    assert_eq!(late_steps == 1, last_step >= resumed_at);
    assert!(false_calls >= CALLS_BEYOND, "it was asked often enough");
    assert_eq!(holder.expect_line("released"), "TakenOver");
    // The woken process has done nothing to the new holder.
    assert!(taken.is_held());
    let holders = SHARED.hgetall(NAME);
    assert_eq!(
        holders.into_iter().collect::<Vec<_>>(),
        [(taken.owner(), "1".to_owned())]
    );
    taken.release().await.unwrap();
}

/// The worker's part: it checks without pause whether it holds the lock, and works under it.
pub(crate) async fn watch() {
    let client = connect(&url()).await;
    let guard = client.lock(NAME).acquire().await.unwrap();
    let told = Arc::new(AtomicBool::new(false));
    let asking = thread::spawn({
        let (held, told) = (guard.held(), told.clone());
        move || ask(&held, &told)
    });

    let (owner, mut steps, mut last_step, mut late) = (guard.owner(), 0_u64, wall_clock(), 0_u64);
    let work = async {
        loop {
            let now = wall_clock();
            // A step after such a gap is one after SIGCONT, and so are all later steps.
            late += u64::from(late > 0 || now - last_step > LEASE.as_nanos());
            last_step = now;
            steps += 1;
            // The report comes only after some steps: work that never began cannot be seen to stop.
            if steps == 10 {
                say(&format!("holds {owner}"));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let lost: Result<(), _> = guard.while_held(work).await.map_err(Error::from);
    let news = guard.lost().await.expect("nobody gave it back");
    assert!(matches!(lost, Err(Error::Lost { .. })));
    told.store(true, Ordering::Relaxed);
    let (last_true, false_calls) = asking.join().expect("it only asks");
    say(&format!("lost {:?}", news.reason));
    say(&format!("last true {last_true}"));
    say(&format!("last step {last_step}"));
    say(&format!("late {late}"));
    say(&format!("false {false_calls}"));
    match guard.release().await {
        Err(Error::Lost { reason, .. }) => say(&format!("released {reason:?}")),
        other => say(&format!("released {other:?}")),
    }
    assert_ne!(news.reason, LostReason::Closed);
}

/// Checks in a loop; returns when the last call that returned "held" began, and how many calls returned otherwise.
fn ask(held: &Held, told: &AtomicBool) -> (u128, u64) {
    let (mut last_true, mut false_calls) = (0, 0);
    while false_calls < CALLS_BEYOND || !told.load(Ordering::Relaxed) {
        let began = wall_clock();
        if held.is_held() {
            last_true = began;
        } else {
            false_calls += 1;
        }
    }
    (last_true, false_calls)
}

pub(crate) const ROLE: &str = "watch";
const NAME: &str = "stopped";
const CALLS_BEYOND: u64 = 10_000;
