//! The summary of a run in one table: distlock beside Redisson, the fastest of the other libraries, and the raw ceiling.

use std::fmt::Write as _;

use crate::book::{Book, FigureKey, figure};
use crate::report::grouped;
use crate::roster::{self, Contestant, Side};

/// The question that a scenario answers.
struct Question {
    scenario: &'static str,
    what: &'static str,
    figure: &'static str,
    /// Whether a greater figure is better.
    more: bool,
}

const QUESTIONS: &[Question] = &[
    question("U", "caller(s), cycles/s", figure::RATE, true),
    question("C1", "on one name, hand-offs/s", figure::HANDOFFS, true),
    question("C2", "on one name, hand-offs/s", figure::HANDOFFS, true),
    question("H", "hand-off, p50 µs", figure::P50, false),
    question("H", "hand-off, p99 µs", figure::P99, false),
    question(
        "W",
        "kept alive, cores of the client",
        figure::CLIENT_LOAD,
        false,
    ),
    question("Q", "on one name, hand-offs/s", figure::RATE, true),
];

const fn question(
    scenario: &'static str,
    what: &'static str,
    figure: &'static str,
    more: bool,
) -> Question {
    Question {
        scenario,
        what,
        figure,
        more,
    }
}

/// Returns the table with a row for each cell. It shows how many times better distlock is; less than one is a loss.
pub(crate) fn table(book: &Book) -> String {
    let mut text = String::from(
        "| | **distlock** | best of all | × Redisson's best, warm | × best of the others | × raw ceiling |\n\
         |---|--:|---|--:|--:|--:|\n",
    );
    for question in QUESTIONS {
        for cell in book.cells(question.scenario) {
            let at = (question.scenario, &*cell);
            let Some(ours) = book.median(at, roster::OURS, question.figure) else {
                continue;
            };
            let digits = if ours < 10.0 { 3 } else { 0 };
            let redisson = question.best(book, at, |side| side == Side::Redisson);
            let other = question.best(book, at, |side| side == Side::Other);
            let library = |side| matches!(side, Side::Ours | Side::Redisson | Side::Other);
            let best = question.best(book, at, library);
            let _ = writeln!(
                text,
                "| {}, {cell} {} | {} | {} | {} | {} | {} |",
                question.scenario,
                question.what,
                grouped(ours, digits),
                best.map_or("", |one| one.name),
                question.times_better(book, at, redisson),
                question.times_better(book, at, other),
                question.times_better(book, at, Contestant::named("raw").ok()),
            );
        }
    }
    text
}

impl Question {
    /// Returns the best of these contestants here; without twins, and without those that need no server.
    fn best(
        &self,
        book: &Book,
        at: FigureKey<'_>,
        of: impl Fn(Side) -> bool,
    ) -> Option<&'static Contestant> {
        let of = roster::on_a_server().filter(|one| of(one.side));
        let measured = of.filter_map(|one| Some((book.median(at, one.name, self.figure)?, one)));
        let ordered = |one: &f64, other: &f64| {
            let order = one.total_cmp(other);
            if self.more { order } else { order.reverse() }
        };
        let best = measured.max_by(|(one, _), (other, _)| ordered(one, other));
        best.map(|(_, one)| one)
    }

    fn times_better(&self, book: &Book, at: FigureKey<'_>, than: Option<&Contestant>) -> String {
        let ratio = than.and_then(|than| {
            let ratio = match than.side {
                Side::Redisson => book.warm_ratio(at, self.figure, roster::OURS, than.name),
                _ => book.ratio(at, self.figure, roster::OURS, than.name),
            };
            let ratio = ratio?.median;
            Some((if self.more { ratio } else { 1.0 / ratio }, than))
        });
        match ratio {
            Some((ratio, than)) if than.side == Side::Other => {
                format!("{ratio:.2} ({})", than.name)
            }
            Some((ratio, _)) => format!("{ratio:.2}"),
            None => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::{Entry, Result};

    #[test]
    fn the_best_result_respects_the_direction_of_the_metric() {
        let mut book = Book::default();
        let mut add = |scenario, contestant, figure, value| {
            book.entries.push(Entry {
                scenario,
                cell: "x".into(),
                contestant,
                repetition: 0,
                result: Result::Figures([(figure, value)].into()),
            });
        };
        for (name, rate) in [("distlock", 100.0), ("raw", 400.0), ("rslock", 50.0)] {
            add("U", name, figure::RATE, rate);
        }
        for (name, p50) in [("distlock", 100.0), ("redisson", 50.0), ("redlock", 900.0)] {
            add("H", name, figure::P50, p50);
        }
        let text = table(&book);
        let row = "| U, x caller(s), cycles/s | 100 | distlock |  | 2.00 (rslock) | 0.25 |";
        assert!(text.contains(row), "{text}");
        let row = "| H, x hand-off, p50 µs | 100 | redisson | 0.50 | 9.00 (redlock) |  |";
        assert!(text.contains(row), "{text}");
    }
}
