//! `distlock`: runs commands one at a time, on one machine or on many.
//!
//! The command line is parsed in [`args`]; each subcommand has a file beside it. `run` consists of the lock ([`store`],
//! [`kind`], [`take`], [`taken`], [`waiting`], [`nested`]), the command under it ([`child`], [`tree`], [`term`],
//! [`signals`]) and the rules between the two ([`run`]). All output goes through [`out`], questions through
//! [`confirm`]; the exit codes and failures are in [`exit`].
#![expect(clippy::disallowed_methods, reason = "the command runs in real time")]

mod acquire;
mod args;
mod child;
mod completions;
mod confirm;
mod date;
mod doctor;
mod duration;
mod exit;
mod kind;
mod label;
mod latch;
mod list;
mod nested;
mod out;
mod permits;
mod release;
mod run;
mod signals;
mod store;
mod style;
mod take;
mod taken;
mod term;
mod tree;
mod waiting;
mod watch;

use std::io;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use rustix::io::Errno;

use crate::args::Command;
use crate::exit::Failure;
use crate::out::say;

/// Each pair is two open files. Together they are as many as tokio opens: an epoll, its copy and its waker, and the
/// pair of the signals with a copy.
const PAIRS: usize = 3;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    // This check comes first: the process is an intermediate step before the user's command, which waits for it.
    match words.next() {
        Some(word) if word == child::STEP => return finish(child::exec_from_step(words)),
        Some(word) if word == child::END => return finish(Ok(child::end_by(words.next()))),
        _ => {}
    }
    finish(args::parse(std::env::args_os()).and_then(dispatch))
}

fn dispatch(command: Command) -> Result<u8, Failure> {
    check_open_files()?;
    // One thread is enough: leases are renewed by the library's own thread.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| cannot_begin(&error))?;
    let done = runtime.block_on(async {
        match command {
            Command::Acquire(args) => acquire::acquire(args).await,
            Command::Completions(args) => completions::print(&args),
            Command::Doctor(args) => doctor::doctor(args).await,
            Command::Latch(args) => latch::latch(args).await,
            Command::Ls(args) => list::ls(args).await,
            Command::Permits(args) => permits::permits(args).await,
            Command::Release(args) => release::release(args).await,
            Command::Run(args) => run::run(args).await,
            Command::Show(args) => list::show(args).await,
            Command::Watch(args) => watch::watch(args).await,
        }
    });
    // A pending lookup of an unknown host name would delay the exit for long.
    runtime.shutdown_timeout(store::MAX_CLOSE_TIME);
    done
}

/// Opens and closes as many files as tokio needs at its start: its registry of signals panics if there are too few.
fn check_open_files() -> Result<(), Failure> {
    let pairs: io::Result<Vec<_>> = (0..PAIRS).map(|_| UnixStream::pair()).collect();
    pairs.map(drop).map_err(|error| cannot_begin(&error))
}

fn cannot_begin(error: &io::Error) -> Failure {
    let way_out = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::MFILE) => "; raise the limit (`ulimit -n`)",
        _ => "",
    };
    Failure::new(exit::SYSTEM, format!("cannot start: {error}{way_out}"))
}

fn finish(done: Result<u8, Failure>) -> ExitCode {
    let code = done.unwrap_or_else(|failure| {
        if let Some(message) = failure.message {
            say(message);
        }
        failure.code
    });
    ExitCode::from(code)
}
