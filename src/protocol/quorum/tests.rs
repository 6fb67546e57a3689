//! Votes in every order, and thousands of steps with servers that forget and clients that accept
//! every grant.

use std::time::Duration;

use super::{
    QuorumStatus, Vote, VoteCount, has_vote, majority, majority_validity, pause, reply_timeout,
};

const MILLIS: fn(u64) -> Duration = Duration::from_millis;

fn count(votes: &[Vote], members: usize) -> VoteCount {
    let mut count = VoteCount::of(members);
    votes.iter().for_each(|vote| count.add(*vote));
    count
}

/// Every sequence of this many votes.
fn every(members: u32) -> impl Iterator<Item = Vec<Vote>> {
    let kinds = [Vote::Granted, Vote::Refused, Vote::Absent];
    (0..3_usize.pow(members)).map(move |number| {
        let digits = (0..members).map(|place| number / 3_usize.pow(place) % 3);
        digits.map(|digit| kinds[digit]).collect()
    })
}

#[test]
fn more_than_half_is_a_majority() {
    assert_eq!([1, 2, 3, 4, 5, 6, 7].map(majority), [1, 2, 2, 3, 3, 4, 4]);
}

#[test]
fn a_vote_is_won_by_more_than_half_and_by_nothing_less() {
    for members in 1..=7 {
        for votes in every(members) {
            let members = votes.len();
            let granted = votes.iter().filter(|vote| **vote == Vote::Granted).count();
            let absent = votes.iter().filter(|vote| **vote == Vote::Absent).count();
            let expected = match granted * 2 > members {
                true => QuorumStatus::Won,
                false if (members - absent) * 2 > members => QuorumStatus::Busy,
                false => QuorumStatus::NoMajority,
            };
            assert_eq!(count(&votes, members).status(), expected, "{votes:?}");
        }
    }
}

#[test]
fn a_decided_vote_stays_decided() {
    for votes in every(5) {
        let all = count(&votes, 5).status();
        for heard in 0..5 {
            match count(&votes[..heard], 5).status() {
                QuorumStatus::Pending => {}
                QuorumStatus::Won => assert_eq!(all, QuorumStatus::Won, "{votes:?} at {heard}"),
                QuorumStatus::Busy | QuorumStatus::NoMajority => {
                    assert_ne!(all, QuorumStatus::Won, "{votes:?} at {heard}");
                }
            }
        }
    }
}

#[test]
fn the_other_holder_is_not_reported_before_it_is_certain() {
    let (refused, absent) = (Vote::Refused, Vote::Absent);
    let mixed = count(&[refused, refused, absent], 5);
    assert_eq!(
        mixed.status(),
        QuorumStatus::Pending,
        "the other two may be missing, too"
    );
    assert_eq!(count(&[refused; 3], 5).status(), QuorumStatus::Busy);
    assert_eq!(count(&[absent; 3], 5).status(), QuorumStatus::NoMajority);
    let rest = count(&[refused, refused, absent, absent, absent], 5);
    assert_eq!(rest.status(), QuorumStatus::NoMajority);
}

#[test]
fn a_quorum_hold_is_valid_until_too_few_votes_are_left() {
    let each = vec![MILLIS(30), MILLIS(10), MILLIS(50), MILLIS(20)];
    assert_eq!(majority_validity(each.clone(), 5), MILLIS(20));
    assert_eq!(majority_validity(each[..2].to_vec(), 5), Duration::ZERO);
    assert_eq!(majority_validity(each[..3].to_vec(), 5), MILLIS(10));
    assert_eq!(
        majority_validity(vec![MILLIS(30), Duration::ZERO], 3),
        Duration::ZERO
    );
}

#[test]
fn the_reply_timeout_is_far_shorter_than_the_lease() {
    assert_eq!(reply_timeout(MILLIS(30_000)), MILLIS(1_500));
    assert_eq!(reply_timeout(MILLIS(100)), MILLIS(50));
}

#[test]
fn a_pause_is_short_and_jittered() {
    let pauses: Vec<_> = (0..100).map(pause).collect();
    assert!(
        pauses
            .iter()
            .all(|it| (MILLIS(50)..=MILLIS(250)).contains(it))
    );
    assert!(pauses.iter().any(|it| *it < MILLIS(100)));
    assert!(pauses.iter().any(|it| *it > MILLIS(200)));
}

/// Five servers and some clients, in steps of one millisecond.
struct World {
    dice: u64,
    now: u64,
    /// For each server: the holder and the end of its lease, then when the server started.
    servers: [(Option<(usize, u64)>, u64); 5],
    /// For each client: until when it relies on each server's grant.
    believed: Vec<[u64; 5]>,
    longest_lease: Duration,
}

const LEASE: u64 = 20;

impl World {
    fn roll(&mut self, sides: u64) -> u64 {
        self.dice = self
            .dice
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.dice >> 33) % sides
    }

    fn holds(&self, client: usize) -> bool {
        let each = self.believed[client].iter();
        let each = each.map(|until| MILLIS(until.saturating_sub(self.now)));
        majority_validity(each.collect(), 5) > Duration::ZERO
    }

    fn ask(&mut self, client: usize, server: usize) -> Vote {
        let (holder, started) = self.servers[server];
        if !has_vote(MILLIS(self.now - started), self.longest_lease) || self.roll(8) == 0 {
            return Vote::Absent;
        }
        match holder {
            Some((other, until)) if other != client && until > self.now => Vote::Refused,
            _ => {
                self.servers[server].0 = Some((client, self.now + LEASE));
                self.believed[client][server] = self.now + LEASE;
                Vote::Granted
            }
        }
    }

    fn step(&mut self) {
        self.now += 1;
        let server = usize::try_from(self.roll(5)).unwrap_or(0);
        // Servers restart one at a time, the next one only when the last has a vote again: a
        // minority.
        let all_vote = self
            .servers
            .iter()
            .all(|(_, started)| self.now - started > 2 * LEASE);
        if all_vote && self.roll(10) == 0 {
            self.servers[server] = (None, self.now);
        }
        let client = usize::try_from(self.roll(4)).unwrap_or(0);
        if self.holds(client) {
            return;
        }
        let mut count = VoteCount::of(5);
        for place in 0..5 {
            count.add(self.ask(client, (server + place) % 5));
        }
        if count.status() != QuorumStatus::Won {
            for server in 0..5 {
                self.believed[client][server] = 0;
                if self.servers[server]
                    .0
                    .is_some_and(|(holder, _)| holder == client)
                {
                    self.servers[server].0 = None;
                }
            }
        }
    }
}

/// Returns in how many steps a client held the lock, and in how many two clients did.
fn overlaps(longest_lease: u64) -> (usize, usize) {
    let mut world = World {
        dice: 7,
        now: 1_000,
        servers: [(None, 0); 5],
        believed: vec![[0; 5]; 4],
        longest_lease: MILLIS(longest_lease),
    };
    let (mut held, mut overlaps) = (0, 0);
    for _ in 0..200_000 {
        world.step();
        let holders = (0..4).filter(|client| world.holds(*client)).count();
        held += usize::from(holders > 0);
        overlaps += usize::from(holders > 1);
    }
    (held, overlaps)
}

#[test]
fn no_two_clients_hold_it_while_servers_restart_empty_in_turn() {
    let (held, overlaps) = overlaps(LEASE);
    assert!(held > 100_000, "it was held in {held} steps only");
    assert_eq!(overlaps, 0);
}

#[test]
fn two_clients_hold_it_if_a_server_votes_right_after_its_restart() {
    let (_, overlaps) = overlaps(0);
    assert!(overlaps > 0, "the world above would not notice");
}
