//! One hold after its grant: valid, at risk, lost or released.
//!
//! # States
//!
//! | state      | valid                | renewed            | left when                                    |
//! |------------|----------------------|--------------------|----------------------------------------------|
//! | held       | until `valid_until`  | every third        | a renewal fails → at risk                    |
//! | at risk    | until `valid_until`  | sooner             | a renewal succeeds → held                    |
//! | suspect    | until `valid_until`  | at once, fixed too | a renewal sent since then succeeds → held    |
//! | lost(why)  | no                   | never              | never: once lost, never un-lost              |
//! | released   | no                   | never              | never                                        |
//!
//! From held, at risk and suspect (the store may have forgotten the hold) alike: the store refuses
//! a renewal, `valid_until` passes, the requested `max_hold` is over, or the client closes → lost;
//! the last guard is released or dropped → released.
//!
//! `valid_until` counts from the moment *before* the request was sent, because the store's clock
//! started no earlier, and is shortened by an allowance for two clocks that run at different rates.
//! A failed renewal leaves it where it is; nothing ever moves it back.
//!
//! A lease that peers (other clients) may cut short is relied on only for as long as they leave of
//! it, and is renewed, fixed or not, until the end of what was granted.

use std::time::Duration;

mod end;
mod guards;

pub use self::end::{HoldEnd, LostReason, Risk, Tick};
use self::guards::{GuardTerms, Guards};
use super::Moment;

/// The terms that one guard asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LeaseTerms {
    /// How long the store keeps the hold without a renewal.
    pub lease: Duration,
    /// Whether the lease is renewed for as long as the guard lives.
    pub keep_alive: bool,
    /// The hold is over after this long, renewed or not.
    pub max_hold: Option<Duration>,
    /// Peers may cut the lease short to this, from any moment on: it is relied on for no longer,
    /// and renewed in time.
    pub redisson_ttl_cap: Option<Duration>,
}

/// The lease of holds that end with a process and not by the clock; longer than any lease that can
/// be requested. The store is asked now and then all the same: a holder that was forced out must
/// learn of it.
pub const NO_EXPIRY: Duration = Duration::from_secs(250 * 365 * 24 * 60 * 60);
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// A lease that prolongs nothing: a renewal with it only asks whether the hold still exists.
pub const CHECK_LEASE: Duration = Duration::from_millis(1);
/// Replaces [`CHECK_LEASE`] where the delay before the next attempt is derived from the lease.
const CHECK_RETRY: Duration = Duration::from_secs(1);

/// The lease of one hold, with the terms of all its guards.
#[derive(Debug)]
pub struct LeaseState {
    until: Moment,
    renew_at: Moment,
    renewing: bool,
    risk: Option<Risk>,
    /// The moment since which the store may have forgotten the hold: only the reply to a request
    /// sent later shows that it has not.
    suspect_since: Option<Moment>,
    end: Option<HoldEnd>,
    guards: Guards,
    next_guard: u32,
    redisson_ttl_cap: Option<Duration>,
    /// The end of the longest lease that was ever granted, cut short or not.
    granted_until: Moment,
}

impl LeaseState {
    /// Creates the lease of a new grant with its first guard, number 0; `None` if the lease expired
    /// before the reply arrived.
    pub fn granted(terms: LeaseTerms, sent: Moment, now: Moment) -> Option<Self> {
        let sent = if planted!(ValidityFromReply) {
            now
        } else {
            sent
        };
        let mut lease = Self {
            until: sent,
            renew_at: sent,
            renewing: false,
            risk: None,
            suspect_since: None,
            end: None,
            guards: Guards::default(),
            next_guard: 0,
            redisson_ttl_cap: terms.redisson_ttl_cap,
            granted_until: sent,
        };
        lease.raise(terms.lease, sent);
        lease.add_guard(terms, sent, now);
        lease.is_valid(now).then_some(lease)
    }

    /// Adds another guard of the same owner and returns its number. The guard counts at once, so
    /// that the hold is not released while the request to the store is under way; the lease that
    /// the store then grants is reported to [`LeaseState::extended`].
    pub fn join(&mut self, terms: LeaseTerms, now: Moment) -> u32 {
        self.add_guard(terms, now, now)
    }

    /// Records that the store has granted `lease` on a request sent at `sent`. Never shortens the
    /// lease, and comes too late if the hold has expired meanwhile.
    pub fn extended(&mut self, lease: Duration, sent: Moment, now: Moment) {
        if planted!(LateRenewalRevives) {
            self.end = None;
        }
        if self.is_valid(now) || planted!(LateRenewalRevives) {
            self.raise(lease, sent);
        }
    }

    /// Ends this hold and returns it as another waiter's, in the same state at the store.
    pub fn hand_off(&mut self, terms: LeaseTerms, now: Moment) -> Self {
        self.end = Some(HoldEnd::Released);
        let mut next = Self {
            until: self.until,
            renew_at: self.renew_at,
            renewing: false,
            risk: None,
            suspect_since: None,
            end: None,
            guards: Guards::default(),
            next_guard: 0,
            redisson_ttl_cap: terms.redisson_ttl_cap,
            granted_until: self.granted_until,
        };
        next.guards.push(GuardTerms {
            guard: 0,
            keep_alive: terms.keep_alive.then_some(terms.lease),
            cutoff: terms.max_hold.map(|longest| now + longest),
        });
        next.next_guard = 1;
        next
    }

    /// Removes a guard and returns how many are left.
    pub fn leave(&mut self, guard: u32) -> u32 {
        self.guards.remove(guard);
        self.count()
    }

    /// Returns what is to be done at `now`. A renewal that it asks for counts as under way.
    pub fn tick(&mut self, now: Moment) -> Tick {
        if self.end.is_some() {
            return Tick::Over;
        }
        if let Some(reason) = self.ran_out(now) {
            self.end = Some(HoldEnd::Lost(reason));
            return Tick::Lost(reason);
        }
        let check_again = self.valid_until();
        let lease = self.keep_alive().or(self.remaining_grant(now));
        match lease.or(self.suspect_since.map(|_| CHECK_LEASE)) {
            Some(lease) if !self.renewing && self.renew_at <= now => {
                self.renewing = true;
                Tick::Renew { lease, check_again }
            }
            Some(_) | None => Tick::Sleep(self.next_tick().unwrap_or(check_again)),
        }
    }

    /// Returns when [`LeaseState::tick`] next has something to do; `None` once the hold has ended.
    pub fn next_tick(&self) -> Option<Moment> {
        if self.end.is_some() {
            return None;
        }
        let over = self.valid_until();
        let needs_request = self.needs_renewal() || self.suspect_since.is_some();
        let renewal = needs_request && !self.renewing;
        Some(if renewal {
            over.min(self.renew_at)
        } else {
            over
        })
    }

    /// Records that the store has renewed `lease`, on a request sent at `sent`.
    ///
    /// It comes too late if the hold has expired meanwhile: the loss may already have been
    /// reported.
    pub fn renewed(&mut self, lease: Duration, sent: Moment, now: Moment) {
        let sent = if planted!(RenewalFromReply) {
            now
        } else {
            sent
        };
        self.extended(lease, sent, now);
        if self.suspect_since.is_some_and(|since| sent < since) {
            // The reply may come from a server other than the one that is asked now.
            return;
        }
        self.renewing = false;
        if self.is_valid(now) {
            self.suspect_since = None;
            self.renew_at = renew_at(sent, lease);
            self.risk = None;
        }
    }

    /// Records a renewal without a reply, or with one that does not say whose the lock is.
    pub fn renewal_failed(&mut self, lease: Duration, now: Moment) {
        if planted!(WatchdogGivesUp) {
            return;
        }
        self.renewing = false;
        self.renew_at = now + retry_after(lease);
        if self.suspect_since.is_none() {
            self.risk = Some(Risk::RenewalFailed);
        }
    }

    /// Records that the store may have forgotten the hold: a renewal is due at once, even if
    /// another one is under way.
    pub fn mark_suspect(&mut self, now: Moment) {
        self.suspect_since = Some(now);
        self.risk = Some(Risk::Failover);
        self.renew_at = now;
        self.renewing = false;
    }

    /// Ends the hold as lost; returns `false` if it was over already.
    pub fn mark_lost(&mut self, reason: LostReason) -> bool {
        self.renewing = false;
        let first = self.end.is_none();
        self.end.get_or_insert(HoldEnd::Lost(reason));
        first
    }

    /// Ends the hold as released; returns the reason if it was lost before.
    pub fn release(&mut self, now: Moment) -> Result<(), LostReason> {
        if self.end.is_none()
            && let Some(reason) = self.ran_out(now)
        {
            self.end = Some(HoldEnd::Lost(reason));
        }
        match self.end {
            Some(HoldEnd::Lost(reason)) => Err(reason),
            Some(HoldEnd::Released) | None => {
                self.end = Some(HoldEnd::Released);
                Ok(())
            }
        }
    }

    /// Returns how the hold ended, if it has.
    pub const fn end(&self) -> Option<HoldEnd> {
        self.end
    }

    /// Returns why the hold was lost by `now`, whether or not a tick has noticed it.
    pub fn lost(&self, now: Moment) -> Option<LostReason> {
        match self.end {
            Some(HoldEnd::Lost(reason)) => Some(reason),
            Some(HoldEnd::Released) => None,
            None => self.ran_out(now),
        }
    }

    /// Reports whether the hold can be relied on at `now`.
    pub fn is_valid(&self, now: Moment) -> bool {
        self.end.is_none() && self.ran_out(now).is_none()
    }

    /// Returns the moment from which the hold cannot be relied on.
    pub fn valid_until(&self) -> Moment {
        self.cutoff()
            .map_or(self.until, |cutoff| cutoff.min(self.until))
    }

    /// Returns what threatens the hold, while it is still valid.
    pub fn risk(&self, now: Moment) -> Option<Risk> {
        self.risk.filter(|_| self.is_valid(now))
    }

    /// Reports whether this guard asked for renewals of the lease.
    pub fn keeps_alive(&self, guard: u32) -> bool {
        let mut guards = self.guards.iter();
        guards.any(|terms| terms.guard == guard && terms.keep_alive.is_some())
    }

    /// Returns the number of guards.
    pub fn count(&self) -> u32 {
        u32::try_from(self.guards.iter().count()).unwrap_or(u32::MAX)
    }

    /// Reports whether the hold may be handed off to another waiter of this client: it has one
    /// guard, is kept alive, is not at risk, has no renewal under way and two thirds of its time
    /// left.
    pub fn may_hand_off(&self, now: Moment) -> bool {
        let Some(lease) = self.keep_alive() else {
            return false;
        };
        let whole = lease.saturating_sub(drift(lease));
        self.count() == 1
            && !self.renewing
            && self.risk.is_none()
            && self.cutoff().is_none()
            && self.is_valid(now)
            && self.until.since(now) * 3 >= whole * 2
    }

    fn add_guard(&mut self, terms: LeaseTerms, sent: Moment, now: Moment) -> u32 {
        let guard = self.next_guard;
        self.next_guard += 1;
        let first = guard == 0 || self.keep_alive().is_none();
        self.guards.push(GuardTerms {
            guard,
            keep_alive: terms.keep_alive.then_some(terms.lease),
            cutoff: terms.max_hold.map(|longest| now + longest),
        });
        if terms.keep_alive || self.needs_renewal() {
            let lease = self
                .redisson_ttl_cap
                .map_or(terms.lease, |redisson_ttl_cap| {
                    redisson_ttl_cap.min(terms.lease)
                });
            let due = renew_at(sent, lease);
            self.renew_at = if first { due } else { self.renew_at.min(due) };
        }
        guard
    }

    fn ran_out(&self, now: Moment) -> Option<LostReason> {
        if now >= self.until {
            return Some(LostReason::Expired);
        }
        self.cutoff()
            .filter(|cutoff| now >= *cutoff)
            .map(|_| LostReason::MaxHold)
    }

    /// Returns the longest lease that some guard asked to keep alive.
    fn keep_alive(&self) -> Option<Duration> {
        self.guards
            .iter()
            .filter_map(|terms| terms.keep_alive)
            .max()
    }

    /// Raises the end of the lease to that of a grant on a request sent at `sent`.
    fn raise(&mut self, lease: Duration, sent: Moment) {
        let sure = self
            .redisson_ttl_cap
            .map_or(lease, |redisson_ttl_cap| redisson_ttl_cap.min(lease));
        self.until = self.until.max(valid_until(sent, sure));
        self.granted_until = self.granted_until.max(valid_until(sent, lease));
    }

    fn needs_renewal(&self) -> bool {
        self.keep_alive().is_some() || self.capped_by_redisson().is_some()
    }

    /// Returns the lease that peers may have left, if that is shorter than the granted one by more
    /// than a renewal itself loses to the drift allowance.
    fn capped_by_redisson(&self) -> Option<Duration> {
        self.redisson_ttl_cap
            .filter(|redisson_ttl_cap| self.until + drift(*redisson_ttl_cap) < self.granted_until)
    }

    /// Returns the lease to renew for a fixed lease that peers may have cut short.
    fn remaining_grant(&self, now: Moment) -> Option<Duration> {
        let redisson_ttl_cap = self.capped_by_redisson()?;
        Some(redisson_ttl_cap.min(self.granted_until.since(now)))
    }

    fn cutoff(&self) -> Option<Moment> {
        if planted!(MaxHoldIgnored) {
            return None;
        }
        self.guards.iter().filter_map(|terms| terms.cutoff).min()
    }
}

/// Returns when a grant of `lease`, requested at `sent`, cannot be relied on any more.
pub fn valid_until(sent: Moment, lease: Duration) -> Moment {
    sent + lease.saturating_sub(drift(lease))
}

/// Returns how far two clocks may drift apart over one lease: Redlock's allowance, 1 % and 2 ms.
fn drift(lease: Duration) -> Duration {
    if planted!(NoDriftAllowance) {
        return Duration::ZERO;
    }
    lease / 100 + Duration::from_millis(2)
}

/// Returns when to renew: after a third of the lease, on a grid, so that many holds fall due
/// together and share a batch.
fn renew_at(sent: Moment, lease: Duration) -> Moment {
    let pause = if planted!(RenewedTooLate) {
        lease
    } else if lease < NO_EXPIRY {
        lease / 3
    } else {
        CHECK_INTERVAL
    };
    (sent + pause).align_down(pause / 20).max(sent)
}

/// Returns the delay before a failed renewal is retried: sooner than after a success, but not so
/// soon that it overloads an ailing store.
fn retry_after(lease: Duration) -> Duration {
    let lease = if lease == CHECK_LEASE {
        CHECK_RETRY
    } else {
        lease
    };
    (lease / 10).clamp(Duration::from_millis(10), Duration::from_secs(1))
}

#[cfg(test)]
mod tests;
