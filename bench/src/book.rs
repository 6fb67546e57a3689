//! Every measurement of a run, and what is read out of them: medians, spreads, ratios.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::machine::Machine;
use crate::options::Pace;

/// What was measured, and by what it is found again.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Entry {
    pub(crate) scenario: &'static str,
    /// Which part of the scenario: `256` callers.
    pub(crate) cell: String,
    pub(crate) contestant: &'static str,
    pub(crate) repetition: u32,
    #[serde(flatten)]
    pub(crate) result: Result,
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Result {
    /// It does not do such things, and says why.
    Cannot(String),
    Failed(String),
    Figures(Figures),
}

/// Numbers by name; `figure` has the names.
pub(crate) type Figures = BTreeMap<&'static str, f64>;

/// The names of figures.
pub(crate) mod figure {
    /// Cycles a second.
    pub(crate) const RATE: &str = "cycles_per_second";
    /// Of those, grants to another caller than the one before.
    pub(crate) const HANDOFFS: &str = "handoffs_per_second";
    /// Latencies, in microseconds.
    pub(crate) const P50: &str = "p50_us";
    pub(crate) const P99: &str = "p99_us";
    pub(crate) const P999: &str = "p999_us";
    /// How many latencies there were.
    pub(crate) const COUNT: &str = "count";
    /// Commands a cycle that were sent, those inside of scripts not counted.
    pub(crate) const COMMANDS: &str = "commands_per_cycle";
    /// How often a cycle the server found something to read.
    pub(crate) const READS: &str = "server_reads_per_cycle";
    /// Seconds of processor time per 100,000 cycles.
    pub(crate) const CLIENT_CPU: &str = "client_cpu_s_per_100k";
    pub(crate) const SERVER_CPU: &str = "server_cpu_s_per_100k";
    /// Both together.
    pub(crate) const CPU: &str = "cpu_s_per_100k";
    /// The part of all cycles that the least lucky process had.
    pub(crate) const LEAST_SHARE: &str = "least_share";
    /// The least lucky caller's cycles over the luckiest one's.
    pub(crate) const EVENNESS: &str = "least_over_most";
    /// Scripts called: a second in W, a grant in H, a hand-off in Q.
    pub(crate) const SCRIPTS: &str = "scripts";
    /// The part of a core the client was at work.
    pub(crate) const CLIENT_LOAD: &str = "client_cores";
    pub(crate) const SERVER_LOAD: &str = "server_cores";
    /// Bytes per held lock, or per waiter.
    pub(crate) const MEMORY: &str = "bytes_each";
    /// Locks that were held no longer at the end.
    pub(crate) const LOST: &str = "lost";
    pub(crate) const SUBSCRIPTIONS: &str = "subscriptions";

    /// All of them.
    pub(crate) const ALL: &[&str] = &[
        RATE,
        HANDOFFS,
        P50,
        P99,
        P999,
        COUNT,
        COMMANDS,
        READS,
        CLIENT_CPU,
        SERVER_CPU,
        CPU,
        LEAST_SHARE,
        EVENNESS,
        SCRIPTS,
        CLIENT_LOAD,
        SERVER_LOAD,
        MEMORY,
        LOST,
        SUBSCRIPTIONS,
    ];
}

/// All of them, in the order they were made.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Book {
    /// Where they were made.
    pub(crate) machine: Machine,
    /// How thoroughly.
    pub(crate) pace: Pace,
    pub(crate) entries: Vec<Entry>,
    /// What each contestant calls itself.
    pub(crate) versions: BTreeMap<&'static str, String>,
}

/// A median and the smallest and greatest beside it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

/// Where figures stand: scenario and cell.
pub(crate) type Place<'a> = (&'a str, &'a str);

impl Book {
    /// One figure of one contestant, over the repetitions.
    pub(crate) fn spread(&self, at: Place<'_>, contestant: &str, figure: &str) -> Option<Spread> {
        let found = self.found(at, contestant, figure);
        Spread::of(found.into_iter().map(|(_, value)| value).collect())
    }

    pub(crate) fn median(&self, at: Place<'_>, contestant: &str, figure: &str) -> Option<f64> {
        self.spread(at, contestant, figure)
            .map(|spread| spread.median)
    }

    /// One contestant's figure over another's, repetition by repetition: what disturbed the one disturbed
    /// its neighbour in time too.
    pub(crate) fn ratio(
        &self,
        at: Place<'_>,
        figure: &str,
        one: &str,
        other: &str,
    ) -> Option<Spread> {
        self.ratio_of((at, one), (at, other), figure)
    }

    /// The same in the last two repetitions: whoever compiles while it runs is warm by then.
    pub(crate) fn warm_ratio(
        &self,
        at: Place<'_>,
        figure: &str,
        one: &str,
        other: &str,
    ) -> Option<Spread> {
        let last = self.found(at, other, figure).last()?.0;
        let warm = |repetition: u32| repetition + 1 >= last;
        self.ratio_if((at, one), (at, other), figure, warm)
    }

    /// The same between any two places.
    pub(crate) fn ratio_of(
        &self,
        (place, one): (Place<'_>, &str),
        (other_place, other): (Place<'_>, &str),
        figure: &str,
    ) -> Option<Spread> {
        self.ratio_if((place, one), (other_place, other), figure, |_| true)
    }

    fn ratio_if(
        &self,
        (place, one): (Place<'_>, &str),
        (other_place, other): (Place<'_>, &str),
        figure: &str,
        counts: impl Fn(u32) -> bool,
    ) -> Option<Spread> {
        let others: BTreeMap<u32, f64> =
            self.found(other_place, other, figure).into_iter().collect();
        let ones = self.found(place, one, figure).into_iter();
        let ones = ones.filter(|(repetition, _)| counts(*repetition));
        let ratios = ones.filter_map(|(repetition, value)| {
            let other = others.get(&repetition).filter(|other| **other > 0.0)?;
            Some(value / other)
        });
        Spread::of(ratios.collect())
    }

    /// How many of them there are.
    pub(crate) fn repetitions(&self) -> u32 {
        let numbers = self.entries.iter().map(|entry| entry.repetition + 1);
        numbers.max().unwrap_or(0)
    }

    /// Why a contestant has no figures here.
    pub(crate) fn excuse(&self, at: Place<'_>, contestant: &str) -> Option<String> {
        let mut here = self.here(at, contestant);
        here.find_map(|entry| match &entry.result {
            Result::Cannot(why) => Some(why.clone()),
            Result::Failed(why) => Some(format!("failed: {why}")),
            Result::Figures(_) => None,
        })
    }

    pub(crate) fn failures(&self) -> Vec<String> {
        let failed = self.entries.iter().filter_map(|entry| match &entry.result {
            Result::Failed(why) => Some(format!(
                "{} {}, {}: {why}",
                entry.scenario, entry.cell, entry.contestant
            )),
            Result::Cannot(_) | Result::Figures(_) => None,
        });
        failed.collect()
    }

    /// The cells of a scenario, in the order they were measured.
    pub(crate) fn cells(&self, scenario: &str) -> Vec<String> {
        let mut cells = Vec::new();
        for entry in &self.entries {
            if entry.scenario == scenario && !cells.contains(&entry.cell) {
                cells.push(entry.cell.clone());
            }
        }
        cells
    }

    fn found(&self, at: Place<'_>, contestant: &str, figure: &str) -> Vec<(u32, f64)> {
        let here = self.here(at, contestant);
        here.filter_map(|entry| match &entry.result {
            Result::Figures(figures) => Some((entry.repetition, *figures.get(figure)?)),
            Result::Cannot(_) | Result::Failed(_) => None,
        })
        .collect()
    }

    fn here(&self, (scenario, cell): Place<'_>, contestant: &str) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| {
            entry.scenario == scenario && entry.cell == cell && entry.contestant == contestant
        })
    }
}

impl Spread {
    /// Of one value.
    pub(crate) const fn one(value: f64) -> Self {
        Self {
            median: value,
            least: value,
            most: value,
        }
    }

    pub(crate) fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            f64::midpoint(values[middle - 1], values[middle])
        };
        Some(Self {
            median,
            least,
            most,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(contestant: &'static str, repetition: u32, rate: f64) -> Entry {
        Entry {
            scenario: "U",
            cell: "16".into(),
            contestant,
            repetition,
            result: Result::Figures([(figure::RATE, rate)].into()),
        }
    }

    #[test]
    fn ratios_are_taken_within_a_repetition() {
        let mut book = Book::default();
        for (repetition, speed) in [(0, 1.0), (1, 10.0), (2, 100.0)] {
            book.entries
                .push(entry("distlock", repetition, 3.0 * speed));
            book.entries.push(entry("raw", repetition, 2.0 * speed));
        }
        let ratio = book.ratio(("U", "16"), figure::RATE, "distlock", "raw");
        let ratio = ratio.expect("both were measured");
        assert!((ratio.median - 1.5).abs() < 1e-9 && (ratio.least - 1.5).abs() < 1e-9);
        assert!(
            book.ratio(("U", "16"), figure::RATE, "distlock", "nobody")
                .is_none()
        );
    }

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_two() {
        let spread = Spread::of(vec![4.0, 1.0, 2.0, 10.0]).expect("there are some");
        assert_eq!((spread.least, spread.median, spread.most), (1.0, 3.0, 10.0));
        assert_eq!(Spread::of(Vec::new()), None);
    }
}
