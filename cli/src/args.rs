//! The command line: its grammar and its parser.

use std::ffi::OsString;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

use crate::duration;
use crate::exit::{self, Failure};
use crate::kind;
use crate::latch;
use crate::out::Out;
use crate::permits;

/// Runs commands one at a time, on one machine or on many.
///
/// Without a server the locks are in a file of the user's own. With `--url redis://host/` they are shared with all
/// clients of that server, including Java programs that use Redisson; with `--simple`, with programs that use redis-py,
/// redsync or node-redlock.
#[derive(Debug, Parser)]
#[command(name = "distlock", version, term_width = 80, max_term_width = 80)]
#[command(subcommand_required = true, arg_required_else_help = false)]
#[command(after_help = "\
Exit codes: 64 bad usage, 69 store unreachable, 75 lock held by another owner,
76 lock lost. Otherwise `run` passes on the exit code of its command.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Run),
    /// List the locks that are held.
    Ls(Locks),
    Show(Show),
    /// Print every acquire and release of a lock as it happens.
    ///
    /// The locks that are already held are printed first. On a server, a hold that is shorter than the time between two
    /// polls, a tenth of a second on a small database, is not reported. Runs until it is interrupted.
    Watch(Locks),
    Acquire(Acquire),
    Release(Release),
    Latch(latch::Latch),
    Permits(permits::Permits),
    Doctor(Doctor),
    Completions(Completions),
}

// The options that select the store. Not a doc comment: doc comments of flattened arguments end up in the help.
#[derive(clap::Args, Debug)]
pub(crate) struct Store {
    /// The store's url: redis://host/, rediss://host/ (TLS), redis-sentinel://h1,h2,h3/MASTER, redis-cluster://h1,h2,h3
    /// or sqlite:path [env: DISTLOCK_URL] [default: a file of the current user]
    #[arg(long, env = "DISTLOCK_URL", hide_env = true, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Redis only: a lock counts as acquired when N replicas have acknowledged it [env: DISTLOCK_ACKS]
    #[arg(long, env = "DISTLOCK_ACKS", hide_env = true, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) acks: Option<u32>,
    /// Redis only: grant no new locks for this long after a restart or failover. Set it to the longest lease in use.
    /// [env: DISTLOCK_FAILOVER_DELAY]
    #[arg(
        long,
        env = "DISTLOCK_FAILOVER_DELAY",
        hide_env = true,
        value_name = "DURATION"
    )]
    #[arg(value_parser = duration::parse)]
    pub(crate) failover_delay: Option<Duration>,
}

// The name of one lock. Not a doc comment, as above.
#[derive(clap::Args, Debug)]
pub(crate) struct Named {
    #[command(flatten)]
    pub(crate) store: Store,
    /// The name; on a server it is the key itself, so prefix it (job:nightly)
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

/// Run a command while holding one or several locks.
///
/// Waits until the lock is free, runs the command, releases the lock and exits with the command's exit code (128+N if
/// signal N ended it). If the lock is lost meanwhile, the command and all processes it has started receive TERM, and
/// KILL after the grace period.
///
/// The command's environment has the lock's name in DISTLOCK_NAME, its owner in DISTLOCK_OWNER and, for a fenced lock,
/// the token of the grant in DISTLOCK_TOKEN. A nested `run` with the same name does not wait for itself: it runs under
/// the existing hold. Several locks are acquired all or none, whatever the order of their names; the variables then
/// have one line per lock.
#[derive(clap::Args, Debug)]
#[command(override_usage = "distlock run [OPTIONS] NAME... -- COMMAND...")]
#[command(after_help = "\
Exit codes:
  64   the command line is invalid
  69   the store is unreachable, or refuses the request
  75   another owner holds the lock (see --busy-code)
  76   the lock was lost before the command had ended
  126  the command cannot be executed
  127  the command was not found

Durations: 500ms, 30s, 5m, 1.5h, 1d, 1h30m.

Examples:
  distlock run job:nightly -- ./backup.sh
  distlock run --wait 0 --busy-code 0 job:sync -- ./sync.sh    (cron)
  distlock run --url redis://db1/ --wait 10m job:deploy -- make deploy
  distlock run --permits 3 job:export -- ./export.sh       (three at a time)
  distlock run lock:stock lock:prices -- ./reconcile.sh    (both, or none)")]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) store: Store,
    /// How long to wait for the lock; 0: do not wait [default: forever]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) wait: Option<Duration>,
    /// Redis: time until the lock is free after a crash of this process [default: 30s]. With --fixed, on any store: time
    /// until the lock is lost
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) lease: Option<Duration>,
    /// Do not renew the lease: the lock is lost when the lease expires
    #[arg(long, requires = "lease")]
    pub(crate) fixed: bool,
    /// Hold the lock for at least this long, even if the command ends earlier
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) at_least: Option<Duration>,
    /// The lock is lost after this long, and the command is ended (exit code 76)
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) max_hold: Option<Duration>,
    #[command(flatten)]
    pub(crate) kind: kind::Flags,
    /// Exit code if the lock is held by another owner; with 0 no message is printed
    #[arg(long, value_name = "CODE", default_value_t = exit::BUSY)]
    pub(crate) busy_code: u8,
    /// Grace period of the command between TERM and KILL
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "5s")]
    pub(crate) grace: Duration,
    /// The lock's name, on a server the key itself; several names: all locks or none
    #[arg(value_name = "NAME", required = true)]
    pub(crate) names: Vec<String>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

// The options that select locks. Not a doc comment: each command has its own.
#[derive(clap::Args, Debug)]
pub(crate) struct Locks {
    #[command(flatten)]
    pub(crate) store: Store,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
    /// Pattern of the names: `*` matches any characters, `?` matches one
    #[arg(value_name = "PATTERN", default_value = "*")]
    pub(crate) pattern: String,
}

/// Show the holders of a lock. Exits with 1 if it is free.
#[derive(clap::Args, Debug)]
pub(crate) struct Show {
    #[command(flatten)]
    pub(crate) store: Store,
    /// Print one JSON object on one line
    #[arg(long)]
    pub(crate) json: bool,
    /// The lock's name; on a server the key itself, so prefix it (job:nightly)
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

/// Acquire a lock and leave it to its lease.
///
/// For CI jobs and other places that cannot wrap a command: prints the owner, with which `distlock release NAME --owner
/// OWNER` releases the lock, and on a second line the token of a fenced lock. The lease is not renewed: the lock is
/// free when it expires.
#[derive(clap::Args, Debug)]
pub(crate) struct Acquire {
    #[command(flatten)]
    pub(crate) store: Store,
    /// Time until the lock expires
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) lease: Duration,
    /// How long to wait for the lock; 0: do not wait [default: forever]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) wait: Option<Duration>,
    #[command(flatten)]
    pub(crate) kind: kind::Flags,
    /// Exit code if the lock is held by another owner, other than 0
    #[arg(long, value_name = "CODE", default_value_t = exit::BUSY,
          value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) busy_code: u8,
    /// Print one JSON object on one line
    #[arg(long)]
    pub(crate) json: bool,
    /// The lock's name; on a server the key itself, so prefix it (job:nightly)
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

/// Release a lock, also by force.
///
/// With `--owner`, releases the hold of that owner and nothing else. With `--force`, releases all holds without a
/// question. With neither, shows the holder and asks on a terminal before it releases that hold. Exits with 1 if there
/// was no hold to release, or if the answer is no.
#[derive(clap::Args, Debug)]
pub(crate) struct Release {
    #[command(flatten)]
    pub(crate) store: Store,
    /// Release the lock only if this owner holds it, as printed by `acquire` and `show`
    #[arg(long, value_name = "OWNER", conflicts_with = "force")]
    pub(crate) owner: Option<String>,
    /// Release all holds, and do not ask for confirmation
    #[arg(long)]
    pub(crate) force: bool,
    /// The lock's name; on a server the key itself, so prefix it (job:nightly)
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

/// Check whether the store is fit for locks.
///
/// Prints findings, and the remedy for each that is not `ok`. Exits with 1 if a finding is a `fail`.
#[derive(clap::Args, Debug)]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(crate) store: Store,
    /// Also acquire and release a lock, and set a label; without it nothing is written
    #[arg(long)]
    pub(crate) probe: bool,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Print the completions for a shell.
#[derive(clap::Args, Debug)]
pub(crate) struct Completions {
    #[arg(value_name = "SHELL", value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

/// Parses the command line; prints the help and the version itself.
pub(crate) fn parse(words: impl Iterator<Item = OsString>) -> Result<Command, Failure> {
    let error = match Cli::try_parse_from(words) {
        Ok(typed) => return Ok(typed.command),
        Err(error) => error,
    };
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let mut out = Out::new();
            // The parser leaves blanks at the ends of lines.
            for line in error.to_string().trim_end().lines() {
                out.line(line.trim_end())?;
            }
            Err(Failure::silent(0))
        }
        kind => {
            let mut message = one_line(&error.to_string());
            // The `--` is what users of `flock` forget.
            let run = message.contains("distlock run");
            let forgotten = matches!(
                kind,
                ErrorKind::UnknownArgument | ErrorKind::MissingRequiredArgument
            );
            if forgotten && run && !message.contains("similar") {
                message += "; the command follows `--`: distlock run NAME -- COMMAND";
            }
            Err(Failure::new(exit::USAGE, message))
        }
    }
}

/// Returns the whole grammar, for completions.
pub(crate) fn grammar() -> clap::Command {
    Cli::command()
}

/// Turns the parser's message into one line, with a pointer to the help.
fn one_line(message: &str) -> String {
    let message = message.strip_prefix("error: ").unwrap_or(message);
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut parts = message.split("\n\n").map(words);
    let mut line = parts.next().unwrap_or_default();
    let mut help = "distlock --help".to_owned();
    for part in parts {
        if let Some(tip) = part.strip_prefix("tip: ") {
            line = format!("{line}; {tip}");
        } else if let Some(usage) = part.strip_prefix("Usage: distlock ") {
            let command = usage.split(' ').next().unwrap_or_default();
            if command.chars().all(|c| c.is_ascii_lowercase()) {
                help = format!("distlock {command} --help");
            }
        }
    }
    format!("{line}; see `{help}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(line: &str) -> Result<Command, Failure> {
        parse(line.split(' ').map(OsString::from))
    }

    #[test]
    fn the_definition_of_the_arguments_is_valid() {
        grammar().debug_assert();
    }

    #[test]
    fn a_run_is_parsed_with_all_its_options() {
        let line = "distlock run --url redis://h/ --wait 5s --lease 10s --fixed --at-least 1s \
                    --max-hold 1h --busy-code 0 --grace 0 name --";
        assert!(typed(line).is_err(), "no command");
        let line = "distlock run --url redis://h/ --wait 5s --lease 10s --fixed --at-least 1s \
                    --max-hold 1h --simple --busy-code 0 --grace 0 name -- ls -l --wait x";
        let Ok(Command::Run(run)) = typed(line) else {
            panic!("it is a run");
        };
        assert_eq!(run.store.url.as_deref(), Some("redis://h/"));
        assert_eq!(run.wait, Some(Duration::from_secs(5)));
        assert_eq!(
            (run.lease, run.fixed),
            (Some(Duration::from_secs(10)), true)
        );
        assert_eq!(run.at_least, Some(Duration::from_secs(1)));
        assert_eq!(run.max_hold, Some(Duration::from_secs(3600)));
        assert_eq!(run.kind.kind(), kind::Kind::Simple);
        assert_eq!((run.busy_code, run.grace), (0, Duration::ZERO));
        assert_eq!(run.names, ["name"]);
        assert_eq!(run.command, ["ls", "-l", "--wait", "x"]);
    }

    #[test]
    fn the_default_kind_is_plain() {
        for (flag, kind) in [
            ("", kind::Kind::Plain),
            ("--fenced ", kind::Kind::Fenced),
            ("--simple ", kind::Kind::Simple),
            ("--permits 3 ", kind::Kind::Permit(3)),
        ] {
            let run = typed(&format!("distlock run {flag}x -- ls"));
            let acquire = typed(&format!("distlock acquire {flag}--lease 1m x"));
            let (Ok(Command::Run(run)), Ok(Command::Acquire(acquire))) = (run, acquire) else {
                panic!("`{flag}` is one of them");
            };
            assert_eq!((run.kind.kind(), acquire.kind.kind()), (kind, kind));
        }
    }

    #[test]
    fn invalid_arguments_are_reported_on_one_line_with_a_remedy() {
        for line in [
            "distlock",
            "distlock walk",
            "distlock run",
            "distlock run x",
            "distlock run x ls",
            "distlock run --permits 0 x -- ls",
            "distlock run --permits 2 --fair x -- ls",
            "distlock run -- ls",
            "distlock run --wait x name -- ls",
            "distlock run --wait 5 name -- ls",
            "distlock run --fixed name -- ls",
            "distlock run --busy-code 256 name -- ls",
            "distlock run --bussy-code 3 name -- ls",
            "distlock run --simple --fenced name -- ls",
            "distlock show",
            "distlock latch set x",
            "distlock latch set x 0",
            "distlock permits set x",
            "distlock permits set x 0",
            "distlock acquire x",
            "distlock acquire x --lease 1m --fenced --simple",
            "distlock release x --owner o --force",
            "distlock completions tcl",
        ] {
            let failure = typed(line).expect_err(line);
            assert_eq!(failure.code, exit::USAGE, "{line}");
            let message = failure.message.expect("it says why");
            assert!(!message.contains('\n'), "{message}");
            assert!(message.contains("--help`"), "{message}");
        }
    }
}
