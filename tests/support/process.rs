//! Both ends of a worker process: how a test starts, controls and stops it, and how the worker reports.
//!
//! A worker writes lines to its standard output and ends when its standard input does: with the test, however the test ends.

use std::io::{BufRead, BufReader, Write, stdin, stdout};
use std::process::{Child, ChildStdin, Command, Stdio, exit};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, SystemTime};
use std::{env, thread};

use distlock::Error;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use tokio::runtime::Runtime;

use super::PATIENCE;

/// A worker process, as its test sees it. It is killed when dropped.
pub(crate) struct Process {
    child: Child,
    orders: ChildStdin,
    lines: Receiver<String>,
}

impl Process {
    pub(crate) fn start(role: &str, url: &str) -> Self {
        let program = env::current_exe().expect("this runs from a file");
        Self::spawn(Command::new(program), role, url)
    }

    /// Starts a worker by another program, which runs the command line behind its own arguments.
    pub(crate) fn start_by(program: &str, args: &[&str], role: &str, url: &str) -> Self {
        let mut command = Command::new(program);
        command
            .args(args)
            .arg(env::current_exe().expect("this runs from a file"));
        Self::spawn(command, role, url)
    }

    fn spawn(mut command: Command, role: &str, url: &str) -> Self {
        let mut child = command
            .args(["--exact", "worker", "--ignored", "--nocapture"])
            .env(ROLE, role)
            .env(URL, url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program can be started again");
        let orders = child.stdin.take().expect("it is piped");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let (line, lines) = channel();
        thread::spawn(move || {
            // The lines that the test harness prints around them are not the worker's.
            for output in output.lines().map_while(Result::ok) {
                if let Some((_, said)) = output.split_once(SAYS)
                    && line.send(said.to_owned()).is_err()
                {
                    return;
                }
            }
        });
        Self {
            child,
            orders,
            lines,
        }
    }

    /// Waits for the worker's next line, which must begin with this word, and returns the rest.
    pub(crate) fn expect_line(&self, word: &str) -> String {
        self.hear_within(PATIENCE, word)
    }

    /// Waits as [`expect_line`](Self::expect_line) does, with another limit for a worker that has much to do before.
    fn hear_within(&self, patience: Duration, word: &str) -> String {
        let line = self
            .lines
            .recv_timeout(patience)
            .unwrap_or_else(|_| panic!("the worker never said `{word}`"));
        let rest = line.strip_prefix(word);
        let rest = rest.unwrap_or_else(|| panic!("`{line}` instead of `{word}`"));
        rest.trim_start().to_owned()
    }

    /// Returns the lines that have arrived and were not read before.
    pub(crate) fn new_lines(&self) -> Vec<String> {
        self.lines.try_iter().collect()
    }

    pub(crate) fn send_line(&mut self, order: &str) {
        writeln!(self.orders, "{order}").expect("the worker listens");
    }

    /// Waits for the worker's end and returns all lines that were not read before.
    pub(crate) fn last_words(&mut self) -> Vec<String> {
        self.child.wait().expect("it is our child");
        self.lines.iter().collect()
    }

    /// Returns the processor time that the worker has used, in user and kernel mode.
    pub(crate) fn processor_time(&self) -> Duration {
        let tasks = format!("/proc/{}/task", self.pid());
        let tasks = std::fs::read_dir(tasks).expect("it is there");
        let spent = tasks.filter_map(|task| {
            // A thread may have ended since it was listed.
            let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
            text.split(' ').next()?.parse::<u64>().ok()
        });
        Duration::from_nanos(spent.sum())
    }

    /// Sends SIGKILL.
    pub(crate) fn kill(&mut self) {
        kill(self.pid(), Signal::SIGKILL).expect("a child can be signalled");
    }

    /// Sends SIGSTOP, and returns once the worker has really stopped.
    pub(crate) fn stop(&self) {
        kill(self.pid(), Signal::SIGSTOP).expect("a child can be signalled");
        let status = waitpid(self.pid(), Some(WaitPidFlag::WUNTRACED)).expect("it is our child");
        assert!(matches!(status, WaitStatus::Stopped(..)), "{status:?}");
    }

    /// Sends SIGCONT, after [`stop`](Self::stop).
    pub(crate) fn resume(&self) {
        kill(self.pid(), Signal::SIGCONT).expect("a child can be signalled");
    }

    /// Waits until the worker has ended by itself, with a successful exit status.
    pub(crate) fn ended_well(&mut self) {
        let status = self.child.wait().expect("it is our child");
        assert!(status.success(), "{status}");
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("a pid fits"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both calls fail only for a child that has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts the workers together, once each is ready, and waits until they are done.
pub(crate) fn race(workers: &mut [Process]) {
    for worker in &mut *workers {
        worker.expect_line("ready");
    }
    for worker in &mut *workers {
        worker.send_line("go");
    }
    for worker in workers {
        worker.hear_within(6 * PATIENCE, "done");
        worker.ended_well();
    }
}

/// Returns the task of this process, if it is a worker.
pub(crate) fn role() -> Option<String> {
    env::var(ROLE).ok()
}

/// Returns the address of the store that a worker is to use.
pub(crate) fn url() -> String {
    env::var(URL).expect("a worker is told its store")
}

/// Writes a line to the test.
pub(crate) fn say(line: &str) {
    let mut out = stdout().lock();
    writeln!(out, "{SAYS}{line}")
        .and_then(|()| out.flush())
        .expect("the test listens");
}

/// Reports how a call ended, or that it did not end.
pub(crate) fn say_outcome<T: Send + 'static>(
    what: &str,
    call: impl FnOnce() -> Result<T, Error> + Send + 'static,
) {
    let (done, outcome) = channel();
    thread::spawn(move || {
        let _ = done.send(call().map(|_| ()));
    });
    // A call that hangs does so for good; a busy machine may stand still for seconds.
    let outcome = match outcome.recv_timeout(PATIENCE / 2) {
        Ok(Ok(())) => "done".to_owned(),
        Ok(Err(Error::Closed { forked: true, .. })) => "closed".to_owned(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "hangs".to_owned(),
    };
    say(&format!("{what} {outcome}"));
}

/// Returns the orders of the test. The thread that reads them ends the process when the test has ended.
pub(crate) fn orders() -> Receiver<String> {
    let (order, orders) = channel();
    thread::spawn(move || {
        for line in stdin().lines().map_while(Result::ok) {
            let _ = order.send(line);
        }
        exit(1);
    });
    orders
}

/// Returns a runtime for a worker, like that of an ordinary program.
pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime can be had")
}

/// Returns nanoseconds of the one clock that processes share and the standard library reads.
pub(crate) fn wall_clock() -> u128 {
    let now = SystemTime::now();
    now.duration_since(SystemTime::UNIX_EPOCH)
        .expect("it is later than 1970")
        .as_nanos()
}

const ROLE: &str = "DISTLOCK_TEST_ROLE";
const URL: &str = "DISTLOCK_TEST_URL";
const SAYS: &str = "worker says: ";
