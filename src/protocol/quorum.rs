//! Whether most servers have granted a lock, and for how long that can be relied on.
//!
//! Any two majorities of the same servers have one in common, and that one grants a lock to one owner at a time, for as long
//! as it remembers whom. One that restarted may have forgotten somebody whose lease is not over yet, so it has no vote for
//! as long as leases are. What was granted by most is then relied on for as long as most of the grants are.

use std::time::Duration;

use super::jitter::spread;

/// Which part of a lease a server may take to answer: those who wait for it lose that much.
const SHARE: u32 = 20;
/// However short a lease is.
const LEAST: Duration = Duration::from_millis(50);
/// Before they ask again, so that those who kept each other out do not meet again.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// What one server has made of the question.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Vote {
    /// It is ours there.
    Granted,
    /// It is somebody else's there.
    Refused,
    /// It has not answered, or could not, or restarted too short a time ago.
    Absent,
}

/// What is known of the whole by now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum QuorumStatus {
    /// Too many votes are still to come.
    Pending,
    /// It is ours.
    Won,
    /// It is not, and enough servers are there: others are in the way.
    Busy,
    /// It is not, and so few servers are there that nobody could have it.
    NoMajority,
}

/// The votes by now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct VoteCount {
    members: usize,
    granted: usize,
    refused: usize,
    absent: usize,
}

/// More than half.
pub fn majority(members: usize) -> usize {
    if planted!(QuorumOfTwo) {
        return members / 2;
    }
    members / 2 + 1
}

impl VoteCount {
    /// None yet, of so many.
    pub const fn of(members: usize) -> Self {
        Self {
            members,
            granted: 0,
            refused: 0,
            absent: 0,
        }
    }

    /// One more.
    pub const fn add(&mut self, vote: Vote) {
        match vote {
            Vote::Granted => self.granted += 1,
            Vote::Refused => self.refused += 1,
            Vote::Absent => self.absent += 1,
        }
    }

    /// What follows. No further vote makes it won once it is busy or without a majority, or takes it away once it is won.
    ///
    /// That it cannot be won is not enough: whoever is to know whether others are in the way, or servers missing, hears the
    /// rest out until one of the two is certain.
    pub fn status(&self) -> QuorumStatus {
        let needed = majority(self.members);
        let too_many = self.members - needed + 1;
        let heard = self.granted + self.refused + self.absent;
        if self.granted >= needed {
            QuorumStatus::Won
        } else if self.absent >= too_many {
            QuorumStatus::NoMajority
        } else if self.refused >= too_many || heard == self.members {
            QuorumStatus::Busy
        } else {
            QuorumStatus::Pending
        }
    }
}

/// For how long most of `members` can be relied on, given how long each of those that were granted can. Zero if too few
/// can.
pub fn majority_validity(mut each: Vec<Duration>, members: usize) -> Duration {
    each.sort_unstable_by(|a, b| b.cmp(a));
    let last_needed = majority(members) - 1;
    each.get(last_needed).copied().unwrap_or_default()
}

/// Whether a server that has been up for this long at least has a vote. By then everything it may have forgotten is over,
/// if nobody's lease is longer than `longest_lease`.
pub fn has_vote(uptime: Duration, longest_lease: Duration) -> bool {
    uptime >= longest_lease || planted!(YoungServerVotes)
}

/// How long one server may take to answer: far less than the lease.
pub fn reply_timeout(lease: Duration) -> Duration {
    (lease / SHARE).max(LEAST)
}

/// How long to rest before all are asked again.
pub fn pause(seed: u64) -> Duration {
    SHORTEST_PAUSE + spread(LONGEST_PAUSE - SHORTEST_PAUSE, seed)
}

#[cfg(test)]
mod tests;
