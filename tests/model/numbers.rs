//! Generates the next request for a counter, which has no owner.

use std::collections::BTreeSet;
use std::time::Duration;

use distlock::internals::protocol::{
    Action, ClientId, CounterOp, Entry, IdempotencyKey, Kind, OwnerId, SemaphoreOp,
};

use super::dice::{index_below, number_below, time};
use super::generator::{CallPath, Step};
use super::support::SeededRng;

/// Two clients and their requests.
pub(crate) struct Numbers {
    clients: [ClientId; 2],
    /// The last request of each.
    last: [i64; 2],
    /// The requests of each client without a reply so far.
    unsettled: [BTreeSet<i64>; 2],
    /// All requests that were ever generated, sent or not.
    all: Vec<(IdempotencyKey, CounterOp)>,
}

/// The most permits of one request.
const MOST: u32 = 3;

impl Numbers {
    pub(crate) const fn new(clients: [ClientId; 2]) -> Self {
        Self {
            clients,
            last: [0; 2],
            unsettled: [const { BTreeSet::new() }; 2],
            all: Vec::new(),
        }
    }

    pub(crate) fn next(&mut self, kind: Kind, tick: Duration, rng: &mut SeededRng) -> Option<Step> {
        let counting = kind == Kind::Counting;
        let action = match rng.below(100) {
            0..60 => self.alter(counting, tick, rng),
            60..72 => self.undo(counting, tick, rng),
            72..80 if counting => self.release(rng),
            72..84 => Action::SemaphoreOp(SemaphoreOp::Get),
            84..94 => Action::Inspect,
            94..97 => Action::ForceRelease,
            _ => return None,
        };
        let road = match rng.below(10) {
            0..2 => CallPath::ApartMixed,
            2..8 => CallPath::Together,
            _ => CallPath::Call,
        };
        Some(Step { kind, action, road })
    }

    fn alter(&mut self, counting: bool, tick: Duration, rng: &mut SeededRng) -> Action {
        // The network may deliver the same request again: soon, or long after its client has received the reply.
        let (key, change) = match self.all.len() {
            known @ 1.. if rng.chance(35) => self.all[index_below(known, rng)],
            _ => self.fresh(counting, tick, rng),
        };
        if rng.chance(50) {
            self.settle(key);
        }
        Action::CounterOp { key, change }
    }

    /// Undoes a request that was sent, or one that still will be.
    fn undo(&mut self, counting: bool, tick: Duration, rng: &mut SeededRng) -> Action {
        let (key, _) = match self.all.len() {
            known @ 1.. if rng.chance(70) => self.all[known - 1 - index_below(known.min(3), rng)],
            _ => self.fresh(counting, tick, rng),
        };
        let owner = key.id;
        let entry = Entry::Fresh;
        Action::Undo { owner, entry }
    }

    /// Releases the place of a waiter, or the permits of a request without a reply.
    fn release(&self, rng: &mut SeededRng) -> Action {
        let owner = match self.all.len() {
            known @ 1.. if rng.chance(60) => self.all[known - 1].0.id,
            _ => self.place(1 + number_below(MOST, rng), rng),
        };
        let left = u32::from(rng.chance(10));
        Action::Release { owner, left }
    }

    fn fresh(
        &mut self,
        counting: bool,
        tick: Duration,
        rng: &mut SeededRng,
    ) -> (IdempotencyKey, CounterOp) {
        let who = index_below(self.clients.len(), rng);
        self.last[who] += 1 + i64::from(number_below(2, rng));
        let number = self.last[who];
        let unsettled = &mut self.unsettled[who];
        unsettled.insert(number);
        let key = IdempotencyKey {
            id: OwnerId::new(self.clients[who], number),
            acked_below: unsettled.first().copied().unwrap_or(number),
        };
        let change = match counting {
            true => self.of_a_semaphore(tick, rng),
            false => of_a_latch(rng),
        };
        self.all.push((key, change));
        (key, change)
    }

    fn of_a_semaphore(&self, tick: Duration, rng: &mut SeededRng) -> CounterOp {
        let many = i64::from(number_below(5, rng));
        match rng.below(100) {
            0..50 => {
                let count = 1 + number_below(MOST, rng);
                let waits = (count > 1 && rng.chance(50)).then(|| time(tick, rng));
                let place = self.place(count, rng);
                CounterOp::Take {
                    queue_owner: place,
                    count,
                    waiter_ttl: waits,
                }
            }
            50..70 => CounterOp::Add(many),
            70..76 => CounterOp::Add(-many),
            // More than can be counted.
            76..79 => CounterOp::Add((1 << 53) - many),
            79..84 => CounterOp::Drain,
            84..87 => CounterOp::Delete,
            87..91 => CounterOp::Set(many),
            _ => CounterOp::SetOnce(many),
        }
    }

    /// Returns the place of a waiter; a place is always for the same number of permits.
    fn place(&self, count: u32, rng: &mut SeededRng) -> OwnerId {
        OwnerId::new(*rng.pick(&self.clients), -i64::from(count))
    }

    fn settle(&mut self, key: IdempotencyKey) {
        let who = self
            .clients
            .iter()
            .position(|client| *client == key.id.client());
        self.unsettled[who.expect("one of them")].remove(&key.id.number());
    }
}

fn of_a_latch(rng: &mut SeededRng) -> CounterOp {
    match rng.below(100) {
        0..35 => CounterOp::SetOnce(1 + i64::from(number_below(3, rng))),
        35..92 => CounterOp::CountDown,
        _ => CounterOp::Delete,
    }
}
