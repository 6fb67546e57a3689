//! Measures distlock beside other lock libraries, on the same work in the same minutes.
//!
//! ```sh
//! scripts/bench                          # all scenarios and contestants; builds what it needs
//! scripts/bench --quick U H              # some scenarios, in less time
//! scripts/bench --only distlock,raw U    # without the other languages
//! ```
//!
//! Each [`contestant`] is a process that receives its work as [lines](mod@line) of JSON; the contestants in other
//! languages are in `bench/contestants`. A [`scenario`] is played by all of them in turn on a fresh
//! [`server`], several times over; the [`book`] keeps every result, [`report`], [`summary`], [`targets`] and
//! [`plot`] read it, and [`publish`] puts it into the docs.
#![forbid(unsafe_code)]
#![allow(
    clippy::print_stdout,
    reason = "a program whose results are for people to read"
)]
#![expect(
    clippy::disallowed_methods,
    reason = "a clock, threads and tasks are what this is about"
)]

mod book;
mod child;
mod clock;
mod contestant;
mod failure;
mod histogram;
mod line;
mod machine;
mod options;
mod plot;
mod publish;
mod report;
mod results;
mod roster;
mod run;
mod scenario;
mod serve;
mod server;
mod spin;
mod stage;
mod summary;
mod targets;

use std::collections::BTreeSet;
use std::fs;
use std::process::ExitCode;

use crate::failure::{Failure, Outcome};
use crate::machine::Machine;
use crate::options::{Options, Order, Pace};

fn main() -> ExitCode {
    let order = match Order::parse(std::env::args().skip(1)) {
        Ok(order) => order,
        Err(wrong) => {
            eprintln!("bench: {wrong}");
            return ExitCode::from(64);
        }
    };
    let done = match order {
        Order::Contestant(name) => contestant::run(&name).map(|()| ExitCode::SUCCESS),
        Order::List => {
            list();
            Ok(ExitCode::SUCCESS)
        }
        Order::Needs(options) => {
            let folders = options.contestants.iter().filter_map(|one| one.built_in());
            for folder in folders.collect::<BTreeSet<_>>() {
                println!("{folder}");
            }
            Ok(ExitCode::SUCCESS)
        }
        Order::Publish { results, page } => {
            let published = results::read(&results).and_then(|book| publish::publish(&book, &page));
            published.map(|()| ExitCode::SUCCESS)
        }
        Order::Run(options) => run(&options),
    };
    done.unwrap_or_else(|failure| {
        eprintln!("bench: {failure}");
        ExitCode::FAILURE
    })
}

/// Runs the measurements. Fails if something could not be measured; the smoke run also fails if counts exceed their bounds, and do so again
/// when they are measured for longer.
fn run(options: &Options) -> Outcome<ExitCode> {
    if let Some(file) = &options.json {
        // The file is created now, so that a bad path fails at once and not after an hour.
        let about = |error| Failure::new(format!("{}: {error}", file.display()));
        fs::File::create(file).map_err(about)?;
    }
    let book = run::run(Machine::detect()?, options, |line| eprintln!("{line}"));
    let text = report::markdown(&book);
    println!("{text}");
    fs::create_dir_all(&options.folder)?;
    fs::write(options.folder.join("report.md"), &text)?;
    for (name, picture) in plot::pictures(&book) {
        fs::write(options.folder.join(name), picture)?;
    }
    if let Some(file) = &options.json {
        fs::write(file, serde_json::to_string_pretty(&book)?)?;
    }
    let mut failures = book.failures();
    if options.pace == Pace::Smoke {
        failures.append(&mut targets::gates(&book));
    }
    for failure in &failures {
        eprintln!("bench: {failure}");
    }
    Ok(if failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn list() {
    for scenario in scenario::ALL {
        println!("{:<16} {}", scenario.name, scenario.shows);
    }
    println!();
    for contestant in roster::ALL {
        println!("{:<16} {}", contestant.name, contestant.title);
    }
}
