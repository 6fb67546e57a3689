//! Publishes a run: puts its results into the page that shows them.

use std::fs;
use std::path::Path;

use crate::book::Book;
use crate::failure::{Failure, Outcome, ensure};
use crate::options::Pace;
use crate::{plot, report, scenario};

/// Replaces the text between the marks in `page`, and the plots in `figures` beside it.
pub(crate) fn publish(book: &Book, page: &Path) -> Outcome {
    ensure!(
        book.pace == Pace::Full,
        "these are the results of a short run, which are not to be quoted"
    );
    for scenario in scenario::ALL {
        ensure!(
            !book.cells(scenario.name).is_empty(),
            "scenario {} is missing: the page shows whole runs only",
            scenario.name
        );
    }
    let mut text = fs::read_to_string(page)?;
    for (part, written) in [
        ("in short", report::in_short(book)),
        ("figures", report::figures(book)),
    ] {
        text = replaced(&text, part, &written)?;
    }
    let figures = page.with_file_name("figures");
    fs::create_dir_all(&figures)?;
    for (name, picture) in plot::pictures(book) {
        fs::write(figures.join(name), picture)?;
    }
    fs::write(page, text)?;
    Ok(())
}

fn replaced(page: &str, part: &str, written: &str) -> Outcome<String> {
    let begin = format!("<!-- {part}: written by `scripts/bench publish` -->\n");
    let end = format!("<!-- end of {part} -->\n");
    let parts = page
        .split_once(&begin)
        .and_then(|(before, rest)| Some((before, rest.split_once(&end)?.1)));
    let Some((before, after)) = parts else {
        let (begin, end) = (begin.trim(), end.trim());
        return Err(Failure::new(format!("the page lacks `{begin}` or `{end}`")));
    };
    Ok(format!("{before}{begin}\n{written}\n{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_runs_are_published() {
        let page = Path::new("nowhere.md");
        for pace in [Pace::Quick, Pace::Full] {
            let book = Book {
                pace,
                ..Book::default()
            };
            let why = publish(&book, page).expect_err("it is empty").to_string();
            assert!(
                why.contains("short run") || why.contains("U is missing"),
                "{why}"
            );
        }
    }

    #[test]
    fn text_outside_the_markers_is_unchanged() {
        let (begin, end) = (
            "<!-- x: written by `scripts/bench publish` -->\n",
            "<!-- end of x -->\n",
        );
        let page = format!("# A\n{begin}old\n{end}the rest\n");
        let once = replaced(&page, "x", "new\n").expect("it is marked");
        assert_eq!(once, format!("# A\n{begin}\nnew\n\n{end}the rest\n"));
        let again = replaced(&once, "x", "new\n").expect("it is marked");
        assert_eq!(again, once);
        assert!(replaced("# A\n", "x", "new").is_err());
    }
}
