//! The steps of a waiter, event by event.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn at(millis: u64) -> Moment {
    Moment::at(Duration::from_millis(millis))
}

fn waiting(deadline: Option<Moment>) -> Acquire {
    Acquire::new(Kind::Mutex, WaitMode::Subscribe, deadline, 7)
}

#[test]
fn a_waiter_subscribes_before_it_sleeps_and_polls_in_between() {
    let mut waiter = waiting(None);
    assert_eq!(waiter.busy(Some(SECOND), at(0)), AcquireStep::Subscribe);
    assert_eq!(waiter.subscribed(), AcquireStep::Send);
    assert!(matches!(
        waiter.busy(Some(SECOND), at(1)),
        AcquireStep::Sleep(_)
    ));
    assert_eq!(waiter.woken(at(2)), AcquireStep::Send);
}

#[test]
fn a_sleep_ends_soon_after_the_holders_lease_and_never_later_than_the_cap() {
    let mut waiter = waiting(None);
    waiter.subscribed();
    let AcquireStep::Sleep(until) = waiter.busy(Some(SECOND), at(0)) else {
        panic!("it sleeps");
    };
    assert!(until >= at(1_000) && until <= at(1_020), "{until:?}");
    for endless in [None, Some(60 * SECOND)] {
        let step = waiter.busy(endless, at(0));
        assert_eq!(
            step,
            AcquireStep::Sleep(at(0) + Kind::Mutex.longest_sleep())
        );
    }
}

#[test]
fn a_deadline_cuts_every_sleep_and_busy_is_reported_only_after_a_busy_reply() {
    let mut waiter = waiting(Some(at(500)));
    waiter.subscribed();
    assert_eq!(
        waiter.busy(Some(SECOND), at(0)),
        AcquireStep::Sleep(at(500))
    );
    assert_eq!(waiter.woken(at(500)), AcquireStep::Busy);
    let mut unheard = waiting(Some(at(500)));
    assert_eq!(unheard.failed(true, at(500)), AcquireStep::TimedOut);
    assert_eq!(unheard.woken(at(500)), AcquireStep::TimedOut);
}

#[test]
fn a_request_cut_off_by_the_deadline_is_never_reported_as_busy() {
    let mut waiter = waiting(Some(at(500)));
    waiter.busy(Some(SECOND), at(0));
    assert_eq!(waiter.failed(true, at(500)), AcquireStep::TimedOut);
}

#[test]
fn a_waiter_survives_an_outage_but_a_first_attempt_does_not() {
    assert_eq!(waiting(None).failed(true, at(0)), AcquireStep::Fail);
    let mut waiter = waiting(Some(at(5_000)));
    waiter.busy(None, at(0));
    assert!(matches!(waiter.failed(true, at(1)), AcquireStep::Sleep(_)));
    assert_eq!(
        waiter.failed(false, at(2)),
        AcquireStep::Fail,
        "a refusal stays one"
    );
    // When the deadline passes, the last reply is a failure: the holder is unknown.
    assert_eq!(waiter.woken(at(5_000)), AcquireStep::TimedOut);
}

#[test]
fn a_waiter_without_a_subscription_polls_and_retries_to_subscribe() {
    let mut waiter = waiting(None);
    assert_eq!(waiter.busy(None, at(0)), AcquireStep::Subscribe);
    let AcquireStep::Sleep(until) = waiter.subscribe_failed(at(0)) else {
        panic!("it sleeps");
    };
    assert!(until <= at(100), "{until:?}");
    assert_eq!(waiter.busy(None, at(100)), AcquireStep::Subscribe);
}

#[test]
fn a_poller_never_subscribes_and_backs_off_up_to_the_longest_pause() {
    let (first, longest) = (Duration::from_millis(4), Duration::from_millis(32));
    let mut poller = Acquire::new(Kind::Mutex, WaitMode::Poll { first, longest }, None, 7);
    let mut pauses = Vec::new();
    for _ in 0..8 {
        let AcquireStep::Sleep(until) = poller.busy(None, at(0)) else {
            panic!("it sleeps");
        };
        pauses.push(until.since(at(0)));
    }
    assert!(pauses[0] >= first / 2 && pauses[0] <= first, "{pauses:?}");
    assert!(
        pauses[7] >= longest / 2 && pauses[7] <= longest,
        "{pauses:?}"
    );
}

#[test]
fn the_pauses_of_waiters_are_jittered() {
    let sleeps: std::collections::HashSet<_> = (0..100)
        .map(|seed| {
            let mut waiter = Acquire::new(Kind::Mutex, WaitMode::Subscribe, None, seed * 1000);
            waiter.subscribed();
            format!("{:?}", waiter.busy(Some(SECOND), at(0)))
        })
        .collect();
    assert!(sleeps.len() > 90, "{} different sleeps", sleeps.len());
}

/// The store keeps the waiter registered only for a while.
#[test]
fn a_queued_poller_sends_requests_as_often_as_subscribed_waiters() {
    let day = Duration::from_secs(86_400);
    let wait_mode = WaitMode::Poll {
        first: day,
        longest: day,
    };
    for (kind, longest) in [
        (Kind::Fair, Kind::Fair.longest_sleep()),
        (Kind::Write, Kind::Write.longest_sleep()),
        (Kind::Mutex, day),
    ] {
        let mut poller = Acquire::new(kind, wait_mode, None, 7);
        let AcquireStep::Sleep(until) = poller.busy(None, at(0)) else {
            panic!("it sleeps");
        };
        let pause = until.since(at(0));
        assert!(
            pause <= longest && pause >= longest / 2,
            "{kind:?}: {pause:?}"
        );
    }
}
