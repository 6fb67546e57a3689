//! Tests of the default store, for users who name none: a file of the user's own.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};

use crate::stage::{Running, Stage, distlock, is_alive, pid_of, ran, wait_until};

#[test]
fn a_lock_needs_no_server() {
    let stage = Stage::sqlite();
    let ran = ran(at_home(
        &stage,
        &["run", "demo", "--", "echo", "one at a time"],
    ));
    assert_eq!((ran.code, &*ran.out, &*ran.err), (0, "one at a time\n", ""));
    let file = stage.file(".local/state/distlock/locks.db");
    assert!(Path::new(&file).exists());
}

#[test]
fn runs_of_one_user_exclude_each_other() {
    let stage = Stage::sqlite();
    let us = env!("CARGO_BIN_EXE_distlock");
    let script = format!("DISTLOCK_HELD= {us} run --wait 0 x -- true; exit $?");
    let ran = ran(at_home(&stage, &["run", "x", "--", "sh", "-c", &script]));
    assert_eq!(ran.code, 75, "{ran:?}");
}

/// A shell may have the variable set and a cron job not: two files would be two locks.
#[test]
fn the_state_directory_of_a_shell_makes_no_difference() {
    let stage = Stage::sqlite();
    let us = env!("CARGO_BIN_EXE_distlock");
    let elsewhere = stage.file("elsewhere");
    let script = format!("DISTLOCK_HELD= XDG_STATE_HOME={elsewhere} {us} run --wait 0 x -- true");
    let ran = ran(at_home(&stage, &["run", "x", "--", "sh", "-c", &script]));
    assert_eq!(ran.code, 75, "{ran:?}");
    assert!(!Path::new(&elsewhere).exists());
}

#[test]
fn a_user_without_home_variable_has_the_one_of_the_passwd_file() {
    let stage = Stage::sqlite();
    let users = stage.file("passwd");
    let us = format!("root:x:0:0:root:{}:/bin/sh\n", stage.file("home"));
    std::fs::write(&users, us).expect("there is room");
    // The namespace has a list of users of its own, in which we are root: the real one names a folder that is none of the test's.
    let script = "mount --bind \"$1\" /etc/passwd && shift && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount"]);
    command.args(["sh", "-c", script, "sh", &users]);
    command.arg(env!("CARGO_BIN_EXE_distlock"));
    command.args(["run", "without-home", "--", "echo", "one"]);
    command.env_remove("HOME").env_remove("DISTLOCK_URL");
    let ran = ran(command);
    assert_eq!((ran.code, &*ran.out), (0, "one\n"), "{ran:?}");
    let file = stage.file("home/.local/state/distlock/locks.db");
    assert!(Path::new(&file).exists());
}

#[test]
fn an_unwritable_directory_exits_with_69_and_a_remedy() {
    let mut command = distlock(&["run", "x", "--", "echo", "never"]);
    // Not even root can write there.
    command
        .env("HOME", "/proc/self")
        .env_remove("XDG_STATE_HOME");
    let ran = ran(command);
    assert_eq!((ran.code, &*ran.out), (69, ""), "{ran:?}");
    assert!(ran.err.contains("/proc/self"), "{ran:?}");
    assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
}

/// `sudo -E`: a file that root creates in a user's home would keep the user from having one of their own.
#[test]
fn the_home_of_another_user_exits_with_69_and_is_unchanged() {
    let stage = Stage::sqlite();
    let home = stage.file("home");
    std::fs::create_dir(&home).expect("there is room");
    let words = ["run", "x", "--", "echo", "never"];
    let refused = |mut command: Command, home: &str, folder: &str| {
        command.env("HOME", home).env_remove("DISTLOCK_URL");
        let ran = ran(command);
        assert_eq!((ran.code, &*ran.out), (69, ""), "{ran:?}");
        let message = format!("`{folder}`: the home folder belongs to ");
        assert!(ran.err.contains(&message), "{ran:?}");
        assert!(
            ran.err
                .contains("(uid 0); nothing was created in it; set HOME"),
            "{ran:?}"
        );
        assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
    };
    if nix::unistd::geteuid().is_root() {
        std::os::unix::fs::chown(&home, Some(65_534), None).expect("root may");
        refused(distlock(&words), &home, &home);
        refused(distlock(&words), &format!("{home}/not/there"), &home);
        let left = std::fs::read_dir(&home).expect("root may").count();
        assert_eq!(left, 0, "nothing is made in it");
    } else {
        // Root of a namespace, in which the system's folders belong to another user.
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user"]);
        command.arg(env!("CARGO_BIN_EXE_distlock")).args(words);
        refused(command, "/etc", "/etc");
    }
}

#[test]
fn the_file_of_another_user_exits_with_69_and_a_remedy() {
    let stage = Stage::sqlite();
    assert_eq!(stage.run(&["run", "x", "--", "true"]).code, 0);
    let ran = if nix::unistd::geteuid().is_root() {
        // The other user is `nobody`, who may not even search the folder.
        let others = Public::new();
        let words = ["run", "--url", &stage.url(), "x", "--", "echo", "never"];
        ran(others.distlock(65534, &words))
    } else {
        ran(distlock(&[
            "run",
            "--url",
            "sqlite:/etc/hostname",
            "x",
            "--",
            "echo",
            "never",
        ]))
    };
    assert_eq!((ran.code, &*ran.out), (69, ""), "{ran:?}");
    assert!(ran.err.contains("choose another file"), "{ran:?}");
    assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
}

/// The environment is that of a container that was started with `--user 12345` and without a HOME.
#[test]
fn users_without_home_or_name_have_a_file_each() {
    let others = Public::new();
    let one = 1_000_000 + std::process::id();
    let (one, other) = (UnlistedUser(one), UnlistedUser(one + 1));
    let busy = |user: &UnlistedUser| {
        ran(others.distlock(user.0, &["run", "--wait", "0", "x", "--", "true"]))
    };
    let hold = ["run", "x", "--", "sh", "-c", "echo held; exec sleep 1000"];
    let mut holder = Running::start(others.distlock(one.0, &hold));
    holder.says("held");
    // The label is stored in the background, a moment after the grant.
    let name = format!("held by uid{}@", one.0);
    wait_until("its label is seen", || {
        let refused = busy(&one);
        assert_eq!(refused.code, 75, "{refused:?}");
        refused.err.contains(&name)
    });
    let free = busy(&other);
    assert_eq!((free.code, &*free.err), (0, ""), "a file of its own");
    let file = std::fs::metadata(one.folder()).expect("its file is there");
    assert_eq!(file.mode() & 0o077, 0, "nobody else may look");
    holder.signal(Signal::SIGTERM);
    assert_eq!(holder.end().code, 143);
}

/// A copy of the program in a folder in which every user may read it; the folder where it was built may be unreadable for others.
struct Public(tempfile::TempDir);

impl Public {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("there is room");
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).expect("it is ours");
        let program = folder.path().join("distlock");
        // `cp` makes the copy, not this process: a process that another test starts meanwhile has the open file for a moment, and a file
        // that is still open for writing cannot be run.
        let copied = Command::new("cp")
            .arg(env!("CARGO_BIN_EXE_distlock"))
            .arg(&program)
            .status();
        assert!(copied.expect("there is a cp").success());
        Self(folder)
    }

    /// Returns `distlock` of another user, without an environment. Only root can become another user; any other user becomes one by name,
    /// in a namespace of its own: still ourselves to the file system, and another user to the program.
    fn distlock(&self, user: u32, words: &[&str]) -> Command {
        let mut command = Command::new("setsid");
        if nix::unistd::geteuid().is_root() {
            command.args(["setpriv", &format!("--reuid={user}"), "--clear-groups"]);
        } else {
            command.args(["unshare", "--user", &format!("--map-user={user}")]);
        }
        command
            .arg(self.0.path().join("distlock"))
            .args(words)
            .current_dir("/")
            .stdin(std::process::Stdio::null())
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command
    }
}

/// A user that is in no list of users, and the files that it leaves behind.
struct UnlistedUser(u32);

impl UnlistedUser {
    fn folder(&self) -> String {
        format!("/var/tmp/distlock-{}", self.0)
    }
}

impl Drop for UnlistedUser {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.folder());
    }
}

#[test]
fn the_next_waiter_does_not_wait_for_the_lease_of_a_crashed_holder() {
    let stage = Stage::sqlite();
    let mut took: Vec<Duration> = Vec::new();
    // A waiter that is not notified polls every two seconds, every time, and the lease is thirty; a busy machine is slow now and then.
    while took.iter().all(|took| *took >= Duration::from_millis(1500)) {
        assert!(took.len() < 20, "{took:?}");
        let mut holder = stage.start(&["run", "x", "--", "sh", "-c", "echo $$; exec sleep 1000"]);
        let command = pid_of(&holder.line());
        let mut waiter = stage.start(&["run", "x", "--", "echo", "mine"]);
        stage.is_awaited();
        assert!(waiter.is_running());
        holder.signal(Signal::SIGKILL);
        let killed = Instant::now();
        kill(command, Signal::SIGKILL).expect("it is there");
        waiter.says("mine");
        took.push(killed.elapsed());
        assert_eq!(waiter.end().code, 0);
    }
    eprintln!("the next one runs after {took:?}");
}

#[test]
fn the_lock_of_a_running_command_stays_held_after_distlock_is_killed() {
    let stage = Stage::sqlite();
    // The pid is that of a program in the background of the command.
    let script = "sh -c 'echo $$; exec sleep 1000' & wait";
    let mut holder = stage.start(&["run", "--lease", "500ms", "x", "--", "sh", "-c", script]);
    let command = pid_of(&holder.line());
    let pid = format!("pid {}", holder.pid());
    // The label is stored in the background, a moment after the grant.
    wait_until("its label is seen", || {
        stage.run(&["show", "x"]).out.contains(&pid)
    });
    holder.signal(Signal::SIGKILL);
    assert_eq!(
        stage
            .run(&["run", "--wait", "1500ms", "x", "--", "true"])
            .code,
        75
    );
    assert!(!holder.is_running());
    let shown = stage.run(&["show", "x"]).out;
    let gone = format!("{pid} (ended; a process that it started still holds the lock)\n");
    assert!(shown.contains(&gone), "{shown}");
    kill(command, Signal::SIGKILL).expect("it is still at work");
    let ran = stage.run(&["run", "--wait", "20s", "x", "--", "true"]);
    assert_eq!(ran.code, 0, "{ran:?}");
}

#[test]
fn a_failed_release_reports_when_the_lock_becomes_free() {
    let stage = Stage::sqlite();
    for (options, says) in [
        (
            &[][..],
            "free when this process and all processes that it started have ended",
        ),
        (
            &["--lease", "1m", "--fixed"],
            "the lock is free when its lease expires",
        ),
    ] {
        let command = ["x", "--", "sh", "-c", "echo held; read line; exit 3"];
        let mut command = stage.command(&[&["run"], options, &command].concat());
        let (input, end) = std::io::pipe().expect("pipes can be made");
        command.stdin(input);
        let mut run = Running::start(command);
        run.says("held");
        // A write transaction keeps all other clients from the file.
        let file = rusqlite::Connection::open(stage.file("locks.db"));
        let file = file.expect("it is there");
        file.execute_batch("BEGIN IMMEDIATE").expect("it is free");
        drop(end);
        let ended = run.end();
        drop(file);
        assert_eq!(ended.code, 3, "{ended:?}");
        assert!(ended.err.contains(says), "{ended:?}");
        assert_eq!(stage.run(&["release", "--force", "x"]).code / 2, 0);
    }
}

#[test]
fn a_command_under_a_fixed_lease_ends_with_distlock() {
    let stage = Stage::sqlite();
    let words = [
        "run",
        "--lease",
        "1m",
        "--fixed",
        "x",
        "--",
        "sh",
        "-c",
        "echo $$; exec sleep 1000",
    ];
    let mut run = stage.start(&words);
    let command = run.line();
    run.signal(Signal::SIGKILL);
    // The lease would end before it.
    wait_until("the command is gone", || !is_alive(&command));
}

#[test]
fn a_long_name_does_not_break_a_list() {
    let stage = Stage::sqlite();
    let long = "x".repeat(65_000);
    let taken = stage.run(&["acquire", "--lease", "1m", &long]);
    assert_eq!(taken.code, 0, "{taken:?}");
    let ran = stage.run(&["ls"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.len() < 2000, "{}", ran.out.len());
}

/// Returns `distlock` of a user whose home is the stage's folder.
fn at_home(stage: &Stage, words: &[&str]) -> Command {
    let mut command = distlock(words);
    command
        .env("HOME", stage.file(""))
        .env_remove("XDG_STATE_HOME");
    command
}

#[test]
fn a_file_of_another_program_is_refused_without_advice_to_move_it() {
    let stage = Stage::sqlite();
    let file = stage.file("passwd");
    let text = "root:x:0:0:root:/root:/bin/sh\n".repeat(50);
    std::fs::write(&file, &text).expect("there is room");
    let url = format!("sqlite:{file}");
    let refused = ran(distlock(&["run", "--url", &url, "x", "--", "true"]));
    assert_eq!(refused.code, 69, "{refused:?}");
    let advice =
        "the file is not a lock file, or it is damaged; choose another file with sqlite:PATH\n";
    assert!(refused.err.ends_with(advice), "{refused:?}");
    assert_eq!(std::fs::read_to_string(&file).expect("it is there"), text);
    let folder = format!("{file}-clients");
    assert!(!std::path::Path::new(&folder).exists(), "nothing is left");
}
