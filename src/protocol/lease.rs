//! One hold after its grant: valid, at risk, lost or given back.
//!
//! # States
//!
//! | state      | valid                | renewed            | left when                                    |
//! |------------|----------------------|--------------------|----------------------------------------------|
//! | held       | until `valid_until`  | every third        | a renewal fails → at risk                    |
//! | at risk    | until `valid_until`  | sooner             | a renewal succeeds → held                    |
//! | suspect    | until `valid_until`  | at once, fixed too | one that was asked for since then → held     |
//! | lost(why)  | no                   | never              | never: once lost, never un-lost              |
//! | released   | no                   | never              | never                                        |
//!
//! From held, at risk and suspect (the store may have forgotten it) alike: the store refuses a renewal, `valid_until` passes, the longest hold
//! asked for is over, or the client closes → lost; the last guard goes → released.
//!
//! `valid_until` counts from the moment *before* the request was sent, because the store's clock
//! started no earlier, and is shortened by an allowance for two clocks that do not run alike. A failed
//! renewal leaves it where it is; nothing ever moves it back.
//!
//! A lease that others may cut short is relied on for as long as they leave of it, and asked for anew, fixed or not, until
//! what was promised is over.

use std::time::Duration;

mod end;
mod guards;

pub use self::end::{HoldEnd, LostReason, Risk, Tick};
use self::guards::{GuardTerms, Guards};
use super::Moment;

/// What one guard asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LeaseTerms {
    /// How long the store keeps the hold without hearing from us.
    pub lease: Duration,
    /// Whether it is renewed for as long as the guard lives.
    pub keep_alive: bool,
    /// After this long the hold is over, renewed or not.
    pub max_hold: Option<Duration>,
    /// Others may cut the lease short to this, from any moment on: it is relied on for no longer, and asked for anew in time.
    pub peer_ttl_cap: Option<Duration>,
}

/// A lease for holds that end with a process and not by the clock; longer than any that may be asked for. The store is
/// asked all the same now and then: a holder that was forced out must hear of it.
pub const NO_EXPIRY: Duration = Duration::from_secs(250 * 365 * 24 * 60 * 60);
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// A lease that makes nothing last longer: whoever asks for it only wants to hear whether the hold is there.
pub const PROBE: Duration = Duration::from_millis(1);
/// How soon a fixed lease is asked about again.
const PROBE_RETRY: Duration = Duration::from_secs(1);

/// The lease of one hold, with everything its guards asked for.
#[derive(Debug)]
pub struct LeaseState {
    until: Moment,
    renew_at: Moment,
    renewing: bool,
    risk: Option<Risk>,
    /// Since when the store may have forgotten it: only what is asked from then on says that it has not.
    suspect_since: Option<Moment>,
    end: Option<HoldEnd>,
    guards: Guards,
    next_guard: u32,
    peer_ttl_cap: Option<Duration>,
    /// When the longest lease ends that was ever granted, be it cut short or not.
    granted_until: Moment,
}

impl LeaseState {
    /// A fresh grant and its first guard, number 0; `None` if its lease ran out on the way.
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
            peer_ttl_cap: terms.peer_ttl_cap,
            granted_until: sent,
        };
        lease.raise(terms.lease, sent);
        lease.add_guard(terms, sent, now);
        lease.is_valid(now).then_some(lease)
    }

    /// Another guard of the same owner. It counts at once, so that nobody gives the hold back while
    /// the store is asked; what the store then grants is told by [`LeaseState::extended`].
    pub fn join(&mut self, terms: LeaseTerms, now: Moment) -> u32 {
        self.add_guard(terms, now, now)
    }

    /// The store has granted `lease` on a request sent at `sent`. Never shortens what is there, and
    /// comes too late if the hold has run out meanwhile.
    pub fn extended(&mut self, lease: Duration, sent: Moment, now: Moment) {
        if planted!(LateRenewalRevives) {
            self.end = None;
        }
        if self.is_valid(now) || planted!(LateRenewalRevives) {
            self.raise(lease, sent);
        }
    }

    /// Ends this hold and goes on as another's, with the same standing at the store.
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
            peer_ttl_cap: terms.peer_ttl_cap,
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

    /// A guard has gone; returns how many are left.
    pub fn leave(&mut self, guard: u32) -> u32 {
        self.guards.remove(guard);
        self.count()
    }

    /// What is to be done at `now`. A renewal it asks for counts as under way.
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
        match lease.or(self.suspect_since.map(|_| PROBE)) {
            Some(lease) if !self.renewing && self.renew_at <= now => {
                self.renewing = true;
                Tick::Renew { lease, check_again }
            }
            Some(_) | None => Tick::Sleep(self.next_tick().unwrap_or(check_again)),
        }
    }

    /// When [`LeaseState::tick`] has something to say next; never, once it has ended.
    pub fn next_tick(&self) -> Option<Moment> {
        if self.end.is_some() {
            return None;
        }
        let over = self.valid_until();
        let asks = self.needs_renewal() || self.suspect_since.is_some();
        let renewal = asks && !self.renewing;
        Some(if renewal {
            over.min(self.renew_at)
        } else {
            over
        })
    }

    /// The store has granted `lease` anew, on a request sent at `sent`.
    ///
    /// Comes too late if the hold has run out meanwhile: others may already have been told so.
    pub fn renewed(&mut self, lease: Duration, sent: Moment, now: Moment) {
        let sent = if planted!(RenewalFromReply) {
            now
        } else {
            sent
        };
        self.extended(lease, sent, now);
        if self.suspect_since.is_some_and(|since| sent < since) {
            // Whoever said so may not be the one that is asked now.
            return;
        }
        self.renewing = false;
        if self.is_valid(now) {
            self.suspect_since = None;
            self.renew_at = renew_at(sent, lease);
            self.risk = None;
        }
    }

    /// A renewal brought no answer, or none that says whose the lock is.
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

    /// The store may have forgotten it: it is asked at once, whatever is under way.
    pub fn suspect(&mut self, now: Moment) {
        self.suspect_since = Some(now);
        self.risk = Some(Risk::Failover);
        self.renew_at = now;
        self.renewing = false;
    }

    /// Ends the hold as lost; `false` if it was over already.
    pub fn mark_lost(&mut self, reason: LostReason) -> bool {
        self.renewing = false;
        let first = self.end.is_none();
        self.end.get_or_insert(HoldEnd::Lost(reason));
        first
    }

    /// Ends the hold as given back; says how it ended if it was over already.
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

    /// How it ended, if it has.
    pub const fn end(&self) -> Option<HoldEnd> {
        self.end
    }

    /// Why it was lost by `now`, noticed or not.
    pub fn lost(&self, now: Moment) -> Option<LostReason> {
        match self.end {
            Some(HoldEnd::Lost(reason)) => Some(reason),
            Some(HoldEnd::Released) => None,
            None => self.ran_out(now),
        }
    }

    /// Whether the hold can be relied on at `now`.
    pub fn is_valid(&self, now: Moment) -> bool {
        self.end.is_none() && self.ran_out(now).is_none()
    }

    /// From this moment on it cannot be relied on.
    pub fn valid_until(&self) -> Moment {
        self.cutoff()
            .map_or(self.until, |cutoff| cutoff.min(self.until))
    }

    /// What threatens it, while it is still valid.
    pub fn risk(&self, now: Moment) -> Option<Risk> {
        self.risk.filter(|_| self.is_valid(now))
    }

    /// Whether this guard wants the lease renewed.
    pub fn keeps_alive(&self, guard: u32) -> bool {
        let mut guards = self.guards.iter();
        guards.any(|terms| terms.guard == guard && terms.keep_alive.is_some())
    }

    /// How many guards it has.
    pub fn count(&self) -> u32 {
        u32::try_from(self.guards.iter().count()).unwrap_or(u32::MAX)
    }

    /// Whether it is good enough to be passed on to another waiter of this client: alone, renewed,
    /// not at risk, nothing under way and two thirds of its time left.
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
                .peer_ttl_cap
                .map_or(terms.lease, |peer_ttl_cap| peer_ttl_cap.min(terms.lease));
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

    /// The longest lease that some guard wants kept alive.
    fn keep_alive(&self) -> Option<Duration> {
        self.guards
            .iter()
            .filter_map(|terms| terms.keep_alive)
            .max()
    }

    /// The store has granted this lease on a request sent then.
    fn raise(&mut self, lease: Duration, sent: Moment) {
        let sure = self
            .peer_ttl_cap
            .map_or(lease, |peer_ttl_cap| peer_ttl_cap.min(lease));
        self.until = self.until.max(valid_until(sent, sure));
        self.granted_until = self.granted_until.max(valid_until(sent, lease));
    }

    fn needs_renewal(&self) -> bool {
        self.keep_alive().is_some() || self.is_capped_by_peer().is_some()
    }

    /// To what others may have cut it, if it was to last longer; by more than any answer would lose of it.
    fn is_capped_by_peer(&self) -> Option<Duration> {
        self.peer_ttl_cap
            .filter(|peer_ttl_cap| self.until + drift(*peer_ttl_cap) < self.granted_until)
    }

    /// What to ask for of a fixed lease that others may have cut short.
    fn remaining_grant(&self, now: Moment) -> Option<Duration> {
        let peer_ttl_cap = self.is_capped_by_peer()?;
        Some(peer_ttl_cap.min(self.granted_until.since(now)))
    }

    fn cutoff(&self) -> Option<Moment> {
        if planted!(MaxHoldIgnored) {
            return None;
        }
        self.guards.iter().filter_map(|terms| terms.cutoff).min()
    }
}

/// When a grant of `lease`, asked for at `sent`, cannot be relied on any more.
pub fn valid_until(sent: Moment, lease: Duration) -> Moment {
    sent + lease.saturating_sub(drift(lease))
}

/// How far two clocks may drift apart over one lease: Redlock's allowance, 1 % and 2 ms.
fn drift(lease: Duration) -> Duration {
    if planted!(NoDriftAllowance) {
        return Duration::ZERO;
    }
    lease / 100 + Duration::from_millis(2)
}

/// Every third of the lease; on a grid, so that many holds fall due together and travel together.
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

/// Sooner than after a success, but not so soon that an ailing store is hammered.
fn retry_after(lease: Duration) -> Duration {
    let lease = if lease == PROBE { PROBE_RETRY } else { lease };
    (lease / 10).clamp(Duration::from_millis(10), Duration::from_secs(1))
}

#[cfg(test)]
mod tests;
