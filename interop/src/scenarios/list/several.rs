//! The part of the list for several at once: a semaphore's permits, and several locks.

use crate::hammer;
use crate::library::Shared;
use crate::scenarios::terms::{MULTI, MULTI_SHORT, PERMIT, PERMIT_PREFIXED, PERMIT_SHORT};
use crate::scenarios::{Play, Scenario, multi_lock, semaphore};

pub(super) const SEVERAL: &[Scenario] = &[
    Scenario {
        name: "sem-count",
        shows: "permits of both sides are counted together, and one too many is refused",
        play: Play::Pair(PERMIT, |stage| Box::pin(semaphore::counted(stage))),
    },
    Scenario {
        name: "sem-wake",
        shows: "a waiter for a permit wakes when one is given back, by message",
        play: Play::Pair(PERMIT, |stage| Box::pin(semaphore::wakes(stage))),
    },
    Scenario {
        name: "sem-set",
        shows: "who says how many there are, or adds some, wakes those who wait",
        play: Play::Pair(PERMIT, |stage| Box::pin(semaphore::raised(stage))),
    },
    Scenario {
        name: "sem-several",
        shows: "several permits at once, all or none",
        play: Play::Pair(PERMIT, |stage| Box::pin(semaphore::several(stage))),
    },
    Scenario {
        name: "sem-expiry",
        shows: "a permit whose lease is over is the other's",
        play: Play::Pair(PERMIT, |stage| Box::pin(semaphore::expires(stage))),
    },
    Scenario {
        name: "sem-kept",
        shows: "a permit that is kept is out for three times our lease, and both count it so",
        play: Play::Pair(PERMIT_SHORT, |stage| Box::pin(semaphore::is_kept(stage))),
    },
    Scenario {
        name: "sem-return",
        shows: "a permit is given back by its id, once: Java's by us, ours by Java from 3.17 on",
        play: Play::Pair(PERMIT, |stage| Box::pin(semaphore::by_id(stage))),
    },
    Scenario {
        name: "sem-death",
        shows: "the permit of a process that is killed comes back when its lease ends",
        play: Play::Pair(PERMIT_SHORT, |stage| Box::pin(semaphore::dead(stage))),
    },
    Scenario {
        name: "sem-names",
        shows: "semaphores with braces, colons, spaces, unicode in their names",
        play: Play::Pair(PERMIT, |stage| Box::pin(semaphore::odd_names(stage))),
    },
    Scenario {
        name: "sem-prefix",
        shows: "a key prefix is Redisson's NameMapper for semaphores, too",
        play: Play::Pair(PERMIT_PREFIXED, |stage| {
            Box::pin(semaphore::prefixed(stage))
        }),
    },
    Scenario {
        name: "sem-hammer",
        shows: "a hammer on a semaphore, with kills: never one too many, and all come back",
        play: Play::Fleet(Shared::Semaphore, |fleet| {
            Box::pin(hammer::permits::play(fleet))
        }),
    },
    Scenario {
        name: "multi-exclude",
        shows: "who holds several locks keeps the other from each, and from several with one of them",
        play: Play::Pair(MULTI, |stage| Box::pin(multi_lock::excludes(stage))),
    },
    Scenario {
        name: "multi-wake",
        shows: "a waiter for one of several, or several, wakes on unlock, by message",
        play: Play::Pair(MULTI, |stage| Box::pin(multi_lock::wakes(stage))),
    },
    Scenario {
        name: "multi-expiry",
        shows: "a lease of several locks that ends hands all over",
        play: Play::Pair(MULTI, |stage| Box::pin(multi_lock::expires(stage))),
    },
    Scenario {
        name: "multi-death",
        shows: "a process killed with all or half of its locks frees them when its lease ends",
        play: Play::Pair(MULTI_SHORT, |stage| Box::pin(multi_lock::dead(stage))),
    },
    Scenario {
        name: "multi-orders",
        shows: "both sides name the same locks in opposite orders, and both get on",
        play: Play::Pair(MULTI, |stage| Box::pin(multi_lock::opposite_orders(stage))),
    },
];
