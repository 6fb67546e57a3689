//! `run`: a command while a lock is held.
//!
//! | state | event | next state |
//! |---|---|---|
//! | connecting | a signal that ends this process | exit with 128+n |
//! | waiting | the lock is granted | running |
//! | | the wait times out | exit with the busy code |
//! | | a signal that ends this process | exit with 128+n |
//! | running | the command ends | releasing; if it was asked to end, after all it started has ended |
//! | | the lock is lost | ending |
//! | | a signal | running: the command receives it |
//! | ending | the grace is over | everything left is killed |
//! | | nothing is left | exit with 76 |
//! | releasing | the lock was lost before the command ended | exit with 76 |
//! | | `--at-least` is over, or a signal that ends this process | exit with the command's code |

use std::time::{Duration, Instant};

use distlock::{Client, Error, Lease, LockKind, Lost, LostReason, ReleaseOn};
use rustix::process::Signal;

use crate::args::Run;
use crate::child::{self, Child, SignalTarget};
use crate::date::Date;
use crate::duration::exact;
use crate::exit::{self, Failure};
use crate::kind::Kind;
use crate::label;
use crate::nested::{self, Environment, Hold};
use crate::out::{say, say_at_once, shown};
use crate::signals::{SignalEvent, Signals, stop_self};
use crate::store;
use crate::take::{TakeOutcome, TakeParams, busy, take};
use crate::taken::Taken;

/// A command that is still running this long after a forwarded TERM is not cleaning up: it has decided to go on.
const LONGEST_CLEANUP: Duration = Duration::from_secs(60);

/// Time between two scans for the remaining processes of a command that is to end.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// A process that still exists this long after KILL cannot be killed.
const FINAL_PROBE: Duration = Duration::from_secs(2);

pub(crate) async fn run(args: Run) -> Result<u8, Failure> {
    let mut signals = Signals::install()?;
    let client = tokio::select! {
        biased;
        client = store::connect(&args.store, ReleaseOn::Children) => client?,
        code = signals.end() => return Ok(code),
    };
    let done = under_lock(&client, &args, &mut signals).await;
    store::leave(&client).await;
    match done? {
        RunOutcome::Ended(code) => Ok(code),
        RunOutcome::Interrupted(code) => {
            child::kill_self(Signal::INT);
            Ok(code)
        }
        // The command runs under the hold of an outer run, which supervises it, so this process is not needed. The
        // signals that it has received until now were meant for the command.
        RunOutcome::Held(environment) => match signals.termination_requested() {
            Some(code) => Ok(code),
            None => Err(child::exec_command(&args.command, environment)),
        },
    }
}

enum RunOutcome {
    Ended(u8),
    /// The command was ended by Ctrl-C: a parent shell stops its script only if this process ends the same way.
    Interrupted(u8),
    /// A hold already exists; the command runs under it with this environment.
    Held(Environment),
}

async fn under_lock(
    client: &Client,
    args: &Run,
    signals: &mut Signals,
) -> Result<RunOutcome, Failure> {
    let outer = nested::outer_holds();
    // Do not wait for a lock that an outer run holds.
    let (mut holds, mut names) = (Vec::new(), Vec::new());
    for (place, name) in args.names.iter().enumerate() {
        // A name that is given twice is acquired once.
        if args.names[..place].contains(name) {
            continue;
        }
        match nested::still_held(client, name, &outer).await? {
            Some(hold) => {
                has_what_is_needed(&hold, args)?;
                holds.push(hold);
            }
            None => names.push(name.clone()),
        }
    }
    if names.is_empty() {
        return Ok(RunOutcome::Held(nested::environment(outer, holds)));
    }
    let params = params(args, &names);
    let taken = match take(client, &params, signals).await? {
        TakeOutcome::Granted(taken) => taken,
        TakeOutcome::Busy => return Err(busy(client, &params, args.busy_code).await),
        TakeOutcome::Ended(code) => return Ok(RunOutcome::by(code, false)),
    };
    let since = Instant::now();
    let label = label::of_this_process(Date::now(), args.fixed, &args.command);
    client.set_label(label);
    holds.extend(taken.parts.iter().map(|part| Hold {
        name: part.name.clone(),
        owner: part.owner.clone(),
        token: part.token.map(u64::from),
        reads: taken.kind == LockKind::Read,
        permits: args.kind.kind().permits(),
    }));
    holds.sort_by_key(|hold| args.names.iter().position(|name| *name == hold.name));
    // A fixed lease expires even if the command is still at work.
    let leased = args.fixed || !store::sees_processes(&args.store);
    if let Some(code) = signals.termination_requested() {
        return release_locks(taken, code, HoldStatus::Unknown, leased)
            .await
            .map(RunOutcome::Ended);
    }
    let environment = nested::environment(outer, holds);
    // Checked only now: during the wait the user may have brought this process to the foreground.
    let own_group = child::gets_own_group();
    if own_group {
        // In a shared group, Ctrl-Z stops the command by itself.
        signals.install_stop_handler()?;
    }
    let owner = taken.parts.first().map_or("", |part| &part.owner);
    let mut child = Child::start(&args.command, environment, owner, leased, own_group)?;
    let code = match supervise(&mut child, &taken, signals).await {
        Ok(Ended {
            code,
            notified: SignalTarget::Nobody,
        }) => code,
        Ok(Ended { code, notified }) => {
            // The rest of it may still be cleaning up, which must happen under the lock.
            child.record_notified(notified);
            end(&mut child, args.grace).await;
            code
        }
        Err(lost) => {
            let message = loss(&lost, args, &taken);
            // A blocked reader of standard error must not keep the command running.
            let said = say_at_once(&message);
            end(&mut child, args.grace).await;
            if !said {
                say(message);
            }
            return Ok(RunOutcome::Ended(exit::LOST));
        }
    };
    let left = args
        .at_least
        .map(|least| least.saturating_sub(since.elapsed()));
    let hold_status = match left.filter(|left| !left.is_zero()) {
        Some(left) => {
            // The status is requested now: a loss that is noticed later may have happened before the command ended.
            let hold_status = hold_status(client, &taken).await;
            if hold_status != HoldStatus::Lost {
                wait_at_least(left, &taken, signals).await;
            }
            hold_status
        }
        // The reply to the release will show the status.
        None => HoldStatus::Unknown,
    };
    let code = release_locks(taken, code, hold_status, leased).await?;
    Ok(RunOutcome::by(code, child.ended_itself()))
}

impl RunOutcome {
    /// The outcome for a command that ended by itself, or by a signal.
    fn by(code: u8, itself: bool) -> Self {
        if code == exit::by_signal(Signal::INT.as_raw()) && !itself {
            return Self::Interrupted(code);
        }
        Self::Ended(code)
    }
}

fn params<'a>(args: &Run, names: &'a [String]) -> TakeParams<'a> {
    let kept = |lease| {
        if args.fixed {
            Lease::Fixed(lease)
        } else {
            Lease::KeepAlive(lease)
        }
    };
    TakeParams {
        kind: args.kind.kind(),
        names,
        wait: args.wait,
        lease: args.lease.map(kept),
        max_hold: args.max_hold,
        failover_delay: args.store.failover_delay,
    }
}

/// Rejects an outer hold without a token for a command that asks for one, since its writes would carry no token, and a
/// reader's hold for a command that asks for exclusion.
fn has_what_is_needed(hold: &Hold, args: &Run) -> Result<(), Failure> {
    let missing = match args.kind.kind() {
        Kind::Fenced if hold.token.is_none() => {
            "has no token: the outer run needs `--fenced` as well"
        }
        Kind::Permit(total) => match hold.permits {
            Some(of) if of > total => {
                "has a permit of a larger semaphore than this run allows: use the same `--permits` for both"
            }
            None if hold.reads => {
                "shares it with any number of readers: the outer run needs `--permits`"
            }
            Some(_) | None => return Ok(()),
        },
        _ if hold.permits.is_some() => {
            "shares it with other holders of permits: the outer run must not use `--permits`"
        }
        Kind::Read => return Ok(()),
        _ if hold.reads => "shares it with other readers: the outer run needs `--write`",
        _ => return Ok(()),
    };
    let name = shown(&hold.name);
    let message = format!("`{name}` is held by the outer run, which {missing}");
    Err(Failure::new(exit::USAGE, message))
}

/// Returns the message about a loss: its cause, what to do about it, and what happens to the command now.
fn loss(lost: &Lost, args: &Run, taken: &Taken) -> String {
    let (name, option) = (shown(&lost.name), store::option(&args.store));
    let cause = match (lost.reason, args.max_hold) {
        (LostReason::MaxHold, Some(longest)) => {
            // The limit ends all holds at once.
            let names = taken
                .parts
                .iter()
                .map(|part| format!("`{}`", shown(&part.name)));
            let names = names.collect::<Vec<_>>().join(", ");
            let longest = exact(longest);
            format!("{names}: --max-hold {longest} reached (raise it if the command needs longer)")
        }
        (LostReason::Expired, _) if args.fixed => format!(
            "`{name}` was lost: its lease expired, and --fixed does not renew it (give a longer --lease, or leave out \
             --fixed)"
        ),
        _ => match &lost.cause {
            Some(cause) => {
                let store = store::address(&args.store);
                format!(
                    "`{name}` was lost: {}; renewal at {store} failed: {cause} (`distlock doctor{option}` tests the store)",
                    lost.reason
                )
            }
            None => format!("{lost} (`distlock show{option} {name}` shows its current state)"),
        },
    };
    if args.grace.is_zero() {
        return format!("{cause}; sending KILL to the command");
    }
    let grace = exact(args.grace);
    format!("{cause}; sending TERM to the command (grace {grace})")
}

/// The end of the command.
struct Ended {
    code: u8,
    /// The processes that had been asked to end.
    notified: SignalTarget,
}

/// Waits for the end of the command, or for a loss of the lock before that.
async fn supervise(child: &mut Child, taken: &Taken, signals: &mut Signals) -> Result<Ended, Lost> {
    let mut lost = taken.lost();
    let mut notified = SignalTarget::Nobody;
    loop {
        tokio::select! {
            biased;
            // Only this process can release the lock, so `None` does not occur here.
            Some(lost) = &mut lost => return Err(lost),
            event = signals.next() => {
                notified = notified.max(child.forward(event));
                if event == SignalEvent::Child && let Some(code) = child.reap() {
                    let notified = notified.max(child.notified_by_terminal());
                    return Ok(Ended { code, notified });
                }
                if event == SignalEvent::Stop {
                    // Stop the command first: it must not run while its lock is not renewed.
                    child.stop();
                    stop_self();
                    // If the lock was lost meanwhile, the command is continued only to be ended.
                    if taken.is_held() {
                        child.go_on();
                    }
                }
            }
        }
    }
}

/// Ends the command and all that it started: sends TERM, and KILL after the grace.
async fn end(child: &mut Child, grace: Duration) {
    let begun = Instant::now();
    // Programs that a handler of that TERM has started may be cleaning up.
    child.forget_term(grace.min(LONGEST_CLEANUP));
    loop {
        child.reap();
        if child.has_ended() {
            // Processes that ended since the last call have to be reaped, too.
            child.reap();
            return;
        }
        let over = begun.elapsed();
        if over < grace {
            child.request_end();
        } else if over < grace + FINAL_PROBE {
            child.kill();
        } else {
            return say("some processes that the command started cannot be killed");
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// The state of the lock when the command has ended, as the store reports it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum HoldStatus {
    Held,
    Lost,
    /// The store did not reply, or was not asked.
    Unknown,
}

/// Asks the store whether all locks are still held.
async fn hold_status(client: &Client, taken: &Taken) -> HoldStatus {
    if !taken.is_held() {
        return HoldStatus::Lost;
    }
    for part in &taken.parts {
        match client.admin().inspect(&part.name).await {
            Ok(Some(seen)) if seen.holders.iter().any(|holder| holder.owner == part.owner) => {}
            Ok(_) | Err(Error::WrongKind { .. }) => return HoldStatus::Lost,
            Err(error) => {
                say(format!(
                    "{error}; it is not known whether the lock was held until the command ended: if it turns out to be \
                     lost, the exit code is {}",
                    exit::LOST
                ));
                return HoldStatus::Unknown;
            }
        }
    }
    HoldStatus::Held
}

/// Holds the lock for the rest of `--at-least`, unless it is lost or a signal ends this process.
async fn wait_at_least(left: Duration, taken: &Taken, signals: &mut Signals) {
    let mut over = std::pin::pin!(tokio::time::sleep(left));
    let mut lost = taken.lost();
    loop {
        tokio::select! {
            () = &mut over => return,
            _ = &mut lost => return,
            event = signals.next() => match event {
                SignalEvent::End(_) => return,
                SignalEvent::Stop => stop_self(),
                SignalEvent::Child | SignalEvent::Private(_) => {}
            },
        }
    }
}

/// Releases the lock. A command that ended well has not run under the lock if that was lost before. A loss does not
/// count if the store said after the command's end that the lock was held.
async fn release_locks(
    taken: Taken,
    code: u8,
    hold_status: HoldStatus,
    leased: bool,
) -> Result<u8, Failure> {
    let lost = |why: String| {
        let message =
            format!("{why}; this happened before the command ended with exit code {code}");
        Err(Failure::new(exit::LOST, message))
    };
    match taken.release().await {
        Ok(()) => Ok(code),
        Err(error) if error.denies_hold() => match hold_status {
            HoldStatus::Held => Ok(code),
            HoldStatus::Lost | HoldStatus::Unknown => lost(error.to_string()),
        },
        Err(error) if hold_status == HoldStatus::Lost => {
            lost(format!("{error}; the lock is no longer held"))
        }
        Err(error) => {
            let end = if leased {
                "the lock is free when its lease expires"
            } else {
                "the lock is free when this process and all processes that it started have ended"
            };
            say(format!("{error}; {end}"));
            Ok(code)
        }
    }
}
