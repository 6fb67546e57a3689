//! The book of a run: every measurement, and what is computed from them: medians, spreads, ratios.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::machine::Machine;
use crate::options::Pace;

/// One measurement, and the keys by which it is found.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Entry {
    pub(crate) scenario: &'static str,
    /// The part of the scenario, such as `256` callers.
    pub(crate) cell: String,
    pub(crate) contestant: &'static str,
    pub(crate) repetition: u32,
    #[serde(flatten)]
    pub(crate) result: Result,
}

/// The result of a measurement.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Result {
    /// The contestant does not support this, for this reason.
    Cannot(String),
    Failed(String),
    Figures(Figures),
}

/// Numbers by name; `figure` has the names.
pub(crate) type Figures = BTreeMap<&'static str, f64>;

/// The names of figures.
pub(crate) mod figure {
    /// Cycles per second.
    pub(crate) const RATE: &str = "cycles_per_second";
    /// Grants per second to another caller than the one before.
    pub(crate) const HANDOFFS: &str = "handoffs_per_second";
    /// Latencies, in microseconds.
    pub(crate) const P50: &str = "p50_us";
    pub(crate) const P99: &str = "p99_us";
    pub(crate) const P999: &str = "p999_us";
    /// The number of latencies.
    pub(crate) const COUNT: &str = "count";
    /// Commands per cycle that clients sent, without those inside scripts.
    pub(crate) const COMMANDS: &str = "commands_per_cycle";
    /// How often per cycle the server found something to read.
    pub(crate) const READS: &str = "server_reads_per_cycle";
    /// Seconds of processor time per 100,000 cycles.
    pub(crate) const CLIENT_CPU: &str = "client_cpu_s_per_100k";
    pub(crate) const SERVER_CPU: &str = "server_cpu_s_per_100k";
    /// The processor time of both sides together.
    pub(crate) const CPU: &str = "cpu_s_per_100k";
    /// The share of all cycles that the process with the fewest had.
    pub(crate) const LEAST_SHARE: &str = "least_share";
    /// The cycles of the caller with the fewest over those of the caller with the most.
    pub(crate) const EVENNESS: &str = "least_over_most";
    /// Scripts called: per second in W, per grant in H, per hand-off in Q.
    pub(crate) const SCRIPTS: &str = "scripts";
    /// The part of a core that the client used.
    pub(crate) const CLIENT_LOAD: &str = "client_cores";
    pub(crate) const SERVER_LOAD: &str = "server_cores";
    /// Bytes per held lock, or per waiter.
    pub(crate) const MEMORY: &str = "bytes_each";
    /// Locks that were no longer held at the end.
    pub(crate) const LOST: &str = "lost";
    pub(crate) const SUBSCRIPTIONS: &str = "subscriptions";

    /// All names.
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

/// All measurements, in the order they were made.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Book {
    /// The machine on which they were made.
    pub(crate) machine: Machine,
    /// How thorough the run was.
    pub(crate) pace: Pace,
    pub(crate) entries: Vec<Entry>,
    /// The version that each contestant reports.
    pub(crate) versions: BTreeMap<&'static str, String>,
}

/// A median, with the smallest and the greatest value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

/// The place of a figure: scenario and cell.
pub(crate) type FigureKey<'a> = (&'a str, &'a str);

impl Book {
    /// Returns one figure of one contestant, over the repetitions.
    pub(crate) fn spread(
        &self,
        at: FigureKey<'_>,
        contestant: &str,
        figure: &str,
    ) -> Option<Spread> {
        let found = self.found(at, contestant, figure);
        Spread::of(found.into_iter().map(|(_, value)| value).collect())
    }

    pub(crate) fn median(&self, at: FigureKey<'_>, contestant: &str, figure: &str) -> Option<f64> {
        self.spread(at, contestant, figure)
            .map(|spread| spread.median)
    }

    /// Returns one contestant's figure over another's, repetition by repetition: a disturbance of the one also disturbed its neighbour in
    /// time.
    pub(crate) fn ratio(
        &self,
        at: FigureKey<'_>,
        figure: &str,
        one: &str,
        other: &str,
    ) -> Option<Spread> {
        self.ratio_of((at, one), (at, other), figure)
    }

    /// Returns the same ratio for the last two repetitions: a contestant that compiles while it runs is warm by then.
    pub(crate) fn warm_ratio(
        &self,
        at: FigureKey<'_>,
        figure: &str,
        one: &str,
        other: &str,
    ) -> Option<Spread> {
        let last = self.found(at, other, figure).last()?.0;
        let warm = |repetition: u32| repetition + 1 >= last;
        self.ratio_if((at, one), (at, other), figure, warm)
    }

    /// Returns the ratio between any two places.
    pub(crate) fn ratio_of(
        &self,
        (place, one): (FigureKey<'_>, &str),
        (other_place, other): (FigureKey<'_>, &str),
        figure: &str,
    ) -> Option<Spread> {
        self.ratio_if((place, one), (other_place, other), figure, |_| true)
    }

    fn ratio_if(
        &self,
        (place, one): (FigureKey<'_>, &str),
        (other_place, other): (FigureKey<'_>, &str),
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

    /// Returns the number of repetitions.
    pub(crate) fn repetitions(&self) -> u32 {
        let numbers = self.entries.iter().map(|entry| entry.repetition + 1);
        numbers.max().unwrap_or(0)
    }

    /// Returns why a contestant has no figures here.
    pub(crate) fn excuse(&self, at: FigureKey<'_>, contestant: &str) -> Option<String> {
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

    /// Returns the cells of a scenario, in the order they were measured.
    pub(crate) fn cells(&self, scenario: &str) -> Vec<String> {
        let mut cells = Vec::new();
        for entry in &self.entries {
            if entry.scenario == scenario && !cells.contains(&entry.cell) {
                cells.push(entry.cell.clone());
            }
        }
        cells
    }

    fn found(&self, at: FigureKey<'_>, contestant: &str, figure: &str) -> Vec<(u32, f64)> {
        let here = self.here(at, contestant);
        here.filter_map(|entry| match &entry.result {
            Result::Figures(figures) => Some((entry.repetition, *figures.get(figure)?)),
            Result::Cannot(_) | Result::Failed(_) => None,
        })
        .collect()
    }

    fn here(
        &self,
        (scenario, cell): FigureKey<'_>,
        contestant: &str,
    ) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| {
            entry.scenario == scenario && entry.cell == cell && entry.contestant == contestant
        })
    }
}

impl Spread {
    /// Returns the spread of a single value.
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
