//! Plots of U and H, as SVG: dots on logarithmic axes, joined where they belong to one contestant.

use std::fmt::Write as _;

use crate::book::{Book, FigureKey, figure};
use crate::roster;

/// Returns the file names and their content; only for scenarios that were measured.
pub(crate) fn pictures(book: &Book) -> Vec<(&'static str, String)> {
    let throughput = Chart {
        title: "Uncontended lock + unlock (U)",
        across: "callers",
        upward: "cycles a second",
        marks: book.cells("U"),
        lines: lines(|contestant| {
            let cells = book.cells("U").into_iter().enumerate();
            cells
                .filter_map(|(mark, cell)| {
                    let value = book.median(("U", &cell), contestant, figure::RATE)?;
                    Some((mark, value))
                })
                .collect()
        }),
    };
    let at: FigureKey<'_> = ("H", "2 processes");
    let parts = [figure::P50, figure::P99, figure::P999];
    let handoff = Chart {
        title: "Hand-off between processes (H)",
        across: "percentile",
        upward: "microseconds",
        marks: ["50", "99", "99.9"].map(str::to_owned).into(),
        lines: lines(|contestant| {
            let parts = parts.iter().enumerate();
            parts
                .filter_map(|(mark, part)| Some((mark, book.median(at, contestant, part)?)))
                .collect()
        }),
    };
    let both = [("uncontended.svg", throughput), ("handoff.svg", handoff)];
    both.into_iter()
        .filter(|(_, picture)| !picture.lines.is_empty())
        .map(|(name, picture)| (name, picture.svg()))
        .collect()
}

struct Chart {
    title: &'static str,
    across: &'static str,
    upward: &'static str,
    marks: Vec<String>,
    lines: Vec<Series>,
}

/// A contestant's dots: the mark on the axis, and the height.
struct Series {
    title: String,
    color: &'static str,
    dots: Vec<(usize, f64)>,
}

fn lines(dots: impl Fn(&str) -> Vec<(usize, f64)>) -> Vec<Series> {
    let drawn = roster::ALL.iter().filter_map(|one| Some((one, one.color?)));
    drawn
        .map(|(one, color)| Series {
            title: one.title.replace("**", ""),
            color,
            dots: dots(one.name),
        })
        .filter(|line| !line.dots.is_empty())
        .collect()
}

impl Chart {
    fn svg(&self) -> String {
        let heights = || {
            self.lines
                .iter()
                .flat_map(|line| &line.dots)
                .map(|dot| dot.1)
        };
        let low = heights()
            .fold(f64::INFINITY, f64::min)
            .max(1.0)
            .log10()
            .floor();
        let high = heights().fold(1.0, f64::max).log10().ceil().max(low + 1.0);
        let y = |value: f64| {
            let part = (value.max(1.0).log10() - low) / (high - low);
            BOTTOM - part * (BOTTOM - TOP)
        };
        let x = |mark: usize| {
            let steps = self.marks.len().saturating_sub(1).max(1);
            #[expect(clippy::cast_precision_loss, reason = "a handful of marks")]
            let part = mark as f64 / steps as f64;
            LEFT + 30.0 + part * (RIGHT - LEFT - 60.0)
        };
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
             <text x=\"{LEFT}\" y=\"22\" font-size=\"15\">{}</text>\n",
            self.title
        );
        let mut power = low;
        while power <= high {
            let value = 10_f64.powf(power);
            let at = y(value);
            let _ = writeln!(
                out,
                "<line x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{value:.0}</text>",
                LEFT - 6.0,
                at + 4.0
            );
            power += 1.0;
        }
        for (number, mark) in self.marks.iter().enumerate() {
            let (at, below) = (x(number), BOTTOM + 18.0);
            let _ = writeln!(
                out,
                "<text x=\"{at:.1}\" y=\"{below}\" text-anchor=\"middle\">{mark}</text>"
            );
        }
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>\
             <text x=\"16\" y=\"{:.1}\" text-anchor=\"middle\" transform=\"rotate(-90 16 {:.1})\">{}</text>",
            f64::midpoint(LEFT, RIGHT),
            BOTTOM + 38.0,
            self.across,
            f64::midpoint(TOP, BOTTOM),
            f64::midpoint(TOP, BOTTOM),
            self.upward
        );
        let mut beside = TOP + 4.0;
        for line in &self.lines {
            out += &line.svg(x, y, beside);
            beside += 20.0;
        }
        out + "</svg>\n"
    }
}

impl Series {
    fn svg(&self, x: impl Fn(usize) -> f64, y: impl Fn(f64) -> f64, beside: f64) -> String {
        let Self { title, color, dots } = self;
        let points = dots.iter().map(|(mark, value)| (x(*mark), y(*value)));
        let mut path = String::new();
        let mut circles = String::new();
        for (across, up) in points {
            let _ = write!(path, "{across:.1},{up:.1} ");
            let _ = write!(
                circles,
                "<circle cx=\"{across:.1}\" cy=\"{up:.1}\" r=\"3.5\" fill=\"{color}\"/>"
            );
        }
        let legend = RIGHT + 14.0;
        format!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1.8\"/>{circles}\
             <rect x=\"{legend}\" y=\"{:.1}\" width=\"12\" height=\"12\" fill=\"{color}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{title}</text>\n",
            path.trim_end(),
            beside - 10.0,
            legend + 18.0,
            beside
        )
    }
}

const WIDTH: f64 = 820.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 590.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 360.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::{Entry, Result};

    #[test]
    fn contestants_on_one_server_have_distinct_colours() {
        let drawn: Vec<_> = roster::ALL
            .iter()
            .filter(|one| !one.is_embedded() && !one.is_family())
            .collect();
        let colors = drawn.iter().filter_map(|one| one.color);
        let colors: std::collections::HashSet<_> = colors.collect();
        assert_eq!(colors.len(), drawn.len());
    }

    #[test]
    fn contestants_without_measurements_are_not_drawn() {
        let mut book = Book::default();
        assert!(pictures(&book).is_empty());
        book.entries.push(Entry {
            scenario: "U",
            cell: "1".into(),
            contestant: "distlock",
            repetition: 0,
            result: Result::Figures([(figure::RATE, 12_345.0)].into()),
        });
        let pictures = pictures(&book);
        assert_eq!(pictures.len(), 1);
        let (name, svg) = &pictures[0];
        assert_eq!(*name, "uncontended.svg");
        assert_eq!(svg.matches("<circle").count(), 1);
        assert_eq!(svg.matches("<svg").count(), svg.matches("</svg>").count());
    }
}
