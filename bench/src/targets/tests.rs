//! The lines about a run that met its targets, or did not.

use super::*;
use crate::book::{Entry, Result};

fn measured(contestant: &'static str, rate: f64) -> Entry {
    Entry {
        scenario: "U",
        cell: "256".into(),
        contestant,
        repetition: 0,
        result: Result::Figures([(figure::RATE, rate)].into()),
    }
}

#[test]
fn a_gate_breaks_where_batching_no_longer_saves_anything() {
    let mut book = Book::default();
    let figures = [(figure::RATE, 1.0), (figure::COMMANDS, 2.0)];
    book.entries.push(Entry {
        result: Result::Figures(figures.into()),
        ..measured("distlock", 0.0)
    });
    let broken = gates(&book);
    assert_eq!(broken.len(), 1, "{broken:?}");
}

#[test]
fn a_gate_judges_the_median() {
    for (broken, of) in [
        (0, [2.0, 9.0, 2.0, 9.0, 2.0]),
        (1, [3.0, 2.0, 3.0, 2.0, 3.0]),
    ] {
        let mut book = Book::default();
        for (repetition, commands) in (0..).zip(of) {
            let figures = [(figure::RATE, 1.0), (figure::COMMANDS, commands)];
            book.entries.push(Entry {
                scenario: "F",
                cell: "1".into(),
                repetition,
                result: Result::Figures(figures.into()),
                ..measured("fair", 0.0)
            });
        }
        assert_eq!(gates(&book).len(), broken, "{of:?}");
    }
}

#[test]
fn a_gate_breaks_where_nothing_was_measured() {
    let mut book = Book::default();
    assert!(gates(&book).is_empty(), "nobody has played");
    book.entries.push(measured("distlock", 1.0));
    let broken = gates(&book);
    assert_eq!(broken.len(), 1, "{broken:?}");
}

#[test]
fn a_gate_breaks_where_one_of_the_family_takes_a_third_command() {
    let mut book = Book::default();
    for (contestant, commands) in [("fair", 3.0), ("multi", 4.0)] {
        let figures = [(figure::RATE, 1.0), (figure::COMMANDS, commands)];
        book.entries.push(Entry {
            scenario: "F",
            cell: "1".into(),
            result: Result::Figures(figures.into()),
            ..measured(contestant, 0.0)
        });
    }
    let broken = gates(&book);
    assert_eq!(broken.len(), 1, "{broken:?}");
    assert!(broken[0].contains("fair"), "{broken:?}");
}

#[test]
fn a_target_is_compared_with_the_fastest_contestant() {
    let mut book = Book::default();
    for (name, rate) in [
        ("distlock", 100.0),
        ("raw", 50.0),
        ("rslock", 10.0),
        ("redsync", 50.0),
    ] {
        book.entries.push(measured(name, rate));
    }
    let text = list(&book);
    assert!(
        text.contains("| U, 256 callers ÷ raw ceiling | ≥ 1.40 | 2 | reached |"),
        "{text}"
    );
    assert!(
        text.contains("(redsync) | ≥ 2.50 | 2 | **missed** |"),
        "{text}"
    );
    assert!(text.contains("1 of 2 reached, "), "{text}");
}
