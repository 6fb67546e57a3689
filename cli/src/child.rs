//! The command that runs under the lock, and everything it starts.
//!
//! # The command's process group
//!
//! On a terminal (standard input is one, or this process is in the foreground of one) the command shares the process
//! group of `distlock`. It is then in the foreground, as it must be to read from the terminal, which it may do whatever
//! its standard input is (`ssh` asks for a password there). Ctrl-C, Ctrl-\ and Ctrl-Z reach it from the terminal
//! itself: none of them is forwarded, so that each arrives once. A group of its own would have to be made the
//! terminal's foreground group, which takes the terminal from the rest of a pipeline (`distlock run … | less`), and
//! Ctrl-C would no longer end the script that `distlock` is a part of.
//!
//! Elsewhere the command gets a group of its own, and signals that end this process are forwarded to all of it: a shell
//! that is ended alone would leave its commands running, without the lock.
//!
//! # The command after a crash of this process
//!
//! If the store detects the end of processes, the command goes on: the lock stays held until it has ended. A server
//! cannot detect it: a killed `distlock` can neither renew the lock nor end the command. On Linux the kernel ends it:
//! the command asks for KILL on its parent's death. Only a process itself can ask for that, and only before it becomes
//! the command, hence the intermediate step ([`exec_from_step`]). A command that changes its user on the way (`sudo`)
//! is spared by the kernel.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use rustix::process::{
    Pid, Signal, WaitOptions, getpgrp, getpid, kill_process, kill_process_group,
    test_kill_process_group, wait,
};
use rustix::termios::tcgetpgrp;

use crate::exit::{self, Failure};
use crate::nested::{self, Environment};
use crate::out::{say, shown};
use crate::signals::SignalEvent;
use crate::term::TermSent;
use crate::tree::{self, Process};

/// First argument of the intermediate step between this process and the command.
pub(crate) const STEP: &str = "__child";
pub(crate) const END: &str = "__end";

/// The running program, even if its file was replaced or deleted since its start.
const OURSELVES: &str = "/proc/self/exe";

/// A command that was started.
pub(crate) struct Child {
    pid: Pid,
    own_group: bool,
    /// Its end, once it was reaped: after that its pid may belong to another process.
    end: Option<ChildExit>,
    /// The TERM that was sent to it, if any.
    term: Option<TermSent>,
    /// Whether all processes have been asked to end; processes that they start after that are for cleanup.
    notified: bool,
    /// Whether this process may also adopt orphans that the command did not start.
    among_others: bool,
    /// An owner of the hold that the command runs under, which no other run has.
    owner: String,
}

/// The way in which a command has ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ChildExit {
    Itself,
    Signal(i32),
}

/// The processes of the command that were asked to end.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum SignalTarget {
    Nobody,
    /// The command alone.
    Command,
    /// All processes in the command's group.
    Group,
}

/// Returns whether a command that is started now gets a process group of its own.
pub(crate) fn gets_own_group() -> bool {
    !io::stdin().is_terminal() && !is_in_foreground()
}

/// Returns whether this process is in the foreground of a terminal, whatever its standard input is.
fn is_in_foreground() -> bool {
    let terminal = File::open("/dev/tty");
    terminal.is_ok_and(|terminal| tcgetpgrp(terminal) == Ok(getpgrp()))
}

impl Child {
    pub(crate) fn start(
        words: &[OsString],
        environment: Environment,
        owner: &str,
        dies_with_us: bool,
        own_group: bool,
    ) -> Result<Self, Failure> {
        let among_others = !tree::adopts_only_its_own();
        tree::adopt();
        let mut command = if dies_with_us {
            step(words)
        } else {
            plain(words)
        };
        put(environment, &mut command);
        if own_group {
            command.process_group(0);
        }
        let child = command.spawn().map_err(|error| cannot_run(words, &error))?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        // The child is reaped in `reap`, together with adopted orphans.
        let pid = pid.ok_or_else(|| Failure::new(exit::SYSTEM, "the command has no pid"))?;
        Ok(Self {
            pid,
            own_group,
            end: None,
            term: None,
            notified: false,
            among_others,
            owner: owner.to_owned(),
        })
    }

    /// Reaps all children that have ended; returns the command's exit code if it is one of them.
    pub(crate) fn reap(&mut self) -> Option<u8> {
        let mut ended = None;
        let looking = WaitOptions::NOHANG | WaitOptions::UNTRACED;
        while let Ok(Some((pid, status))) = wait(looking) {
            if pid != self.pid {
                continue;
            }
            if let Some(signal) = status.stopping_signal() {
                self.was_stopped(signal);
                continue;
            }
            let signal = status.terminating_signal();
            self.end = Some(signal.map_or(ChildExit::Itself, ChildExit::Signal));
            let code = status
                .exit_status()
                .and_then(|code| u8::try_from(code).ok());
            ended = code.or(signal.map(exit::by_signal));
        }
        ended
    }

    /// Returns which processes were asked to end, as far as the command's own end shows it: a signal that a terminal
    /// sends to the whole group may not have reached this process yet.
    pub(crate) fn notified_by_terminal(&self) -> SignalTarget {
        let by_terminal = [Signal::INT, Signal::QUIT].map(Signal::as_raw);
        match self.end {
            Some(ChildExit::Signal(signal)) if !self.own_group && by_terminal.contains(&signal) => {
                SignalTarget::Group
            }
            Some(_) | None => SignalTarget::Nobody,
        }
    }

    /// Returns whether the command has ended, and not by a signal.
    pub(crate) fn ended_itself(&self) -> bool {
        self.end == Some(ChildExit::Itself)
    }

    const fn is_reaped(&self) -> bool {
        self.end.is_some()
    }

    /// Explains why the command was stopped, if it was by the terminal: it still holds the lock, and the user may not
    /// see why.
    fn was_stopped(&self, signal: i32) {
        let by_terminal = [Signal::TTIN, Signal::TTOU].map(Signal::as_raw);
        if self.own_group && by_terminal.contains(&signal) {
            say(
                "the command was stopped: it needs the terminal and is not in its foreground; it still holds the lock",
            );
        }
    }

    /// Forwards a signal; returns which processes have been asked to end by it.
    pub(crate) fn forward(&mut self, event: SignalEvent) -> SignalTarget {
        if event == SignalEvent::End(Signal::TERM) {
            self.term = Some(TermSent::to_these(|| self.receivers()));
        }
        match event {
            SignalEvent::Child | SignalEvent::Stop => SignalTarget::Nobody,
            SignalEvent::End(signal) if self.own_group => {
                self.signal_group(signal);
                // A stopped process acts on other signals only when it continues.
                self.signal_group(Signal::CONT);
                SignalTarget::Group
            }
            // TERM comes from a sender that knows only the pid of this process.
            SignalEvent::End(signal) if signal == Signal::TERM => {
                self.signal(signal);
                self.signal(Signal::CONT);
                SignalTarget::Command
            }
            // A terminal sends these signals to the whole group.
            SignalEvent::End(_) => SignalTarget::Group,
            SignalEvent::Private(signal) => {
                self.signal(signal);
                SignalTarget::Nobody
            }
        }
    }

    /// Returns the processes to which TERM is forwarded.
    fn receivers(&self) -> HashSet<Pid> {
        let living = self.living().unwrap_or_default().into_iter();
        let in_group = living.filter(|process| process.group == Some(self.pid));
        let in_group = in_group
            .map(|process| process.pid)
            .filter(|_| self.own_group);
        in_group.chain([self.pid]).collect()
    }

    /// Stops the command if it has a group of its own: a terminal stops a shared group itself.
    pub(crate) fn stop(&self) {
        if self.own_group {
            self.signal_group(Signal::STOP);
        }
    }

    /// Continues the command.
    pub(crate) fn go_on(&self) {
        if self.own_group {
            self.signal_group(Signal::CONT);
        }
    }

    /// Notes which processes have been asked to end: they are asked only once.
    pub(crate) fn record_notified(&mut self, notified: SignalTarget) {
        self.notified = notified == SignalTarget::Group;
        self.term = None;
    }

    /// Forgets a TERM that was forwarded longer ago than `longest`: a command that goes on after it, as with a request
    /// to reload, has to be asked to end.
    pub(crate) fn forget_term(&mut self, longest: Duration) {
        self.term.take_if(|sent| sent.age() > longest);
    }

    /// Sends TERM to the command and everything it has started, once to each process; to be called again, for processes
    /// that the first call has missed. A process that a TERM handler starts does not receive it.
    pub(crate) fn request_end(&mut self) {
        if self.notified {
            return;
        }
        match (self.living(), &mut self.term) {
            (Some(living), Some(term)) => term.send_to_missed(&living),
            (Some(living), None) => self.term = Some(TermSent::send(&living, || self.living())),
            // Without a process table the group has to be enough.
            (None, _) => {
                self.signal_all(Signal::TERM);
                self.signal_all(Signal::CONT);
                self.notified = true;
            }
        }
    }

    /// Kills the command and everything it has started.
    pub(crate) fn kill(&self) {
        let Some(living) = self.living() else {
            return self.signal_all(Signal::KILL);
        };
        // Kill the group first, in one step: a growing tree may outrun a scan. A group keeps its id while it has a
        // member, even a zombie; after that the id may belong to another group.
        let in_group = living.iter().any(|process| process.group == Some(self.pid));
        if self.own_group && (!self.is_reaped() || in_group) {
            self.signal_group(Signal::KILL);
        }
        for Process { pid, .. } in living {
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    /// Returns whether nothing of the command is left.
    pub(crate) fn has_ended(&self) -> bool {
        match self.living() {
            Some(living) => living.is_empty(),
            // This check runs from the end of the group's leader on, so no other group can have got its id unnoticed.
            None if self.own_group => test_kill_process_group(self.pid).is_err(),
            None => self.is_reaped(),
        }
    }

    /// Returns the command and its living descendants; `None` where the system has no process table.
    fn living(&self) -> Option<Vec<Process>> {
        tree::below(getpid(), |child| self.is_ours(child))
    }

    /// Returns whether a child of this process is the command or an orphan of it. The table does not say where an
    /// orphan comes from: if it may come from elsewhere, it must have the command's variables. An orphan without them
    /// is left alone.
    fn is_ours(&self, child: &Process) -> bool {
        !self.among_others
            || (child.pid == self.pid && !self.is_reaped())
            || nested::is_under(child.pid, &self.owner)
    }

    fn signal(&self, signal: Signal) {
        if !self.is_reaped() {
            let _ = kill_process(self.pid, signal);
        }
    }

    fn signal_group(&self, signal: Signal) {
        let _ = kill_process_group(self.pid, signal);
    }

    fn signal_all(&self, signal: Signal) {
        if self.own_group {
            self.signal_group(signal);
        } else {
            self.signal(signal);
        }
    }
}

/// Replaces this process with the command; returns only if that fails.
pub(crate) fn exec_command(words: &[OsString], environment: Environment) -> Failure {
    let mut command = plain(words);
    put(environment, &mut command);
    cannot_run(words, &command.exec())
}

fn put(environment: Environment, command: &mut Command) {
    for (name, value) in environment {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
}

/// Ends this process by a signal with its default handler; returns only if that is impossible. A newly executed program
/// has no handlers.
pub(crate) fn kill_self(signal: Signal) {
    let mut command = Command::new(OURSELVES);
    command.arg0("distlock").arg(END);
    let _ = command.arg(signal.as_raw().to_string()).exec();
}

/// The last step: `distlock __end SIGNAL`.
pub(crate) fn end_by(signal: Option<OsString>) -> u8 {
    let number = signal.and_then(|signal| signal.to_str()?.parse().ok());
    let signal = number.and_then(Signal::from_named_raw);
    let signal = signal.unwrap_or(Signal::INT);
    let _ = kill_process(getpid(), signal);
    // The signal is ignored: this was inherited from the parent.
    exit::by_signal(signal.as_raw())
}

/// The step between `distlock run` and the command: `distlock __child PARENT COMMAND…`.
pub(crate) fn exec_from_step(mut words: impl Iterator<Item = OsString>) -> Result<u8, Failure> {
    let parent = words.next();
    let words: Vec<OsString> = words.collect();
    if words.is_empty() {
        return Err(Failure::new(
            exit::USAGE,
            "`__child` is an internal step of `distlock run`",
        ));
    }
    die_with(parent);
    // The inherited environment is already the command's.
    Err(cannot_run(&words, &plain(&words).exec()))
}

/// Asks the kernel for KILL when the parent dies; ends at once if it is dead already.
fn die_with(parent: Option<OsString>) {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{getppid, set_parent_process_death_signal};
        let parent = parent.and_then(|pid| pid.to_str()?.parse().ok());
        // If the system forbids even this, the command survives its parent.
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
        // The parent may have died before the request.
        if getppid().map(|pid| pid.as_raw_nonzero().get()) != parent {
            std::process::exit(i32::from(exit::by_signal(Signal::KILL.as_raw())));
        }
    }
    #[cfg(not(target_os = "linux"))]
    drop(parent);
}

fn step(words: &[OsString]) -> Command {
    let can_reexec = cfg!(target_os = "linux") && std::fs::exists(OURSELVES).unwrap_or(false);
    if !can_reexec {
        return plain(words);
    }
    let mut command = Command::new(OURSELVES);
    command.arg0("distlock").arg(STEP);
    command.arg(std::process::id().to_string()).args(words);
    command
}

fn plain(words: &[OsString]) -> Command {
    // The parser guarantees a first word.
    let mut words = words.iter();
    let mut command = Command::new(words.next().map_or_else(OsString::new, Clone::clone));
    command.args(words);
    command
}

fn cannot_run(words: &[OsString], error: &io::Error) -> Failure {
    let name = words.first().map(|word| shown(&word.to_string_lossy()));
    let name = name.unwrap_or_default();
    if error.kind() == io::ErrorKind::NotFound {
        let message = format!("cannot run `{name}`: no such command; check the name and the PATH");
        return Failure::new(exit::NOT_FOUND, message);
    }
    Failure::new(
        exit::NOT_EXECUTABLE,
        format!("cannot run `{name}`: {error}"),
    )
}
