//! Thinks up what is asked next of several locks at once.

use std::sync::Arc;
use std::time::Duration;

use distlock::internals::engine::Before;
use distlock::internals::protocol::permit::{owner_of, wanted_by};
use distlock::internals::protocol::{
    Action, Channel, ClientId, Count, Entry, Kind, OwnerId, Request, Subject, Wanted,
};

use super::dice::{index_below, number_below, seen, time};
use super::generator::MOST_PERMITS;
use super::support::SeededRng;

/// All that can be taken together with others.
pub(crate) const TOGETHER: [Kind; 7] = [
    Kind::Mutex,
    Kind::Fenced,
    Kind::Fair,
    Kind::Read,
    Kind::Write,
    Kind::Simple,
    Kind::Semaphore,
];

/// Some names, and everyone who has to do with them.
pub(crate) struct Company {
    places: Vec<Place>,
    clients: [ClientId; 3],
    /// Each that asks for several is somebody new.
    last: i64,
    /// What was undone in part before it was sent.
    late: Vec<Move>,
}

/// What is asked at once.
#[derive(Clone, Debug)]
pub(crate) enum Move {
    /// Several locks in one step.
    All(Vec<Request>, Before),
    /// One thing of one of them.
    One(Request),
}

struct Place {
    name: Arc<str>,
    /// What is asked for under this name.
    kinds: &'static [Kind],
    /// Those who ask for this one alone, wait for it and come back to it.
    alone: [(Kind, OwnerId); 2],
    /// Those who have asked for it with others.
    asked: Vec<(Kind, OwnerId)>,
}

/// Names of one company: few, so that they come twice in what is asked at once.
const NAMES: usize = 3;
/// How many locks are asked for at once, and no more.
const MOST: usize = 4;
/// What may be asked for under one name. Simple locks are of another kind than what they live beside.
const KINDS: [&[Kind]; 3] = [
    &[
        Kind::Mutex,
        Kind::Fenced,
        Kind::Fair,
        Kind::Mutex,
        Kind::Fenced,
        Kind::Fair,
        Kind::Simple,
    ],
    &[Kind::Read, Kind::Read, Kind::Write],
    &[Kind::Semaphore],
];

impl Company {
    pub(crate) fn new(name: &str, rng: &mut SeededRng) -> Self {
        let clients = [1_u8, 2, 3].map(|number| ClientId::new([number; 16]));
        let mut place = |letter: usize| {
            let kinds = *rng.pick(&KINDS);
            let mut alone = |number: i64| {
                let kind = *rng.pick(kinds);
                (kind, owner(kind, clients[1], number, rng))
            };
            Place {
                name: format!("{name}-{letter}").into(),
                kinds,
                alone: [alone(1), alone(2)],
                asked: Vec::new(),
            }
        };
        Self {
            places: (0..NAMES).map(&mut place).collect(),
            clients,
            last: 2,
            late: Vec::new(),
        }
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.places.iter().map(|place| &place.name)
    }

    /// Where some listen: nobody, one or two at each lock's own channel, and those who may wait in its line.
    pub(crate) fn channels(&self, rng: &mut SeededRng) -> Vec<Channel> {
        let mut channels = Vec::new();
        for place in &self.places {
            let own = Subject::new(place.kinds[0], place.name.clone()).channel();
            channels.extend(vec![own; index_below(3, rng)]);
            let fair = place.alone.iter().filter(|(kind, _)| kind.has_line());
            let waiter = |(_, owner): &(Kind, OwnerId)| Channel::Waiter(place.name.clone(), *owner);
            channels.extend(fair.map(waiter));
        }
        channels
    }

    /// Looks at all that can be seen of all of them.
    pub(crate) fn looks(&self) -> Vec<Request> {
        let looks = self.places.iter().flat_map(|place| {
            let kinds: &[Kind] = match place.kinds[0] {
                Kind::Mutex => &[Kind::Fair, Kind::Simple],
                _ => &place.kinds[..1],
            };
            kinds
                .iter()
                .map(|kind| place.request(*kind, Action::Inspect))
        });
        looks.chain(self.counts()).collect()
    }

    /// Looks at what comes back by itself once somebody asks: a call that fails has found it on one store, and not on
    /// another, which has taken back that, too.
    pub(crate) fn counts(&self) -> Vec<Request> {
        let semaphores = self.places.iter().filter(|place| place.is_semaphore());
        let look = |place: &Place| place.request(Kind::Semaphore, Action::Count(Count::Look));
        semaphores.map(look).collect()
    }

    /// What happens next; `None` if nothing but time passes.
    pub(crate) fn next(&mut self, tick: Duration, rng: &mut SeededRng) -> Option<Move> {
        let place = index_below(self.places.len(), rng);
        let place = &self.places[place];
        let one = match rng.below(100) {
            0..42 => return Some(self.several(tick, rng)),
            42..58 => place.ask_one_of_those(rng, |owner| Action::Release { owner, left: 0 }),
            58..62 => return Some(self.undo_what_comes(tick, rng)),
            62..68 => place.ask_one_of_those(rng, |owner| Action::Undo {
                owner,
                entry: Entry::First,
            }),
            68..74 => {
                let lease = time(tick, rng);
                place.ask_one_of_those(rng, |owner| Action::Renew { owner, lease })
            }
            74..90 => {
                let (kind, owner) = *rng.pick(&place.alone);
                let waits = kind.is_announced(wanted_by(owner)) && rng.chance(75);
                let waits = waits.then(|| time(tick, rng));
                place.request(kind, acquire(kind, owner, waits, None, tick, rng))
            }
            90..93 => place.request(*rng.pick(place.kinds), Action::ForceRelease),
            93..98 if place.is_semaphore() => {
                let many = number_below(5, rng);
                let counts = [Count::Set(many), Count::SetOnce(many), Count::Forget];
                place.request(Kind::Semaphore, Action::Count(*rng.pick(&counts)))
            }
            _ => return None,
        };
        Some(Move::One(one))
    }

    fn several(&mut self, tick: Duration, rng: &mut SeededRng) -> Move {
        if !self.late.is_empty() && rng.chance(60) {
            return self.late.swap_remove(0);
        }
        let many = 1 + index_below(MOST, rng);
        let requests = (0..many).map(|_| self.member(tick, rng)).collect();
        let before = *rng.pick(&[Before::Kept, Before::RolledBack]);
        Move::All(requests, before)
    }

    /// One of several, from zero, as somebody who was never there before.
    fn member(&mut self, tick: Duration, rng: &mut SeededRng) -> Request {
        self.last += 1;
        let client = *rng.pick(&self.clients);
        let place = index_below(self.places.len(), rng);
        let place = &mut self.places[place];
        let kind = *rng.pick(place.kinds);
        let owner = owner(kind, client, self.last, rng);
        let beside = place.beside(kind).filter(|_| rng.chance(40));
        place.asked.push((kind, owner));
        place.request(kind, acquire(kind, owner, None, beside, tick, rng))
    }

    /// Undoes one of several that are still to be asked for.
    fn undo_what_comes(&mut self, tick: Duration, rng: &mut SeededRng) -> Move {
        let several = self.several(tick, rng);
        let Move::All(requests, _) = &several else {
            return several;
        };
        let Request { subject, action } = rng.pick(requests);
        let Action::Acquire { owner, entry, .. } = action else {
            unreachable!("nothing but locks is taken");
        };
        let (owner, entry) = (*owner, *entry);
        let undo = subject.request(Action::Undo { owner, entry });
        self.late.push(several);
        Move::One(undo)
    }
}

impl Place {
    fn request(&self, kind: Kind, action: Action) -> Request {
        Subject::new(kind, self.name.clone()).request(action)
    }

    fn is_semaphore(&self) -> bool {
        self.kinds[0] == Kind::Semaphore
    }

    /// Asks something as one of those who may have it: of the latest, or of those who ask for it alone.
    fn ask_one_of_those(
        &self,
        rng: &mut SeededRng,
        action: impl FnOnce(OwnerId) -> Action,
    ) -> Request {
        let known = self.asked.len();
        let (kind, owner) = match known.min(LATEST) {
            latest @ 1.. if rng.chance(80) => self.asked[known - 1 - index_below(latest, rng)],
            _ => *rng.pick(&self.alone),
        };
        self.request(kind, action(owner))
    }

    /// The latest on the other side of a read/write lock.
    fn beside(&self, kind: Kind) -> Option<OwnerId> {
        let other = kind.other_side()?;
        let there = self.asked.iter().rev().find(|(kind, _)| *kind == other);
        there.map(|(_, owner)| *owner)
    }
}

/// Who asked before these has most often gone.
const LATEST: usize = 4;

fn owner(kind: Kind, client: ClientId, number: i64, rng: &mut SeededRng) -> OwnerId {
    match kind {
        Kind::Semaphore => owner_of(client, number, 1 + number_below(MOST_PERMITS, rng)),
        _ => OwnerId::new(client, number),
    }
}

fn acquire(
    kind: Kind,
    owner: OwnerId,
    waits: Option<Duration>,
    beside: Option<OwnerId>,
    tick: Duration,
    rng: &mut SeededRng,
) -> Action {
    let permits = match kind {
        Kind::Semaphore => Wanted {
            count: wanted_by(owner),
            of: rng.chance(60).then(|| 1 + number_below(4, rng)),
        },
        _ => Wanted::ONE,
    };
    Action::Acquire {
        owner,
        entry: Entry::First,
        lease: time(tick, rng),
        seen: seen(rng),
        waits,
        beside,
        past: false,
        permits,
    }
}
