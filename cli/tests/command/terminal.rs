//! Tests of a terminal: colours, a progress line during a wait, questions, and Ctrl-C.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::pty::openpty;
use nix::sys::signal::Signal;

use crate::stage::{PATIENCE, Stage, wait_until};
use crate::support::{ChaosProxy, Fault, Match};

on_every_store! {
    a_waiting_terminal_shows_the_holder_and_the_times,
    a_stalled_terminal_delays_no_waiter,
    a_list_has_colours_unless_disabled,
    ctrl_c_reaches_the_command_once,
    a_terminal_can_be_read_from,
    a_terminal_can_be_read_from_though_the_input_is_a_pipe,
    ctrl_c_reaches_the_command_once_though_the_input_is_a_pipe,
    processes_reached_by_ctrl_c_are_not_signalled_again,
    ctrl_c_stops_a_surrounding_script,
    ctrl_c_stops_a_surrounding_script_during_a_wait,
    a_background_command_that_reads_the_terminal_is_reported,
    ctrl_z_stops_distlock_and_the_command,
    a_force_release_asks_for_confirmation,
    replacing_or_deleting_a_number_asks_for_confirmation,
    a_signal_from_elsewhere_still_reaches_the_command,
    a_lost_lock_ends_the_command_and_no_other_process,
}

fn a_waiting_terminal_shows_the_holder_and_the_times(stage: &Stage) {
    let holder = stage.hold("x");
    let mut waiter = Terminal::start(stage, &["run", "x", "--", "echo", "mine"], &[]);
    let pid = format!("pid {}", holder.pid());
    waiter.shows("waiting for `x`, held by ");
    waiter.shows(&pid);
    waiter.shows(stage.lasts(", lease ends in ", ", while it runs"));
    waiter.shows("\u{1b}[2m");
    drop(holder);
    waiter.shows("mine");
    assert_eq!(waiter.end(), 0);
    let seen = waiter.seen();
    let taken_away = seen.rfind("\r\u{1b}[2K").expect("the line is taken away");
    assert!(taken_away < seen.rfind("mine").expect("it ran"), "{seen:?}");
}

fn a_stalled_terminal_delays_no_waiter(stage: &Stage) {
    let holder = stage.hold("x");
    let file = stage.file("mine");
    let mut waiter = Terminal::start(stage, &["run", "x", "--", "touch", &file], &[]);
    waiter.shows("waiting for `x`");
    // Ctrl-S; then wait until there is something new to be shown.
    waiter.types("\u{13}");
    std::thread::sleep(Duration::from_millis(1500));
    drop(holder);
    wait_until("it runs", || std::path::Path::new(&file).exists());
    assert_eq!(waiter.end(), 0);
}

fn a_list_has_colours_unless_disabled(stage: &Stage) {
    let _holder = stage.hold("x");
    let mut plain = Terminal::start(stage, &["ls"], &[("NO_COLOR", "1")]);
    assert_eq!(plain.end(), 0);
    plain.shows("sleep 1000");
    assert!(!plain.seen().contains('\u{1b}'), "{:?}", plain.seen());
    let mut coloured = Terminal::start(stage, &["ls"], &[]);
    assert_eq!(coloured.end(), 0);
    coloured.shows("\u{1b}[2mNAME");
}

#[test]
fn a_slow_list_shows_its_progress() {
    let stage = Stage::redis();
    let many = "for i = 1, 4000 do redis.call('SET', 'page:' .. i, 'text') end";
    stage.server().cmd(&["EVAL", many, "0"]);
    let mut tries = 10;
    let list = loop {
        let proxy = ChaosProxy::start(stage.server().addr());
        proxy.rule(Match::command("SCAN").nth(2), Fault::HoldReply);
        let mut list = Terminal::start(&stage, &["ls", "--url", &proxy.url()], &[]);
        wait_until("it asks for the second page", || {
            !proxy.injected().is_empty()
        });
        // A list that takes less time shows no progress line.
        std::thread::sleep(Duration::from_millis(350));
        proxy.deliver_held();
        list.shows("scanned ");
        let code = list.end();
        tries -= 1;
        // On a machine that stands still, the reply may come after its timeout.
        if code != UNAVAILABLE || tries == 0 {
            assert_eq!(code, 0);
            break list;
        }
    };
    wait_until("the line is taken away", || {
        list.seen().ends_with("\r\u{1b}[2K")
    });
}

/// The exit code if the server has not replied in time.
const UNAVAILABLE: i32 = 69;

/// A script that prints how often it was interrupted, a while after the first time.
const COUNTS: &str = "n=0; trap \"n=\\$((n+1))\" INT; echo ready; while [ $n = 0 ]; do sleep 0.05; done; \
     sleep 0.3; echo $n times; exit 5";

fn ctrl_c_reaches_the_command_once(stage: &Stage) {
    let mut run = Terminal::start(stage, &["run", "x", "--", "sh", "-c", COUNTS], &[]);
    run.shows("ready");
    run.types("\u{3}");
    run.shows("1 times");
    assert_eq!(run.end(), 5);
    assert!(!stage.is_held("x"));
}

/// A shell goes on with its script unless the program it has started was ended by that signal, too.
fn ctrl_c_stops_a_surrounding_script(stage: &Stage) {
    ctrl_c_stops(stage, "sh -c 'echo ready; exec sleep 60'", "ready");
    assert!(!stage.is_held("x"));
}

fn ctrl_c_stops_a_surrounding_script_during_a_wait(stage: &Stage) {
    let _holder = stage.hold("x");
    ctrl_c_stops(stage, "true", "waiting for `x`");
}

/// Runs a script with a command under `x`, and interrupts it once this text is shown.
fn ctrl_c_stops(stage: &Stage, command: &str, shown: &str) {
    let us = env!("CARGO_BIN_EXE_distlock");
    let script = format!("{us} run x -- {command}; echo went on");
    let mut around = Terminal::run(stage, "bash", &["-c", &script], &[]);
    around.shows(shown);
    around.types("\u{3}");
    assert_eq!(around.end(), 130);
    assert!(!around.seen().contains("went on"), "{}", around.seen());
}

fn a_terminal_can_be_read_from(stage: &Stage) {
    let script = "read line < /dev/tty; echo got $line";
    let mut run = Terminal::start(stage, &["run", "x", "--", "sh", "-c", script], &[]);
    run.types("hello\n");
    run.shows("got hello");
    assert_eq!(run.end(), 0);
}

/// `git commit`, `ssh` and `less` read the terminal in this way.
fn a_terminal_can_be_read_from_though_the_input_is_a_pipe(stage: &Stage) {
    let us = env!("CARGO_BIN_EXE_distlock");
    let asks = "cat; read line < /dev/tty; echo got $line; exit 3";
    let script = format!("echo piped | {us} run x -- sh -c '{asks}'; echo ended with $?");
    let mut around = Terminal::run(stage, "sh", &["-c", &script], &[]);
    around.shows("piped");
    around.types("hello\n");
    around.shows("got hello");
    around.shows("ended with 3");
    assert_eq!(around.end(), 0);
    assert!(!stage.is_held("x"));
}

fn ctrl_c_reaches_the_command_once_though_the_input_is_a_pipe(stage: &Stage) {
    let us = env!("CARGO_BIN_EXE_distlock");
    let script = format!("trap : INT; {us} run x -- sh -c '{COUNTS}' < /dev/null; exit $?");
    let mut around = Terminal::run(stage, "sh", &["-c", &script], &[]);
    around.shows("ready");
    around.types("\u{3}");
    around.shows("1 times");
    assert_eq!(around.end(), 5);
    assert!(!stage.is_held("x"));
}

fn processes_reached_by_ctrl_c_are_not_signalled_again(stage: &Stage) {
    // The command dies at once, and leaves a process behind that takes its time.
    let tidies = "trap \"sleep 0.5; echo tidied; exit\" INT; trap \"echo asked again\" TERM; \
                  echo ready; while :; do sleep 0.05; done";
    let script = format!("env --default-signal=INT sh -c '{tidies}' & exec sleep 1000");
    let mut run = Terminal::start(stage, &["run", "x", "--", "sh", "-c", &script], &[]);
    run.shows("ready");
    run.types("\u{3}");
    run.shows("tidied");
    let code = run.end();
    assert_eq!(code, 130, "{:?}", run.seen());
    assert!(!run.seen().contains("asked again"), "{:?}", run.seen());
    assert!(!stage.is_held("x"));
}

fn a_background_command_that_reads_the_terminal_is_reported(stage: &Stage) {
    let us = env!("CARGO_BIN_EXE_distlock");
    let asks = format!("{us} run x -- sh -c 'read line < /dev/tty' < /dev/null");
    let script = format!("set -m; {asks} & read line; kill $!; wait $!; echo ended with $?");
    let mut around = Terminal::run(stage, "sh", &["-c", &script], &[]);
    around.shows("it needs the terminal");
    assert!(stage.is_held("x"));
    // Even a stopped run can be ended.
    around.types("\n");
    around.shows("ended with 143");
    assert_eq!(around.end(), 0);
    assert!(!stage.is_held("x"));
}

/// The shell has job control: without one the system does not stop us.
fn ctrl_z_stops_distlock_and_the_command(stage: &Stage) {
    let us = env!("CARGO_BIN_EXE_distlock");
    let asks = "echo pids $PPID $$ .; read line < /dev/tty; echo got $line";
    let script = format!("set -m; {us} run x -- sh -c '{asks}' < /dev/null; echo stopped; fg");
    let mut around = Terminal::run(stage, "sh", &["-c", &script], &[]);
    around.shows(" .");
    around.types("\u{1a}");
    around.shows("stopped");
    around.types("hello\n");
    around.shows("got hello");
    assert_eq!(around.end(), 0);
    assert!(!stage.is_held("x"));
}

fn a_force_release_asks_for_confirmation(stage: &Stage) {
    let _holder = stage.hold("x");
    for (answer, code) in [("n\n", 1), ("\n", 1), ("y\n", 0)] {
        assert!(stage.is_held("x"));
        let mut release = Terminal::start(stage, &["release", "x"], &[]);
        release.shows("release `x`, held by ");
        release.shows("[y/N]");
        release.types(answer);
        assert_eq!(release.end(), code, "{answer:?}");
    }
    assert!(!stage.is_held("x"));
}

fn replacing_or_deleting_a_number_asks_for_confirmation(stage: &Stage) {
    let permits = ["0 in use, 2 available\n", "0 in use, 5 available\n", ""];
    for (kind, [two, five, none]) in [("permits", permits), ("latch", ["2\n", "5\n", "0\n"])] {
        assert_eq!(stage.run(&[kind, "set", kind, "2"]).code, 0);
        for (words, answer, code, left) in [
            (&[kind, "set", kind, "5"][..], "n\n", 1, two),
            (&[kind, "set", kind, "5"], "y\n", 0, five),
            (&[kind, "delete", kind], "\n", 1, five),
            (&[kind, "delete", kind], "y\n", 0, none),
        ] {
            let mut asked = Terminal::start(stage, words, &[]);
            asked.shows("? [y/N]");
            asked.types(answer);
            assert_eq!(asked.end(), code, "{words:?} {answer:?}");
            assert_eq!(stage.run(&[kind, "show", kind]).out, left);
        }
    }
}

#[test]
fn a_wait_for_the_lock_of_another_library_is_shown() {
    let stage = Stage::redis();
    stage
        .server()
        .cmd(&["SET", "x", "their-secret", "PX", "600000"]);
    let words = ["run", "--simple", "x", "--", "echo", "mine"];
    let mut waiter = Terminal::start(&stage, &words, &[]);
    waiter.shows("waiting for `x`");
    stage.server().cmd(&["DEL", "x"]);
    waiter.shows("mine");
    assert_eq!(waiter.end(), 0);
    assert!(
        !waiter.seen().contains("their-secret"),
        "{:?}",
        waiter.seen()
    );
}

#[test]
fn a_release_chooses_no_reader_among_several() {
    let stage = Stage::redis();
    let owner = "71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11";
    // A hash as Redisson's read/write lock writes it.
    let (one, other) = (&*format!("{owner}:1"), &*format!("{owner}:2"));
    let hash = ["mode", "read", one, "1", other, "1"];
    stage.server().cmd(&[&["HSET", "x"], &hash[..]].concat());
    for reader in [one, other] {
        let timeout = format!("{{x}}:{reader}:rwlock_timeout:1");
        stage.server().cmd(&["SET", &timeout, "1", "PX", "60000"]);
    }
    stage.server().cmd(&["PEXPIRE", "x", "60000"]);
    let before = stage.server().hgetall("x");
    let mut release = Terminal::start(&stage, &["release", "x"], &[]);
    // The answer would be yes, if the question came.
    release.types("y\n");
    release.shows("`x` has 2 holders");
    assert_eq!(release.end(), 1);
    assert_eq!(stage.server().hgetall("x"), before);
    assert_eq!(stage.run(&["release", "x", "--owner", one]).code, 0);
    let left = stage.server().hgetall("x");
    assert!(left.contains_key(other) && !left.contains_key(one));
    assert_eq!(stage.run(&["release", "--force", "x"]).code, 0);
    assert!(stage.server().hgetall("x").is_empty());
}

#[test]
fn releasing_a_writer_asks_for_confirmation_like_a_plain_owner() {
    let stage = Stage::redis();
    let writer = "71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:1:write";
    stage
        .server()
        .cmd(&["HSET", "x", "mode", "write", writer, "1"]);
    let mut release = Terminal::start(&stage, &["release", "x"], &[]);
    release.shows("release `x`, held by 71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:1?");
    release.types("y\n");
    assert_eq!(release.end(), 0);
    assert!(stage.server().hgetall("x").is_empty());
}

fn a_signal_from_elsewhere_still_reaches_the_command(stage: &Stage) {
    let script =
        "trap 'echo got TERM; exit 7' TERM; echo parent $PPID; while :; do sleep 0.01; done";
    let mut run = Terminal::start(stage, &["run", "x", "--", "sh", "-c", script], &[]);
    run.shows("parent ");
    wait_until("the pid is there", || run.seen().contains('\n'));
    let seen = run.seen();
    let pid = seen.split_whitespace().nth(1).expect("a pid");
    let pid = nix::unistd::Pid::from_raw(pid.parse().expect("a pid"));
    nix::sys::signal::kill(pid, Signal::SIGTERM).expect("it is there");
    run.shows("got TERM");
    assert_eq!(run.end(), 7);
}

/// The command shares the group of the script around distlock; the script goes on.
fn a_lost_lock_ends_the_command_and_no_other_process(stage: &Stage) {
    let us = env!("CARGO_BIN_EXE_distlock");
    let script = format!(
        "{us} run --max-hold 500ms x -- sh -c 'sleep 1000 & sleep 1000'; echo ended with $?"
    );
    let mut around = Terminal::run(stage, "sh", &["-c", &script], &[]);
    around.shows("ended with 76");
    assert_eq!(around.end(), 0);
}

/// A program on a terminal of its own.
pub(crate) struct Terminal {
    program: Child,
    keyboard: File,
    screen: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    fn start(stage: &Stage, words: &[&str], environment: &[(&str, &str)]) -> Self {
        Self::run(stage, env!("CARGO_BIN_EXE_distlock"), words, environment)
    }

    fn run(stage: &Stage, program: &str, words: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = Command::new("setsid");
        command
            .args(["--ctty", "--wait", program])
            .args(words)
            .env("DISTLOCK_URL", stage.url())
            .env("TERM", "xterm")
            .env_remove("NO_COLOR")
            .envs(environment.iter().copied());
        Self::of(command)
    }

    /// Starts `setsid --ctty --wait` with a program on a new terminal.
    pub(crate) fn of(mut command: Command) -> Self {
        let pty = openpty(None, None).expect("there are terminals");
        let end = || -> OwnedFd { pty.slave.try_clone().expect("it can be cloned") };
        command
            .stdin(Stdio::from(end()))
            .stdout(Stdio::from(end()))
            .stderr(Stdio::from(end()));
        let program = command.spawn().expect("setsid can be started");
        // The command has the other ends, and this process has ours: the screen ends with the program.
        drop((command, pty.slave));
        let keyboard = File::from(pty.master);
        let screen: Arc<Mutex<Vec<u8>>> = Arc::default();
        let (mut reader, writer) = (
            keyboard.try_clone().expect("it can be cloned"),
            screen.clone(),
        );
        // The thread ends when the last program on the terminal does.
        std::thread::spawn(move || {
            let mut bytes = [0; 1024];
            while let Ok(length @ 1..) = reader.read(&mut bytes) {
                writer
                    .lock()
                    .expect("nobody panics there")
                    .extend(&bytes[..length]);
            }
        });
        Self {
            program,
            keyboard,
            screen,
        }
    }

    fn types(&mut self, keys: &str) {
        self.keyboard
            .write_all(keys.as_bytes())
            .expect("the terminal is there");
    }

    pub(crate) fn seen(&self) -> String {
        let screen = self.screen.lock().expect("nobody panics there");
        String::from_utf8_lossy(&screen).into_owned()
    }

    pub(crate) fn shows(&self, text: &str) {
        let begun = Instant::now();
        while !self.seen().contains(text) {
            assert!(
                begun.elapsed() < PATIENCE,
                "no {text:?} in {:?}",
                self.seen()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn end(&mut self) -> i32 {
        let mut code = None;
        wait_until("it ends", || {
            let status = self.program.try_wait().expect("it is our child");
            code = status.map(super::stage::code);
            code.is_some()
        });
        code.expect("it has ended")
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Both fail only for a process that has ended.
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}
