//! Takes one lock on most of several servers: Redlock.
//!
//! All are asked at the same time, none for long. As soon as most have granted it the caller has it; what the others say is
//! heard later. Where most cannot be had any more everything is undone, also where no answer came, and all are asked again
//! after a pause that is different for everybody.

use std::sync::Arc;
use std::time::Duration;

mod keeper;
pub(crate) mod majority;
mod vote;

use self::majority::Majority;
use self::vote::{Ballot, Vote, patience};
use super::claim::Claim;
use super::clock::within;
use super::multi::{Part, give_back};
use super::{Core, Trouble, TroubleWith};
use crate::driver::acquire::Patience;
use crate::engine::Cause;
use crate::protocol::Moment;
use crate::protocol::lease::LostReason;
use crate::protocol::quorum::{self, Count, Verdict, majority};

pub(crate) use self::vote::Rules;

/// Gets it on most of these; `None` if others are in the way and patience is over.
pub(crate) async fn take(
    parts: Vec<Part>,
    rules: Rules,
    patience: Patience,
) -> Result<Option<Arc<Majority>>, Vec<TroubleWith>> {
    tokio::task::coop::consume_budget().await;
    let home = parts[0].core.clone();
    let begun = home.clock.now();
    let deadline = match patience {
        Patience::Within(wait) => Some(begun + wait),
        Patience::Once => Some(begun),
        Patience::Endless => None,
    };
    let mut search = Search {
        parts: &parts,
        rules,
        home: &home,
        // The first time is a try, however short the wait.
        deadline: deadline.filter(|deadline| *deadline > begun),
        told_busy: false,
    };
    let mut busy_before = false;
    loop {
        let hurried = search.is_hurried();
        let lost = match search.round().await {
            Round::Won { claims, late } => {
                let majority = Majority::new(parts.clone(), claims, rules);
                // Answers may have taken longer than the lease.
                if majority.look().is_none() {
                    keeper::start(&majority, late);
                    return Ok(Some(majority));
                }
                let late = Trouble::Lost(LostReason::Expired);
                Lost {
                    busy: false,
                    troubles: vec![parts[0].with(late)],
                }
            }
            Round::Lost(lost) => lost,
        };
        search.told_busy |= lost.busy;
        if !lost.busy && !search.rides(&lost.troubles) {
            return Err(lost.troubles);
        }
        let left = deadline.map(|deadline| deadline.since(home.clock.now()));
        if left == Some(Duration::ZERO) {
            // Who had hardly any time to answer has not said anything else than before.
            let as_before = hurried && busy_before && search.may_be_busy(&lost.troubles);
            return match lost.busy || as_before {
                true => Ok(None),
                false => Err(lost.troubles),
            };
        }
        busy_before = lost.busy;
        let pause = quorum::pause(home.fresh_seed());
        let until = home.clock.now() + left.map_or(pause, |left| left.min(pause));
        home.clock.sleep_until(Some(until)).await;
    }
}

struct Search<'a> {
    parts: &'a [Part],
    rules: Rules,
    /// The deadline is by this client's clock; others may have another.
    home: &'a Arc<Core>,
    deadline: Option<Moment>,
    /// Others were in the way: from then on it waits through outages.
    told_busy: bool,
}

enum Round {
    Won {
        claims: Vec<(usize, Claim)>,
        late: Ballot,
    },
    Lost(Lost),
}

struct Lost {
    /// Enough servers are there.
    busy: bool,
    troubles: Vec<TroubleWith>,
}

impl Search<'_> {
    /// Asks all of them once. When it is not won, nothing of it is left, or will be.
    async fn round(&self) -> Round {
        let left = self.left();
        let parts = self.parts.iter().enumerate();
        let mut ballot = Ballot::of(parts, self.rules, left);
        let mut count = Count::of(self.parts.len());
        let (mut claims, mut troubles) = (Vec::new(), Vec::new());
        while count.verdict() == Verdict::Open {
            let Some((place, vote)) = ballot.next().await else {
                break;
            };
            count.add(match vote {
                Vote::Granted(claim) => {
                    claims.push((place, claim));
                    quorum::Vote::Granted
                }
                Vote::Refused => quorum::Vote::Refused,
                Vote::Absent(trouble) => {
                    troubles.push(self.parts[place].with(trouble));
                    quorum::Vote::Absent
                }
            });
        }
        if count.verdict() == Verdict::Won {
            while let Some((place, vote)) = ballot.next_now().await {
                if let Vote::Granted(claim) = vote {
                    claims.push((place, claim));
                }
            }
            let late = ballot;
            return Round::Won { claims, late };
        }
        // What is under way is undone, and what was granted is given back.
        drop(ballot);
        let claims = claims.into_iter().map(|(_, claim)| claim).collect();
        let limit = self.home.limit(self.deadline);
        let _ = within(limit, Box::pin(give_back(claims))).await;
        let busy = count.verdict() == Verdict::Busy;
        Round::Lost(Lost { busy, troubles })
    }

    /// How much time there is, if that is limited.
    fn left(&self) -> Option<Duration> {
        self.deadline.map(|end| end.since(self.home.clock.now()))
    }

    /// Whether servers asked now have less time to answer than they may take.
    fn is_hurried(&self) -> bool {
        let patience = patience(&self.parts[0]);
        self.left().is_some_and(|left| left < patience)
    }

    /// Whether enough servers are there, if those are who have not answered in time.
    fn may_be_busy(&self, troubles: &[TroubleWith]) -> bool {
        let missing = troubles.iter().filter(|with| match &with.trouble {
            Trouble::TimedOut(_) => false,
            Trouble::Failure(failure) => failure.cause != Cause::TimedOut,
            Trouble::Closed
            | Trouble::Forked
            | Trouble::Lost(_)
            | Trouble::TooLong(_)
            | Trouble::TooManyReads
            | Trouble::TooYoung(..)
            | Trouble::WouldDeadlock => true,
        });
        self.parts.len() - missing.count() >= majority(self.parts.len())
    }

    /// Whether enough of the servers that had no vote may have one later.
    fn rides(&self, troubles: &[TroubleWith]) -> bool {
        let ends = troubles.iter().filter(|with| match &with.trouble {
            Trouble::TimedOut(_) | Trouble::TooYoung(..) | Trouble::Lost(_) => false,
            Trouble::Failure(failure) => !(self.told_busy && failure.is_passing()),
            Trouble::Closed
            | Trouble::Forked
            | Trouble::TooLong(_)
            | Trouble::TooManyReads
            | Trouble::WouldDeadlock => true,
        });
        self.parts.len() - ends.count() >= majority(self.parts.len())
    }
}
