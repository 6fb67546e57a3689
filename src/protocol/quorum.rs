//! Whether a majority of servers has granted a lock, and for how long that can be relied on.
//!
//! Any two majorities of the same servers have one server in common, and that server grants a lock
//! to one owner at a time, for as long as it remembers the owner. A server that restarted may have
//! forgotten an owner whose lease is not over yet, so it has no vote for the length of the longest
//! lease. A grant by a majority can be relied on for as long as a majority of its single grants
//! can.

use std::time::Duration;

use super::jitter::spread;

/// The part of a lease that a server may take to reply: an acquire that waits for it loses that
/// much.
const SHARE: u32 = 20;
/// Lower bound of the time to reply, however short the lease is.
const LEAST: Duration = Duration::from_millis(50);
/// Bounds of the pause before a retry, so that clients that refused each other the majority do not
/// collide again.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// The result of the request at one server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Vote {
    /// The server granted the lock to this owner.
    Granted,
    /// Another owner holds the lock there.
    Refused,
    /// The server has not replied, could not, or restarted too short a time ago.
    Absent,
}

/// The result of the vote so far.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum QuorumStatus {
    /// Too many votes are still missing.
    Pending,
    /// The lock is granted.
    Won,
    /// The lock is not granted, and enough servers replied: other owners are in the way.
    Busy,
    /// The lock is not granted, and so few servers replied that no owner could be granted it.
    NoMajority,
}

/// The votes so far.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct VoteCount {
    members: usize,
    granted: usize,
    refused: usize,
    absent: usize,
}

/// Returns the number that is more than half of `members`.
pub fn majority(members: usize) -> usize {
    if planted!(QuorumOfTwo) {
        return members / 2;
    }
    members / 2 + 1
}

impl VoteCount {
    /// Creates an empty count for this many servers.
    pub const fn of(members: usize) -> Self {
        Self {
            members,
            granted: 0,
            refused: 0,
            absent: 0,
        }
    }

    /// Adds a vote.
    pub const fn add(&mut self, vote: Vote) {
        match vote {
            Vote::Granted => self.granted += 1,
            Vote::Refused => self.refused += 1,
            Vote::Absent => self.absent += 1,
        }
    }

    /// Returns the result of the votes so far. No further vote turns `Busy` or `NoMajority` into
    /// `Won`, nor `Won` into another result.
    ///
    /// The result stays `Pending` even if the majority is out of reach, until it is certain whether
    /// other owners or missing servers are the reason.
    pub fn status(&self) -> QuorumStatus {
        let needed = majority(self.members);
        let too_many = self.members - needed + 1;
        let received = self.granted + self.refused + self.absent;
        if self.granted >= needed {
            QuorumStatus::Won
        } else if self.absent >= too_many {
            QuorumStatus::NoMajority
        } else if self.refused >= too_many || received == self.members {
            QuorumStatus::Busy
        } else {
            QuorumStatus::Pending
        }
    }
}

/// Returns for how long a majority of `members` can be relied on, given how long each grant can.
/// Zero if there are too few grants.
pub fn majority_validity(mut each: Vec<Duration>, members: usize) -> Duration {
    each.sort_unstable_by(|a, b| b.cmp(a));
    let last_needed = majority(members) - 1;
    each.get(last_needed).copied().unwrap_or_default()
}

/// Reports whether a server that has been up for at least this long has a vote. By then every lease
/// that it may have forgotten is over, if no lease is longer than `longest_lease`.
pub fn has_vote(uptime: Duration, longest_lease: Duration) -> bool {
    uptime >= longest_lease || planted!(YoungServerVotes)
}

/// Returns how long one server may take to reply: far less than the lease.
pub fn reply_timeout(lease: Duration) -> Duration {
    (lease / SHARE).max(LEAST)
}

/// Returns how long to pause before the next request to all servers.
pub fn pause(seed: u64) -> Duration {
    SHORTEST_PAUSE + spread(LONGEST_PAUSE - SHORTEST_PAUSE, seed)
}

#[cfg(test)]
mod tests;
