//! The state table of the lease, row by row.

use super::*;

const LEASE: Duration = Duration::from_secs(30);

fn at(millis: u64) -> Moment {
    Moment::at(Duration::from_secs(1000) + Duration::from_millis(millis))
}

fn keep_alive(lease: Duration) -> LeaseTerms {
    LeaseTerms {
        lease,
        keep_alive: true,
        max_hold: None,
        redisson_ttl_cap: None,
    }
}

fn fixed(lease: Duration) -> LeaseTerms {
    LeaseTerms {
        keep_alive: false,
        ..keep_alive(lease)
    }
}

fn held() -> LeaseState {
    LeaseState::granted(keep_alive(LEASE), at(0), at(1)).expect("a fresh grant is valid")
}

#[test]
fn validity_counts_from_before_the_request_and_leaves_room_for_drift() {
    let lease = LeaseState::granted(fixed(LEASE), at(0), at(5_000)).expect("time is left");
    assert_eq!(lease.valid_until(), at(30_000 - 300 - 2));
    assert!(lease.is_valid(at(29_697)));
    assert!(
        !lease.is_valid(at(29_698)),
        "not valid at valid_until itself"
    );
}

#[test]
fn a_grant_that_arrives_after_its_lease_is_none() {
    assert!(LeaseState::granted(fixed(LEASE), at(0), at(29_698)).is_none());
    let tiny = Duration::from_millis(2);
    assert!(LeaseState::granted(fixed(tiny), at(0), at(0)).is_none());
}

#[test]
fn a_renewed_lease_is_renewed_at_a_third_and_a_fixed_one_never() {
    let mut lease = held();
    let Tick::Sleep(due) = lease.tick(at(1)) else {
        panic!("nothing is due yet");
    };
    assert!(due <= at(10_000) && due > at(9_000), "{due:?}");
    assert!(matches!(lease.tick(due), Tick::Renew { lease: LEASE, .. }));
    // A renewal is under way: no other one is due, only the end is.
    assert_eq!(lease.tick(due), Tick::Sleep(lease.valid_until()));
    let mut lease = LeaseState::granted(fixed(LEASE), at(0), at(1)).expect("valid");
    assert_eq!(lease.tick(at(20_000)), Tick::Sleep(lease.valid_until()));
}

#[test]
fn a_renewal_moves_the_end_by_when_it_was_sent() {
    let mut lease = held();
    assert!(matches!(lease.tick(at(10_000)), Tick::Renew { .. }));
    lease.renewed(LEASE, at(10_000), at(12_000));
    assert_eq!(lease.valid_until(), at(40_000 - 302));
}

#[test]
fn a_failed_renewal_changes_only_the_risk_and_is_retried_sooner() {
    let mut lease = held();
    let until = lease.valid_until();
    assert!(matches!(lease.tick(at(10_000)), Tick::Renew { .. }));
    lease.renewal_failed(LEASE, at(12_000));
    assert_eq!(lease.valid_until(), until);
    assert_eq!(lease.risk(at(12_000)), Some(Risk::RenewalFailed));
    assert_eq!(lease.tick(at(12_000)), Tick::Sleep(at(13_000)));
    assert!(matches!(lease.tick(at(13_000)), Tick::Renew { .. }));
    lease.renewed(LEASE, at(13_000), at(13_001));
    assert_eq!(lease.risk(at(13_001)), None);
}

#[test]
fn a_lost_lease_stays_lost() {
    let mut lease = held();
    assert!(matches!(lease.tick(at(10_000)), Tick::Renew { .. }));
    assert_eq!(lease.tick(at(29_698)), Tick::Lost(LostReason::Expired));
    // The renewal's reply arrives after all.
    lease.renewed(LEASE, at(10_000), at(29_699));
    assert!(!lease.is_valid(at(29_699)));
    assert_eq!(lease.tick(at(29_700)), Tick::Over);
    assert!(
        !lease.mark_lost(LostReason::TakenOver),
        "the first reason stays"
    );
    assert_eq!(lease.release(at(29_701)), Err(LostReason::Expired));
}

#[test]
fn a_late_renewal_does_not_revive_an_unnoticed_loss() {
    let mut lease = held();
    assert!(matches!(lease.tick(at(10_000)), Tick::Renew { .. }));
    // The process was stopped for a minute: no tick came when the lease expired.
    lease.renewed(LEASE, at(10_000), at(70_000));
    assert_eq!(lease.lost(at(70_000)), Some(LostReason::Expired));
}

#[test]
fn an_inner_lease_never_shortens_the_outer_one() {
    let mut lease = LeaseState::granted(fixed(20 * LEASE), at(0), at(1)).expect("valid");
    let until = lease.valid_until();
    let inner = lease.join(keep_alive(Duration::from_secs(5)), at(10));
    lease.extended(Duration::from_secs(5), at(10), at(11));
    assert_eq!(lease.valid_until(), until);
    assert_eq!(lease.leave(inner), 1);
    assert_eq!(lease.valid_until(), until);
    assert_eq!(
        lease.tick(at(100_000)),
        Tick::Sleep(until),
        "only the outer one is left"
    );
}

#[test]
fn a_released_inner_fixed_lease_leaves_the_outer_one_renewed() {
    let mut lease = held();
    let inner = lease.join(fixed(Duration::from_secs(1)), at(10));
    lease.extended(Duration::from_secs(1), at(10), at(11));
    lease.leave(inner);
    assert!(matches!(
        lease.tick(at(10_000)),
        Tick::Renew { lease: LEASE, .. }
    ));
}

#[test]
fn max_hold_ends_a_renewed_lease() {
    let terms = LeaseTerms {
        max_hold: Some(Duration::from_secs(5)),
        redisson_ttl_cap: None,
        ..keep_alive(LEASE)
    };
    let mut lease = LeaseState::granted(terms, at(0), at(1)).expect("valid");
    assert_eq!(lease.valid_until(), at(5_001));
    assert_eq!(lease.tick(at(5_001)), Tick::Lost(LostReason::MaxHold));
}

#[test]
fn only_a_valid_and_fresh_hold_is_handed_off() {
    assert!(held().may_hand_off(at(9_000)));
    assert!(
        !held().may_hand_off(at(10_500)),
        "less than two thirds left"
    );
    let mut joined = held();
    joined.join(keep_alive(LEASE), at(1));
    assert!(!joined.may_hand_off(at(2)), "two guards");
    let mut at_risk = held();
    at_risk.renewal_failed(LEASE, at(2));
    assert!(!at_risk.may_hand_off(at(3)), "at risk");
    let mut renewing = held();
    assert!(matches!(renewing.tick(at(10_000)), Tick::Renew { .. }));
    assert!(!renewing.may_hand_off(at(10_000)), "a renewal is under way");
    let fixed = LeaseState::granted(fixed(LEASE), at(0), at(1)).expect("valid");
    assert!(!fixed.may_hand_off(at(2)), "a fixed lease");
}

#[test]
fn a_handed_off_hold_keeps_its_state_at_the_store() {
    let mut lease = held();
    let until = lease.valid_until();
    let next = lease.hand_off(keep_alive(LEASE), at(100));
    assert_eq!(lease.end(), Some(HoldEnd::Released));
    assert!(!lease.is_valid(at(100)));
    assert_eq!((next.valid_until(), next.count()), (until, 1));
    assert!(next.is_valid(at(100)));
}

#[test]
fn a_fixed_lease_that_peers_may_shorten_is_renewed_until_its_end() {
    let terms = LeaseTerms {
        redisson_ttl_cap: Some(LEASE),
        ..fixed(Duration::from_secs(45))
    };
    let mut lease = LeaseState::granted(terms, at(0), at(1)).expect("valid");
    assert_eq!(lease.valid_until(), at(30_000 - 302), "no longer is sure");
    let Some(first) = lease.next_tick() else {
        panic!("it is looked at");
    };
    assert!(first > at(5_000) && first <= at(10_000), "{first:?}");
    // The renewal asks for the rest of the granted lease, but for no more than peers may leave of
    // it.
    let asked = Tick::Renew {
        lease: LEASE,
        check_again: at(30_000 - 302),
    };
    assert_eq!(lease.tick(at(10_000)), asked);
    lease.renewed(LEASE, at(10_000), at(10_001));
    assert_eq!(lease.valid_until(), at(40_000 - 302));
    let Tick::Renew { lease: last, .. } = lease.tick(at(20_000)) else {
        panic!("it is not over yet");
    };
    // The drift allowance is subtracted already.
    assert_eq!(last, Duration::from_millis(45_000 - 452 - 20_000));
    lease.renewed(last, at(20_000), at(20_001));
    let end = lease.valid_until();
    assert!(end <= at(45_000) && end > at(44_000), "{end:?}");
    assert!(!lease.keeps_alive(0));
    assert_eq!(lease.tick(at(30_000)), Tick::Sleep(end), "all is asked for");
    assert_eq!(lease.tick(at(45_000)), Tick::Lost(LostReason::Expired));
}

#[test]
fn a_lease_below_the_peer_ttl_cap_is_as_any_other() {
    let terms = LeaseTerms {
        redisson_ttl_cap: Some(LEASE),
        ..fixed(Duration::from_secs(10))
    };
    let mut lease = LeaseState::granted(terms, at(0), at(1)).expect("valid");
    let end = at(10_000 - 102);
    assert_eq!(lease.next_tick(), Some(end));
    assert_eq!(lease.tick(at(9_000)), Tick::Sleep(end));
    // A longer lease is renewed as well.
    lease.extended(Duration::from_secs(60), at(9_000), at(9_001));
    assert_eq!(lease.valid_until(), at(39_000 - 302));
    assert!(matches!(lease.tick(at(9_002)), Tick::Renew { .. }));
}

#[test]
fn a_hold_that_may_be_lost_is_verified_at_once_and_only_a_later_reply_counts() {
    let mut lease = held();
    assert!(matches!(lease.tick(at(10_000)), Tick::Renew { .. }));
    lease.mark_suspect(at(11_000));
    assert_eq!(lease.risk(at(11_000)), Some(Risk::Failover));
    assert_eq!(lease.next_tick(), Some(at(11_000)));
    assert!(matches!(
        lease.tick(at(11_000)),
        Tick::Renew { lease: LEASE, .. }
    ));
    // This is the reply of the previous server: it renewed the lease, and its successor may not
    // know that.
    lease.renewed(LEASE, at(10_000), at(11_001));
    assert_eq!(lease.risk(at(11_001)), Some(Risk::Failover));
    assert_eq!(
        lease.tick(at(11_002)),
        Tick::Sleep(lease.valid_until()),
        "under way"
    );
    lease.renewed(LEASE, at(11_000), at(11_003));
    assert_eq!(lease.risk(at(11_003)), None);
    assert!(lease.next_tick().is_some_and(|next| next > at(20_000)));
}

#[test]
fn a_fixed_lease_that_may_be_lost_is_verified_until_there_is_a_reply() {
    let mut lease = LeaseState::granted(fixed(LEASE), at(0), at(1)).expect("valid");
    let until = lease.valid_until();
    lease.mark_suspect(at(5_000));
    assert!(matches!(
        lease.tick(at(5_000)),
        Tick::Renew {
            lease: CHECK_LEASE,
            ..
        }
    ));
    lease.renewal_failed(CHECK_LEASE, at(5_010));
    assert_eq!(lease.risk(at(5_010)), Some(Risk::Failover));
    let again = lease.next_tick().expect("it is still held");
    assert!(again > at(5_050) && again < at(7_000), "{again:?}");
    assert!(matches!(
        lease.tick(again),
        Tick::Renew {
            lease: CHECK_LEASE,
            ..
        }
    ));
    lease.renewed(CHECK_LEASE, again, again);
    assert_eq!(lease.risk(again), None);
    assert_eq!(lease.valid_until(), until, "a look makes nothing longer");
    assert_eq!(lease.next_tick(), Some(until), "and is the last");
}
