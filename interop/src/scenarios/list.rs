//! The list of scenarios. A new primitive adds its lines here.

mod numbers;
mod quorum;
mod several;
mod sites;

use super::terms::{
    FAIR, FAIR_PREFIXED, FAIR_SHORT, FENCED, FENCED_PREFIXED, PREFIXED, RW, RW_PREFIXED, RW_SHORT,
    RW_TRANSACTION, SHORT,
};
use super::{
    Play, Scenario, deaths, exclusion, fair_lock, fenced_lock, leases, leftovers, names, owners,
    read_write, reentry, refusals, simple_lock, together, turns, waiting,
};
use crate::hammer;
use crate::library::Shared;
use crate::simple::Scripts;
use crate::stage::Settings;

/// Returns every scenario, those of one lock in the order of its table.
pub(crate) fn all() -> impl Iterator<Item = &'static Scenario> {
    let locks = LOCKS.iter().chain(sites::SITES).chain(several::SEVERAL);
    locks.chain(numbers::NUMBERS).chain(quorum::QUORUM)
}

/// The scenarios on locks that one holder has, or many readers.
const LOCKS: &[Scenario] = &[
    Scenario {
        name: "exclude",
        shows: "a hold keeps the other out",
        play: Play::Pair(Settings::DEFAULT, |stage| Box::pin(exclusion::play(stage))),
    },
    Scenario {
        name: "wake",
        shows: "a waiter wakes on unlock, by message",
        play: Play::Pair(Settings::DEFAULT, |stage| Box::pin(waiting::wakes(stage))),
    },
    Scenario {
        name: "patience",
        shows: "a wait ends on time",
        play: Play::Pair(Settings::DEFAULT, |stage| {
            Box::pin(waiting::ends_on_time(stage))
        }),
    },
    Scenario {
        name: "expiry",
        shows: "a lease that ends hands over",
        play: Play::Pair(Settings::DEFAULT, |stage| Box::pin(leases::expires(stage))),
    },
    Scenario {
        name: "watchdog",
        shows: "a lease is kept for longer than it lasts",
        play: Play::Pair(SHORT, |stage| Box::pin(leases::is_kept(stage))),
    },
    Scenario {
        name: "reentry",
        shows: "re-entry is counted, read and respected",
        play: Play::Pair(Settings::DEFAULT, |stage| Box::pin(reentry::counts(stage))),
    },
    Scenario {
        name: "partial",
        shows: "a partial release keeps the lock",
        play: Play::Pair(SHORT, |stage| Box::pin(reentry::partly_released(stage))),
    },
    Scenario {
        name: "stranger",
        shows: "an unlock by a non-owner is refused",
        play: Play::Pair(Settings::DEFAULT, |stage| {
            Box::pin(refusals::strangers(stage))
        }),
    },
    Scenario {
        name: "force",
        shows: "a forced unlock is told to the holder",
        play: Play::Pair(SHORT, |stage| Box::pin(refusals::forced(stage))),
    },
    Scenario {
        name: "death",
        shows: "a holder that dies frees the lock when its lease ends",
        play: Play::Pair(SHORT, |stage| Box::pin(deaths::play(stage))),
    },
    Scenario {
        name: "names",
        shows: "names with braces, colons, spaces, unicode",
        play: Play::Pair(Settings::DEFAULT, |stage| Box::pin(names::odd(stage))),
    },
    Scenario {
        name: "prefix",
        shows: "a key prefix is Redisson's NameMapper",
        play: Play::Pair(PREFIXED, |stage| Box::pin(names::prefixed(stage))),
    },
    Scenario {
        name: "thread-ids",
        shows: "a lock that Java takes for thread -5, or any other number, is a lock like any",
        play: Play::Pair(Settings::DEFAULT, |stage| {
            Box::pin(owners::thread_ids(stage))
        }),
    },
    Scenario {
        name: "transaction",
        shows: "what a Redisson transaction changes is locked until it ends, and it waits for our lock",
        play: Play::Pair(Settings::DEFAULT, |stage| {
            Box::pin(owners::transaction(stage))
        }),
    },
    Scenario {
        name: "turns",
        shows: "a crowd of 64 lets the other have its turn",
        play: Play::Crowd(Settings::DEFAULT, |stage| Box::pin(turns::play(stage))),
    },
    Scenario {
        name: "leftovers",
        shows: "no channel and no key is left",
        play: Play::Pair(Settings::DEFAULT, |stage| Box::pin(leftovers::play(stage))),
    },
    Scenario {
        name: "together",
        shows: "all versions and us at once on one lock",
        play: Play::Together(|fleet| Box::pin(together::play(fleet))),
    },
    Scenario {
        name: "hammer",
        shows: "hammer: counters exact, no overlap",
        play: Play::Fleet(Shared::Plain, |fleet| Box::pin(hammer::play(fleet))),
    },
    Scenario {
        name: "fair-exclude",
        shows: "a fair hold keeps the other out",
        play: Play::Pair(FAIR, |stage| Box::pin(exclusion::play(stage))),
    },
    Scenario {
        name: "fair-wake",
        shows: "the first in line wakes on unlock, by a message of its own",
        play: Play::Pair(FAIR, |stage| Box::pin(waiting::wakes(stage))),
    },
    Scenario {
        name: "fair-patience",
        shows: "a wait in line ends on time",
        play: Play::Pair(FAIR, |stage| Box::pin(waiting::ends_on_time(stage))),
    },
    Scenario {
        name: "fair-reentry",
        shows: "re-entry into a fair lock is counted, read and respected",
        play: Play::Pair(FAIR, |stage| Box::pin(reentry::counts(stage))),
    },
    Scenario {
        name: "fair-names",
        shows: "fair locks with braces, colons, spaces, unicode in their names",
        play: Play::Pair(FAIR, |stage| Box::pin(names::odd(stage))),
    },
    Scenario {
        name: "fair-prefix",
        shows: "a key prefix is Redisson's NameMapper for the line, too",
        play: Play::Pair(FAIR_PREFIXED, |stage| Box::pin(names::prefixed(stage))),
    },
    Scenario {
        name: "fair-thread-ids",
        shows: "thread -5, or any other number, holds a fair lock and stands in line for it",
        play: Play::Pair(FAIR, |stage| Box::pin(owners::thread_ids(stage))),
    },
    Scenario {
        name: "fair-order",
        shows: "Java's threads and our tasks by turns: each has it in the order in which it came",
        play: Play::Pair(FAIR, |stage| Box::pin(fair_lock::in_order(stage))),
    },
    Scenario {
        name: "fair-leave",
        shows: "who gives up leaves the line, and those left keep their order",
        play: Play::Pair(FAIR, |stage| Box::pin(fair_lock::some_give_up(stage))),
    },
    Scenario {
        name: "fair-death",
        shows: "a holder that dies frees the fair lock when its lease ends",
        play: Play::Pair(FAIR_SHORT, |stage| Box::pin(deaths::play(stage))),
    },
    Scenario {
        name: "fair-dead-java",
        shows: "a JVM that was killed in line is passed over when Redisson's time for it is over",
        play: Play::Pair(FAIR_SHORT, |stage| Box::pin(fair_lock::dead_java(stage))),
    },
    Scenario {
        name: "fair-dead-ours",
        shows: "a process of ours that was killed in line is passed over within seconds, and Java is told",
        play: Play::Pair(FAIR_SHORT, |stage| Box::pin(fair_lock::dead_ours(stage))),
    },
    Scenario {
        name: "fair-lost",
        shows: "an unlock of a lost fair lock: ours says so, Redisson's only if another has it",
        play: Play::Pair(FAIR, |stage| Box::pin(fair_lock::lost(stage))),
    },
    Scenario {
        name: "fair-plain",
        shows: "a plain lock of the same name keeps the fair one out, and the other way round",
        play: Play::Pair(FAIR, |stage| Box::pin(fair_lock::beside_plain(stage))),
    },
    Scenario {
        name: "fair-mix",
        shows: "25 who wait 50 ms to 5 s each, again and again: everybody gets on, nothing is left",
        play: Play::Fleet(Shared::Fair, |fleet| Box::pin(fair_lock::mix(fleet))),
    },
    Scenario {
        name: "fair-hammer",
        shows: "a hammer on the fair lock: counters exact, no overlap",
        play: Play::Fleet(Shared::Fair, |fleet| Box::pin(hammer::play(fleet))),
    },
    Scenario {
        name: "fenced-exclude",
        shows: "a fenced hold keeps the other out",
        play: Play::Pair(FENCED, |stage| Box::pin(exclusion::play(stage))),
    },
    Scenario {
        name: "fenced-wake",
        shows: "a waiter for a fenced lock wakes on unlock, by message",
        play: Play::Pair(FENCED, |stage| Box::pin(waiting::wakes(stage))),
    },
    Scenario {
        name: "fenced-tokens",
        shows: "each goes on from the other's token, whatever the name and the way to lock",
        play: Play::Pair(FENCED, |stage| Box::pin(fenced_lock::tokens_grow(stage))),
    },
    Scenario {
        name: "fenced-prefix",
        shows: "a key prefix is Redisson's NameMapper for the token, too",
        play: Play::Pair(FENCED_PREFIXED, |stage| {
            Box::pin(fenced_lock::prefixed(stage))
        }),
    },
    Scenario {
        name: "fenced-reentry",
        shows: "a re-entry keeps our token and raises Redisson's; the next is greater",
        play: Play::Pair(FENCED, |stage| Box::pin(fenced_lock::reentry(stage))),
    },
    Scenario {
        name: "fenced-lost",
        shows: "the token after a lease that is over, or a forced unlock, is greater",
        play: Play::Pair(FENCED, |stage| Box::pin(fenced_lock::after_a_loss(stage))),
    },
    Scenario {
        name: "fenced-forgotten",
        shows: "after FLUSHALL our token is greater, and Redisson's is 1 unless it comes after ours",
        play: Play::Pair(FENCED, |stage| Box::pin(fenced_lock::forgotten(stage))),
    },
    Scenario {
        name: "fenced-plain",
        shows: "a plain lock of the same name keeps the fenced one out, and the other way round",
        play: Play::Pair(FENCED, |stage| Box::pin(fenced_lock::beside_plain(stage))),
    },
    Scenario {
        name: "fenced-turns",
        shows: "a crowd of 64 on a fenced lock lets the other have its turn; tokens grow",
        play: Play::Crowd(FENCED, |stage| Box::pin(turns::play(stage))),
    },
    Scenario {
        name: "fenced-hammer",
        shows: "a hammer on the fenced lock: counters exact, no overlap, tokens grow from hold to hold",
        play: Play::Fleet(Shared::Fenced, |fleet| Box::pin(hammer::play(fleet))),
    },
    Scenario {
        name: "rw-beside",
        shows: "readers of both sides hold it together and keep writers out",
        play: Play::Pair(RW, |stage| Box::pin(read_write::beside(stage))),
    },
    Scenario {
        name: "rw-exclude",
        shows: "a writer keeps the other's readers and writers out",
        play: Play::Pair(RW, |stage| Box::pin(read_write::excludes(stage))),
    },
    Scenario {
        name: "rw-wake",
        shows: "a waiting reader or writer wakes on unlock, by message",
        play: Play::Pair(RW, |stage| Box::pin(read_write::wakes(stage))),
    },
    Scenario {
        name: "rw-asleep",
        shows: "who falls asleep as a writer leaves has the lock: most times at once, Java's after the lease at the latest",
        play: Play::Pair(RW, |stage| Box::pin(read_write::falls_asleep(stage))),
    },
    Scenario {
        name: "rw-all",
        shows: "a writer's unlock lets all waiting readers in together",
        play: Play::Pair(RW, |stage| Box::pin(read_write::wakes_all_readers(stage))),
    },
    Scenario {
        name: "rw-downgrade",
        shows: "a writer that reads on lets the other's readers in: at once after our downgrade",
        play: Play::Pair(RW, |stage| Box::pin(read_write::downgrades(stage))),
    },
    Scenario {
        name: "rw-upgrade",
        shows: "our reader may write if nobody else reads, and goes back to reading",
        play: Play::Pair(RW, |stage| Box::pin(read_write::upgrades(stage))),
    },
    Scenario {
        name: "rw-reentry",
        shows: "readers and writers enter again, and are waited for",
        play: Play::Pair(RW, |stage| Box::pin(read_write::reentry(stage))),
    },
    Scenario {
        name: "rw-pass",
        shows: "our readers stand behind our waiting writer, and Java's pass it",
        play: Play::Pair(RW, |stage| {
            Box::pin(read_write::readers_pass_a_writer(stage))
        }),
    },
    Scenario {
        name: "rw-watchdog",
        shows: "a long read is held while a short watchdog renews beside it, and when that has left or died",
        play: Play::Pair(RW_SHORT, |stage| Box::pin(read_write::watchdogs(stage))),
    },
    Scenario {
        name: "rw-death",
        shows: "a reader that is killed keeps writers out for its own lease, whoever else reads",
        play: Play::Pair(RW_SHORT, |stage| Box::pin(read_write::dead_reader(stage))),
    },
    Scenario {
        name: "rw-force",
        shows: "what is forced open is its readers' and its writer's loss",
        play: Play::Pair(RW_SHORT, |stage| Box::pin(read_write::forced(stage))),
    },
    Scenario {
        name: "rw-names",
        shows: "read/write locks with braces, colons, spaces, unicode",
        play: Play::Pair(RW, |stage| Box::pin(read_write::odd_names(stage))),
    },
    Scenario {
        name: "rw-prefix",
        shows: "a key prefix is Redisson's NameMapper for read/write locks, too",
        play: Play::Pair(RW_PREFIXED, |stage| Box::pin(read_write::prefixed(stage))),
    },
    Scenario {
        name: "rw-thread-ids",
        shows: "thread -5, or any other number, reads and writes",
        play: Play::Pair(RW, |stage| Box::pin(owners::rw_thread_ids(stage))),
    },
    Scenario {
        name: "rw-transaction",
        shows: "a map that a Redisson transaction deletes is locked by a writer until it ends",
        play: Play::Pair(RW_TRANSACTION, |stage| {
            Box::pin(owners::rw_transaction(stage))
        }),
    },
    Scenario {
        name: "rw-hammer",
        shows: "a hammer of readers and writers: counters exact, writers alone, readers together",
        play: Play::Fleet(Shared::ReadWrite, |fleet| {
            Box::pin(hammer::read_write::play(fleet))
        }),
    },
    Scenario {
        name: "simple-exclude",
        shows: "a hold is one string with a time to live, and keeps the other out",
        play: Play::Simple(Scripts::On, |stage| Box::pin(simple_lock::excludes(stage))),
    },
    Scenario {
        name: "simple-handover",
        shows: "a waiter has the lock soon after it is given back, though nobody is told",
        play: Play::Simple(Scripts::On, |stage| {
            Box::pin(simple_lock::hands_over(stage))
        }),
    },
    Scenario {
        name: "simple-expiry",
        shows: "a lease that is over hands over, and its former holder disturbs nobody",
        play: Play::Simple(Scripts::On, |stage| Box::pin(simple_lock::expires(stage))),
    },
    Scenario {
        name: "simple-kept",
        shows: "a lease is kept or extended for longer than it lasts",
        play: Play::Simple(Scripts::On, |stage| Box::pin(simple_lock::is_kept(stage))),
    },
    Scenario {
        name: "simple-taken",
        shows: "who has lost the lock is told, and cannot give back or extend the other's",
        play: Play::Simple(Scripts::On, |stage| Box::pin(simple_lock::is_taken(stage))),
    },
    Scenario {
        name: "simple-names",
        shows: "names with braces, colons, spaces, unicode; our key prefix is part of their name",
        play: Play::Simple(Scripts::On, |stage| Box::pin(simple_lock::names(stage))),
    },
    Scenario {
        name: "simple-values",
        shows: "a lock keeps the other out whatever its value: chosen by the application, or the library's own",
        play: Play::Simple(Scripts::On, |stage| Box::pin(simple_lock::any_value(stage))),
    },
    Scenario {
        name: "simple-unscripted",
        shows: "the same without scripts on our side",
        play: Play::Simple(Scripts::Off, |stage| {
            Box::pin(simple_lock::unscripted(stage))
        }),
    },
    Scenario {
        name: "simple-hammer",
        shows: "a hammer on the simple lock: counters exact, no overlap",
        play: Play::SimpleFleet(|fleet| Box::pin(hammer::play(fleet))),
    },
];

/// The scenarios that take too long to be played unless they are named.
pub(crate) const LONG_FORMS: &[Scenario] = &[Scenario {
    name: "fair-long",
    shows: "the same, a thousand times each",
    play: Play::Long(Shared::Fair, |fleet| Box::pin(fair_lock::long_mix(fleet))),
}];
