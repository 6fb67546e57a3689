//! The part of the list for numbers without holders: the counting semaphore, and the latch.

use crate::hammer;
use crate::library::Shared;
use crate::scenarios::terms::{COUNTING, COUNTING_PREFIXED, LATCH, LATCH_PREFIXED};
use crate::scenarios::{Play, Scenario, counting, latch};

pub(super) const NUMBERS: &[Scenario] = &[
    Scenario {
        name: "counting-set",
        shows: "either side says how many permits there are, once, and either forgets it",
        play: Play::Pair(COUNTING, |stage| Box::pin(counting::set(stage))),
    },
    Scenario {
        name: "counting-share",
        shows: "who takes permits leaves the other fewer, and either side gives them back",
        play: Play::Pair(COUNTING, |stage| Box::pin(counting::shared(stage))),
    },
    Scenario {
        name: "counting-wake",
        shows: "a waiter for one that is nobody's wakes when it comes back, by message",
        play: Play::Pair(COUNTING, |stage| Box::pin(counting::wakes(stage))),
    },
    Scenario {
        name: "counting-several",
        shows: "a waiter for three has them when the third comes back, and none before",
        play: Play::Pair(COUNTING, |stage| Box::pin(counting::several(stage))),
    },
    Scenario {
        name: "counting-line",
        shows: "ours stand behind one of ours that waits for several; Java passes it, and is passed",
        play: Play::Pair(COUNTING, |stage| Box::pin(counting::in_line(stage))),
    },
    Scenario {
        name: "counting-patience",
        shows: "a wait for permits ends on time, takes none and leaves nothing",
        play: Play::Pair(COUNTING, |stage| Box::pin(counting::ends_on_time(stage))),
    },
    Scenario {
        name: "counting-add",
        shows: "more permits wake who waits (by message, but for Java's before 3.16.2), fewer than none do not, and all can be drained",
        play: Play::Pair(COUNTING, |stage| Box::pin(counting::added(stage))),
    },
    Scenario {
        name: "counting-forget",
        shows: "who waits when it is forgotten wakes when somebody says anew how many there are",
        play: Play::Pair(COUNTING, |stage| Box::pin(counting::forgotten(stage))),
    },
    Scenario {
        name: "counting-names",
        shows: "semaphores that only count with braces, colons, spaces, unicode in their names",
        play: Play::Pair(COUNTING, |stage| Box::pin(counting::odd_names(stage))),
    },
    Scenario {
        name: "counting-prefix",
        shows: "a key prefix is Redisson's NameMapper for semaphores that only count, too",
        play: Play::Pair(COUNTING_PREFIXED, |stage| {
            Box::pin(counting::prefixed(stage))
        }),
    },
    Scenario {
        name: "counting-hammer",
        shows: "a hammer on semaphores that only count: none made up, none lost but what the killed had",
        play: Play::Fleet(Shared::Counting, |fleet| {
            Box::pin(hammer::counting::play(fleet))
        }),
    },
    Scenario {
        name: "latch-set",
        shows: "a latch is set once until it is open, and both sides count it down",
        play: Play::Pair(LATCH, |stage| Box::pin(latch::set(stage))),
    },
    Scenario {
        name: "latch-open",
        shows: "who waits goes on after the last count, by message",
        play: Play::Pair(LATCH, |stage| Box::pin(latch::opens(stage))),
    },
    Scenario {
        name: "latch-all",
        shows: "both sides wait, both count: nobody goes on before the last count, and all do then",
        play: Play::Pair(LATCH, |stage| Box::pin(latch::all_waiters(stage))),
    },
    Scenario {
        name: "latch-again",
        shows: "what is open is set anew by either side, again and again",
        play: Play::Pair(LATCH, |stage| Box::pin(latch::again(stage))),
    },
    Scenario {
        name: "latch-patience",
        shows: "a wait for a latch ends on time and leaves nothing",
        play: Play::Pair(LATCH, |stage| Box::pin(latch::ends_on_time(stage))),
    },
    Scenario {
        name: "latch-delete",
        shows: "deleting a latch lets ours go on, and Java's if we delete it",
        play: Play::Pair(LATCH, |stage| Box::pin(latch::deleted(stage))),
    },
    Scenario {
        name: "latch-names",
        shows: "latches with braces, colons, spaces, unicode in their names",
        play: Play::Pair(LATCH, |stage| Box::pin(latch::odd_names(stage))),
    },
    Scenario {
        name: "latch-prefix",
        shows: "a key prefix is Redisson's NameMapper for latches, too",
        play: Play::Pair(LATCH_PREFIXED, |stage| Box::pin(latch::prefixed(stage))),
    },
];
