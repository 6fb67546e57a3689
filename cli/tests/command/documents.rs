//! The shell blocks of the documentation are executed: each command works, and prints what the page shows.
//!
//! A page is played from top to bottom in a folder of its own, with a server of its own. In a `console` block the lines behind a command
//! are its output; what differs from run to run is left out ([`normal`]). The table ([`table`]) has what the pages do not say: the
//! processes on the other side, and the few blocks that cannot be executed.

mod normal;
mod page;
mod play;
mod table;

use std::fs;

use self::page::blocks;
use self::play::{in_time, play, repository};

/// Makes a test for each page, and the list of the pages.
macro_rules! pages {
    ($($test:ident: $page:literal,)+) => {
        const PAGES: &[&str] = &[$($page),+];
        $(
            #[test]
            fn $test() {
                works($page);
            }
        )+
    };
}

pages! {
    the_readme_does_as_it_shows: "README.md",
    the_tutorial_does_as_it_shows: "docs/tutorial.md",
    the_command_reference_does_as_it_shows: "docs/command.md",
    the_recipes_do_as_they_show: "docs/recipes.md",
    the_page_on_stores_does_as_it_shows: "docs/which-store.md",
    the_page_on_redisson_does_as_it_shows: "docs/redisson.md",
    the_page_on_trouble_does_as_it_shows: "docs/troubleshooting.md",
    the_answers_do_as_they_show: "docs/faq.md",
}

/// Plays a page, from its beginning each time.
fn works(page: &'static str) {
    let text = text(page);
    in_time(|| play(page, &text));
}

fn text(page: &str) -> String {
    fs::read_to_string(repository().join(page)).expect("the page is there")
}

#[test]
fn a_page_that_is_wrong_is_found() {
    let wrong = |language: &str, lines: &str| {
        let page = format!("# A page\n\n```{language}\n{lines}\n```\n");
        let done = play("a page", &page);
        done.expect_err(lines)
    };
    let right = |language: &str, lines: &str| {
        let page = format!("# A page\n\n```{language}\n{lines}\n```\n");
        in_time(|| play("a page", &page));
    };
    right("console", "$ distlock run x -- sh -c 'exit 3'; echo $?\n3");
    let said = wrong("console", "$ distlock run x -- sh -c 'exit 3'; echo $?\n4");
    assert!(said.contains("shows\n4\nand says\n3"), "{said}");
    right("sh", "distlock run x -- ./job.sh\ndistlock ls");
    let said = wrong("sh", "distlock run --twice x -- ./job.sh\ndistlock ls");
    assert!(said.contains("64 from"), "{said}");
    for (language, before) in [
        ("crontab", "*/5 * * * *  "),
        ("ini", "[Service]\nExecStart=/usr/local/bin/"),
        ("yaml", "      - run: "),
        ("yaml", "script:\n  - make deploy\n  - "),
    ] {
        right(language, &format!("{before}distlock run x -- make deploy"));
        let said = wrong(language, &format!("{before}distlock run x make deploy"));
        assert!(said.contains("64 from"), "{said}");
    }
    right(
        "yaml",
        "command: [distlock, run]\nargs: [\"x\", --, /app/job]",
    );
    let said = wrong(
        "yaml",
        "command: [distlock, run, --lease, 30, x, --, /app/job]",
    );
    assert!(said.contains("64 from"), "{said}");
}

#[test]
fn every_entry_of_the_table_is_of_a_page_that_is_played() {
    for entry in table::TABLE {
        assert!(PAGES.contains(&entry.page), "{}", entry.page);
    }
}

#[test]
fn a_translation_has_the_blocks_of_the_original() {
    for (original, translation) in [
        ("docs/tutorial.md", "docs/zh/tutorial.md"),
        ("README.md", "README.zh-CN.md"),
    ] {
        let [original, translated] = [original, translation].map(|page| {
            let blocks = blocks(&text(page)).into_iter();
            let code = blocks.map(|block| {
                let lines = block.lines.iter().map(|line| without_comment(line));
                (block.language.clone(), lines.collect::<Vec<_>>())
            });
            code.collect::<Vec<_>>()
        });
        for (original, translated) in original.iter().zip(&translated) {
            assert_eq!(original, translated, "{translation}");
        }
        assert_eq!(original.len(), translated.len(), "{translation}");
    }
}

/// Returns a line of any language without its comment.
fn without_comment(line: &str) -> String {
    let line = format!(" {line}");
    let begin = [" # ", " // "]
        .iter()
        .filter_map(|mark| line.find(mark))
        .min();
    let begin = begin.or(line.starts_with(" -- ").then_some(0));
    line[..begin.unwrap_or(line.len())].trim_end().to_owned()
}
