//! The stage of a test: a store of its own, and how the command is run on it.

use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::RedisServer;
pub(crate) use crate::support::{PATIENCE, wait_until};

/// A store that no other test uses, and a folder.
pub(crate) struct Stage {
    server: Option<RedisServer>,
    folder: TempDir,
}

impl Stage {
    pub(crate) fn redis() -> Self {
        Self {
            server: Some(RedisServer::start()),
            ..Self::sqlite()
        }
    }

    pub(crate) fn sqlite() -> Self {
        let folder = TempDir::with_prefix("distlock-command-");
        Self {
            server: None,
            folder: folder.expect("the temp folder is writable"),
        }
    }

    /// Returns the server, for faults that only a server has.
    pub(crate) fn server(&self) -> &RedisServer {
        self.server.as_ref().expect("it is a server's stage")
    }

    /// Returns the value for a store whose holds have a lease that ends, or for one whose holds last while their command runs.
    pub(crate) fn lasts<T>(&self, leased: T, running: T) -> T {
        if self.server.is_some() {
            leased
        } else {
            running
        }
    }

    pub(crate) fn url(&self) -> String {
        match &self.server {
            Some(server) => server.url(),
            None => format!("sqlite:{}", self.file("locks.db")),
        }
    }

    pub(crate) fn file(&self, name: &str) -> String {
        let path = self.folder.path().join(name);
        path.to_str().expect("temp folders are text").to_owned()
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.file(name)).unwrap_or_default()
    }

    /// Returns `distlock` with these arguments on this store.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = distlock(words);
        command.env("DISTLOCK_URL", self.url());
        command
    }

    /// Returns a shell with this script, on this store.
    pub(crate) fn shell(&self, script: &str) -> Command {
        let mut command = alone("sh");
        command.args(["-c", script]);
        command.env("DISTLOCK_URL", self.url());
        command
    }

    /// Runs `distlock` with these arguments on this store to its end. It runs again if the store had no time to reply.
    pub(crate) fn run(&self, words: &[&str]) -> Ran {
        let again = (1..TRIES).map(|_| ran(self.command(words)));
        let in_time = again.into_iter().find(|ran| !ran.was_late());
        in_time.unwrap_or_else(|| ran(self.command(words)))
    }

    /// Starts `distlock` with these arguments, without waiting for its end.
    pub(crate) fn start(&self, words: &[&str]) -> Running {
        Running::start(self.command(words))
    }

    /// Starts to hold a lock, until the run is ended.
    pub(crate) fn hold(&self, name: &str) -> Running {
        self.hold_with(&[name])
    }

    /// Starts to hold a lock, with options before the name.
    pub(crate) fn hold_with(&self, words: &[&str]) -> Running {
        let command = &["--", "sh", "-c", "echo held; exec sleep 1000"];
        let words = [&["run"][..], words, command].concat();
        let mut tries = TRIES;
        let holder = loop {
            let mut holder = self.start(&words);
            if let Some(line) = holder.next_line() {
                assert_eq!(line, "held");
                break holder;
            }
            let ran = holder.end();
            tries -= 1;
            assert!(ran.was_late() && tries > 0, "{ran:?}");
        };
        // The label is stored in the background, a moment after the grant.
        let name = words[words.len() - 5];
        wait_until("its label is seen", || {
            let shown = self.run(&["show", "--json", name]).out;
            // The label of another holder may have been there before.
            shown.contains("sleep 1000") && !shown.contains("\"label\":null")
        });
        holder
    }

    /// Waits until a client waits for a lock, the only one with waiters here.
    pub(crate) fn is_awaited(&self) {
        wait_until("somebody waits", || match &self.server {
            Some(server) => !server.pubsub_channels().is_empty(),
            None => {
                let file = rusqlite::Connection::open(self.file("locks.db"));
                let listed = "SELECT 1 FROM listeners WHERE channel LIKE 'lock:%'";
                file.and_then(|file| file.prepare(listed)?.exists([]))
                    .expect("whoever holds the lock has made it")
            }
        });
    }

    /// Waits until a client waits for this lock: where there are several, it may wait without a subscription.
    pub(crate) fn is_awaited_for(&self, name: &str) {
        let listed = format!("SELECT 1 FROM listeners WHERE channel LIKE '%:{name}'");
        wait_until("somebody waits for it", || match &self.server {
            Some(server) => {
                let channels = server.pubsub_channels();
                channels
                    .iter()
                    .any(|channel| channel.ends_with(&format!("{{{name}}}")))
            }
            None => {
                let file = rusqlite::Connection::open(self.file("locks.db"));
                file.and_then(|file| file.prepare(&listed)?.exists([]))
                    .expect("whoever holds it has made it")
            }
        });
    }

    /// Gives all clients another label than they have set themselves.
    pub(crate) fn set_label(&self, label: &str) {
        let Some(server) = &self.server else {
            let file = rusqlite::Connection::open(self.file("locks.db"));
            let file = file.expect("whoever has a label has made it");
            let changed = file.execute("UPDATE clients SET label = ?1", [label]);
            assert_ne!(changed, Ok(0));
            return;
        };
        let keys = server.keys();
        for key in keys
            .iter()
            .filter(|key| key.starts_with("distlock_client:"))
        {
            server.cmd(&["SET", key, label, "KEEPTTL"]);
        }
    }

    /// Reports whether a lock is held.
    pub(crate) fn is_held(&self, name: &str) -> bool {
        self.run(&["show", name]).code == 0
    }
}

/// Returns `distlock` with these arguments, without the environment variables that it reads, and without the terminal that the tests may
/// have been started from.
pub(crate) fn distlock(words: &[&str]) -> Command {
    let mut command = alone(env!("CARGO_BIN_EXE_distlock"));
    command.args(words);
    command
}

/// Returns this program, in the same way.
pub(crate) fn alone(program: &str) -> Command {
    let mut command = Command::new("setsid");
    command.arg(program);
    for variable in [
        "DISTLOCK_URL",
        "DISTLOCK_NAME",
        "DISTLOCK_OWNER",
        "DISTLOCK_TOKEN",
        "DISTLOCK_HELD",
    ] {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null());
    command
}

/// The exit code of a command, and its output.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// Reports whether nothing was done because the store did not reply within two seconds, for which a busy machine may stand still.
    fn was_late(&self) -> bool {
        let why = ["no reply within", "timed out", "not opened within"];
        self.code == 69 && self.out.is_empty() && why.iter().any(|why| self.err.contains(why))
    }
}

pub(crate) fn ran(mut command: Command) -> Ran {
    let output: Output = command.output().expect("distlock can be started");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it speaks text");
    Ran {
        code: code(output.status),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

/// Returns the exit code as a shell reports it. Only one signal may end distlock: Ctrl-C's.
pub(crate) fn code(status: ExitStatus) -> i32 {
    let interrupted = status.signal() == Some(Signal::SIGINT as i32);
    status
        .code()
        .or(interrupted.then_some(128 + Signal::SIGINT as i32))
        .unwrap_or_else(|| panic!("it was killed: {status}"))
}

/// A running command. It is ended, with the processes that it started, when this is dropped.
pub(crate) struct Running {
    child: KillOnDrop,
    output: BufReader<ChildStdout>,
}

/// A process that is ended when this is dropped, and its command with it.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // TERM first: on a store that sees which processes run, a command outlives a `distlock` that is killed.
        let pid = i32::try_from(self.0.id()).map(Pid::from_raw);
        if let (Ok(None), Ok(pid)) = (self.0.try_wait(), pid) {
            let _ = kill(pid, Signal::SIGTERM);
        }
        let begun = Instant::now();
        while begun.elapsed() < A_MOMENT && matches!(self.0.try_wait(), Ok(None)) {
            std::thread::sleep(POLL);
        }
        // Both fail only for a process that has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("distlock can be started");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let child = KillOnDrop(child);
        Self { child, output }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.0.id()).expect("a pid fits"))
    }

    /// Returns its next line, which must come.
    pub(crate) fn line(&mut self) -> String {
        let line = self.next_line();
        line.expect("it ended instead of saying something")
    }

    /// Returns its next line, or none if it ends.
    fn next_line(&mut self) -> Option<String> {
        let mut line = String::new();
        if self.output.buffer().is_empty() {
            let mut more = [PollFd::new(self.output.get_ref(), PollFlags::IN)];
            let patience = Timespec::try_from(PATIENCE).expect("it is short");
            let ready = poll(&mut more, Some(&patience)).expect("pipes can be asked");
            assert!(ready > 0, "it says nothing");
        }
        self.output.read_line(&mut line).expect("it speaks text");
        line.ends_with('\n').then(|| line.trim_end().to_owned())
    }

    /// Returns the next line of its standard error, which must come. It reads byte by byte, so that the rest stays in the pipe.
    pub(crate) fn err_line(&mut self) -> String {
        let pipe = self.child.0.stderr.as_mut().expect("it is piped");
        let (mut line, mut byte) = (Vec::new(), [0]);
        loop {
            let mut more = [PollFd::new(&*pipe, PollFlags::IN)];
            let patience = Timespec::try_from(PATIENCE).expect("it is short");
            let ready = poll(&mut more, Some(&patience)).expect("pipes can be polled");
            assert!(ready > 0, "no message comes");
            let read = pipe.read(&mut byte).expect("pipes can be read");
            assert_eq!(read, 1, "it ended without a message");
            if byte == *b"\n" {
                return String::from_utf8(line).expect("messages are text");
            }
            line.extend(byte);
        }
    }

    /// Waits for its next line, which must be this.
    pub(crate) fn says(&mut self, line: &str) {
        assert_eq!(self.line(), line);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("a child can be signalled");
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.0.try_wait().expect("it is our child").is_none()
    }

    /// Closes our end of its output; waits for its end, which must come.
    pub(crate) fn stop_reading(self) -> Ran {
        drop(self.output);
        end(self.child, String::new)
    }

    /// Waits for its end, which must come.
    pub(crate) fn end(self) -> Ran {
        end(self.child, || {
            let before = String::from_utf8_lossy(self.output.buffer()).into_owned();
            before + &rest(self.output.into_inner())
        })
    }
}

fn end(mut child: KillOnDrop, output: impl FnOnce() -> String) -> Ran {
    let child = &mut child.0;
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("it is our child") {
            break status;
        }
        assert!(begun.elapsed() < PATIENCE, "it does not end");
        std::thread::sleep(POLL);
    };
    Ran {
        code: code(status),
        out: output(),
        err: child.stderr.take().map_or_else(String::new, rest),
    }
}

/// Returns the current content of a pipe. It does not read to the end: a process that the command started may have the other end, and go
/// on.
fn rest(mut pipe: impl Read + AsFd) -> String {
    rustix::io::ioctl_fionbio(&pipe, true).expect("pipes need not wait");
    let mut bytes = Vec::new();
    if let Err(error) = pipe.read_to_end(&mut bytes) {
        assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
    }
    String::from_utf8(bytes).expect("it speaks text")
}

/// Reports whether a process exists and runs: neither gone nor a zombie.
pub(crate) fn is_alive(pid: &str) -> bool {
    state(pid).is_some_and(|state| state != 'Z')
}

/// Returns the pid of its parent.
pub(crate) fn parent(pid: &str) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).ok()?;
    let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?;
    Some(parent.to_owned())
}

/// Returns the state of a process as the system's letter for it; none if it has gone.
pub(crate) fn state(pid: &str) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Parses the pid that a command has printed.
pub(crate) fn pid_of(line: &str) -> Pid {
    Pid::from_raw(line.trim().parse().expect("a pid"))
}

/// Upper bound for the end of a process that is no longer needed.
pub(crate) const A_MOMENT: Duration = Duration::from_secs(10);
/// How often a step is tried that a busy machine may have kept from being quick.
pub(crate) const TRIES: usize = 20;
const POLL: Duration = Duration::from_millis(5);

/// Parses a line of `--json`.
pub(crate) fn object(line: &str) -> Value {
    let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    assert!(value.is_object(), "{line}");
    value
}
