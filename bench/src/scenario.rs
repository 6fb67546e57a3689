//! The scenarios: what is measured, in which cells, and with which contestants.

mod cycle;
mod handoff;
mod held;
mod queue;

use crate::book::Result;
use crate::failure::{Failure, Outcome};
use crate::options::Pace;
use crate::roster::{self, Contestant};
use crate::stage::Stage;

/// One scenario.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) shows: &'static str,
    /// Whether one repetition is enough, as for scenarios that take a minute and compare nothing.
    pub(crate) once: bool,
    pub(crate) cells: fn(Pace) -> Vec<Cell>,
    pub(crate) takes_part: fn(Contestant) -> bool,
    pub(crate) play: fn(&mut Stage, &Act) -> Outcome<Result>,
}

/// A part of a scenario: the numbers of processes, callers and names.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) label: String,
    pub(crate) processes: usize,
    /// The number of callers in each process.
    pub(crate) callers: usize,
    pub(crate) names: usize,
}

/// One contestant, in one cell, once.
#[derive(Debug)]
pub(crate) struct Act {
    pub(crate) scenario: &'static str,
    pub(crate) cell: Cell,
    pub(crate) contestant: &'static Contestant,
    pub(crate) repetition: u32,
}

pub(crate) const ALL: &[Scenario] = &[
    Scenario {
        name: "U",
        shows: "uncontended: each caller locks and unlocks a name of its own, through one client",
        once: false,
        cells: |pace| {
            let most = if pace == Pace::Smoke { 256 } else { 4096 };
            let counts = [1, 16, 256, 4096].into_iter();
            counts
                .filter(|callers| *callers <= most)
                .map(|callers| Cell::new(callers.to_string(), callers, callers))
                .collect()
        },
        takes_part: |one| !one.is_embedded() && !one.is_family(),
        play: cycle::play,
    },
    Scenario {
        name: "C1",
        shows: "contended: 64 callers of one process take turns at one name",
        once: false,
        cells: |_| vec![Cell::new("1 × 64", 64, 1)],
        takes_part: Contestant::is_on_a_server,
        play: cycle::play,
    },
    Scenario {
        name: "C2",
        shows: "contended: 4 processes with 16 callers each take turns at one name",
        once: false,
        cells: |_| {
            vec![Cell {
                processes: 4,
                ..Cell::new("4 × 16", 16, 1)
            }]
        },
        takes_part: Contestant::is_on_a_server,
        play: cycle::play,
    },
    Scenario {
        name: "H",
        shows: "hand-off: from one process's call of release until another process, asleep, holds",
        once: false,
        cells: |_| {
            vec![Cell {
                processes: 2,
                ..Cell::new("2 processes", 1, 1)
            }]
        },
        takes_part: Contestant::is_on_a_server,
        play: handoff::play,
    },
    Scenario {
        name: "W",
        shows: "held locks, kept alive by their client",
        once: true,
        cells: |pace| {
            let names = match pace {
                Pace::Full => 100_000,
                Pace::Quick => 20_000,
                Pace::Smoke => 1_000,
            };
            vec![Cell::new(format!("{names} locks"), 64, names)]
        },
        takes_part: Contestant::is_on_a_server,
        play: held::play,
    },
    Scenario {
        name: "Q",
        shows: "many waiters of one process for one name that another process holds",
        once: true,
        cells: |pace| {
            let waiters = match pace {
                Pace::Full => 10_000,
                Pace::Quick => 2_000,
                Pace::Smoke => 200,
            };
            vec![Cell::new(format!("{waiters} waiters"), waiters, 1)]
        },
        takes_part: Contestant::is_on_a_server,
        play: queue::play,
    },
    Scenario {
        name: "E",
        shows: "embedded: without any server, on one core",
        once: false,
        cells: |_| vec![Cell::new("alone", 1, 1), Cell::new("64 on one name", 64, 1)],
        takes_part: Contestant::is_embedded,
        play: cycle::play,
    },
    Scenario {
        name: "G",
        shows: "growth: the same work on few names and on many, with few waiters and with many",
        once: false,
        cells: |pace| {
            let (names, waiters) = match pace {
                Pace::Full => (1_000_000, 10_000),
                Pace::Quick => (100_000, 10_000),
                Pace::Smoke => (10_000, 500),
            };
            vec![
                Cell::new(FEW_NAMES, 5, 10),
                Cell::new(MANY_NAMES, 5, names),
                Cell::new(FEW_WAITERS, 10, 1),
                Cell::new(MANY_WAITERS, waiters, 1),
            ]
        },
        takes_part: |one| [roster::OURS, "raw"].contains(&one.name),
        play: cycle::play,
    },
    Scenario {
        name: "F",
        shows: "the family: each of our primitives, uncontended, beside the plain lock",
        once: false,
        cells: |_| {
            let counts = [1, 16].into_iter();
            counts
                .map(|callers| Cell::new(callers.to_string(), callers, callers))
                .collect()
        },
        takes_part: |one| one.is_family() || one.name == roster::OURS,
        play: cycle::play,
    },
];

/// The cells of growth, by which their ratios are found.
pub(crate) const FEW_NAMES: &str = "few names";
pub(crate) const MANY_NAMES: &str = "many names";
pub(crate) const FEW_WAITERS: &str = "few waiters";
pub(crate) const MANY_WAITERS: &str = "many waiters";

impl Cell {
    fn new(label: impl Into<String>, callers: usize, names: usize) -> Self {
        Self {
            label: label.into(),
            processes: 1,
            callers,
            names,
        }
    }
}

pub(crate) fn named(name: &str) -> Outcome<&'static Scenario> {
    let found = ALL.iter().find(|one| one.name.eq_ignore_ascii_case(name));
    found.ok_or_else(|| {
        let names: Vec<&str> = ALL.iter().map(|one| one.name).collect();
        let names = names.join(", ");
        Failure::new(format!("there is no scenario `{name}`; there are {names}"))
    })
}
