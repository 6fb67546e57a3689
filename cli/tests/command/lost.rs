//! Tests of a lock that is lost while the command runs: all processes that it started are ended.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};

use crate::stage::{Ran, Running, Stage, is_alive, parent, pid_of, state, wait_until};

const US: &str = env!("CARGO_BIN_EXE_distlock");

/// The grace that the commands below set.
const GRACE: Duration = Duration::from_secs(4);

#[test]
fn a_command_whose_lock_was_replaced_by_other_data_exits_with_76() {
    let stage = Stage::redis();
    for kind in [
        "--wait=1m",
        "--fair",
        "--fenced",
        "--simple",
        "--read",
        "--write",
    ] {
        let words = [
            "run",
            kind,
            "job:x",
            "--",
            "sh",
            "-c",
            "echo held; read line",
        ];
        let mut command = stage.command(&words);
        let (input, end) = std::io::pipe().expect("pipes can be made");
        command.stdin(input);
        let mut run = Running::start(command);
        run.says("held");
        stage.server().cmd(&["DEL", "job:x"]);
        stage.server().cmd(&["RPUSH", "job:x", "theirs"]);
        drop(end);
        let ended = run.end();
        assert_eq!(ended.code, 76, "{kind}: {ended:?}");
        assert!(ended.err.contains("`job:x`"), "{kind}: {ended:?}");
        stage.server().flushall();
    }
}

/// Each release is refused with an error of its own.
#[test]
fn a_command_with_both_locks_replaced_by_other_data_exits_with_76() {
    let stage = Stage::redis();
    let words = ["run", "a", "b", "--", "sh", "-c", "echo held; read line"];
    let mut command = stage.command(&words);
    let (input, end) = std::io::pipe().expect("pipes can be made");
    command.stdin(input);
    let mut run = Running::start(command);
    run.says("held");
    for name in ["a", "b"] {
        stage.server().cmd(&["DEL", name]);
        stage.server().cmd(&["RPUSH", name, "theirs"]);
    }
    drop(end);
    let ended = run.end();
    assert_eq!(ended.code, 76, "{ended:?}");
    assert!(
        ended.err.contains("`a`") && ended.err.contains("`b`"),
        "{ended:?}"
    );
}

on_every_store! {
    a_force_released_lock_ends_the_command_with_76,
    a_command_that_ignores_term_is_killed_after_the_grace,
    processes_that_left_the_process_group_are_ended_too,
    orphans_of_earlier_processes_of_the_shell_are_left_running,
    max_hold_ends_the_command,
    max_hold_of_several_locks_names_all_of_them,
    an_expired_fixed_lease_ends_the_command,
    processes_of_a_term_trap_run_undisturbed_after_max_hold,
    processes_of_a_term_trap_run_undisturbed_after_a_loss,
    processes_of_a_trap_of_a_forwarded_term_run_undisturbed_after_a_loss,
    a_command_that_continues_after_a_forwarded_term_receives_it_again_after_a_loss,
    a_loss_is_reported_before_the_grace_ends,
    a_quick_command_whose_lock_was_lost_first_exits_with_76_too,
    a_stopped_command_is_ended_too,
    a_run_stopped_until_its_lease_expired_wakes_its_command_only_to_end_it,
}

/// A script of three generations, each of which prints its pid, the last in a session of its own.
const TREE: &str = "echo $$; sh -c 'echo $$; sleep 1000 & echo $!; wait' & \
                    setsid sh -c 'echo $$; exec sleep 1000' & wait";

fn a_force_released_lock_ends_the_command_with_76(stage: &Stage) {
    let (run, tree) = tree(stage, &["--lease", "5s", "x"], TREE);
    assert_eq!(stage.run(&["release", "--force", "x"]).code, 0);
    ends_with_76(run, &tree, "`x` was lost");
}

fn a_command_that_ignores_term_is_killed_after_the_grace(stage: &Stage) {
    // The first process prints that it received TERM; the others ignore it.
    let deaf = "trap \"\" TERM; echo $$; while :; do sleep 1; done";
    let stubborn = format!(
        "trap 'echo asked' TERM; echo $$; sh -c '{deaf}' & setsid sh -c '{deaf}' & echo $$; \
         while :; do sleep 0.1; done"
    );
    let words = ["--lease", "5s", "--grace", "4s", "x"];
    let (mut run, tree) = tree(stage, &words, &stubborn);
    assert_eq!(stage.run(&["release", "--force", "x"]).code, 0);
    run.says("asked");
    let asked = Instant::now();
    ends_with_76(run, &tree, "`x` was lost");
    let took = asked.elapsed();
    // Its output arrived a little later.
    assert!(took > GRACE / 2, "it was given no time: {took:?}");
}

fn processes_that_left_the_process_group_are_ended_too(stage: &Stage) {
    // A daemon: its parents have ended.
    let daemon = "echo $$; (setsid sh -c '(sh -c \"echo \\$\\$; exec sleep 1000\" &)' &); \
                  sleep 1000 & echo $!; sleep 1000 & echo $!; wait";
    let (run, tree) = tree(stage, &["--lease", "5s", "x"], daemon);
    assert_eq!(stage.run(&["release", "--force", "x"]).code, 0);
    ends_with_76(run, &tree, "`x` was lost");
}

fn orphans_of_earlier_processes_of_the_shell_are_left_running(stage: &Stage) {
    let (go, orphan) = (stage.file("go"), stage.file("orphan"));
    // The first child of the shell outlives it as a child of distlock, and then leaves an orphan behind; the command leaves two, one of
    // them from a session of its own.
    let script = format!(
        "sh -c 'while ! [ -e {go} ]; do sleep 0.05; done; setsid sleep 1000 & echo $! > {orphan}.new; \
         mv {orphan}.new {orphan}' > /dev/null 2>&1 & \
         exec {US} run --lease 5s --grace 200ms x -- sh -c \
         'echo $$; (sleep 1000 & echo $!); (setsid sh -c \"echo \\$\\$; exec sleep 1000\" &); \
         sleep 1000 & echo $!; wait'"
    );
    let mut run = Running::start(stage.shell(&script));
    let tree: Vec<_> = (0..4).map(|_| run.line()).collect();
    std::fs::write(&go, "").expect("the folder is writable");
    wait_until("there is an orphan", || !stage.read("orphan").is_empty());
    let pid = stage.read("orphan");
    let ours = run.pid().to_string();
    wait_until("distlock has adopted it", || {
        parent(&pid) == Some(ours.clone())
    });
    assert_eq!(stage.run(&["release", "--force", "x"]).code, 0);
    ends_with_76(run, &tree, "`x` was lost");
    assert!(is_alive(&pid), "it was not the command's");
    kill(pid_of(&pid), Signal::SIGKILL).expect("it is alive");
}

fn max_hold_ends_the_command(stage: &Stage) {
    let (run, tree) = tree(stage, &["--max-hold", "6s", "x"], TREE);
    ends_with_76(run, &tree, "`x`: --max-hold 6s reached");
    assert!(!stage.is_held("x"));
}

fn max_hold_of_several_locks_names_all_of_them(stage: &Stage) {
    let ran = stage.run(&["run", "--max-hold", "1s", "a", "b", "--", "sleep", "1000"]);
    assert_eq!(ran.code, 76, "{ran:?}");
    assert!(
        ran.err.contains(" `a`, `b`: --max-hold 1s reached "),
        "{ran:?}"
    );
}

fn an_expired_fixed_lease_ends_the_command(stage: &Stage) {
    let (run, tree) = tree(stage, &["--lease", "6s", "--fixed", "x"], TREE);
    ends_with_76(run, &tree, "lease expired, and --fixed");
}

/// A script whose TERM trap runs three programs.
const CLEANUP: &str = "cleanup() { for i in 1 2 3; do sleep 0.1; echo step $i: rc=$?; done; exit 9; }; \
                       trap cleanup TERM; sleep 1000 & echo ready; wait";

fn processes_of_a_term_trap_run_undisturbed_after_max_hold(stage: &Stage) {
    let words = ["--max-hold", "4s", "--grace", "60s", "x"];
    let run = run_cleanup(stage, &words, |_| ());
    let message = "distlock: `x`: --max-hold 4s reached (raise it if the command needs longer); sending TERM to the \
                   command (grace 1m)\n";
    assert_eq!(run.err, message);
}

fn processes_of_a_term_trap_run_undisturbed_after_a_loss(stage: &Stage) {
    let words = ["--lease", "5s", "--grace", "60s", "x"];
    let run = run_cleanup(stage, &words, |stage| {
        assert_eq!(stage.run(&["release", "--force", "x"]).code, 0);
    });
    assert!(run.err.contains("`x` was lost: "), "{run:?}");
    let advice = " (`distlock show x` shows its current state); ";
    assert!(run.err.contains(advice), "what to do: {run:?}");
    let message = "; sending TERM to the command (grace 1m)\n";
    assert!(run.err.ends_with(message), "{run:?}");
}

/// `systemctl stop`, and the lock is lost while the command cleans up.
fn processes_of_a_trap_of_a_forwarded_term_run_undisturbed_after_a_loss(stage: &Stage) {
    let go = stage.file("go");
    let script = format!(
        "cleanup() {{ echo begins; until [ -e {go} ]; do sleep 0.1; done; for i in 1 2 3; do sleep 0.1; \
         echo step $i: rc=$?; done; exit 9; }}; trap cleanup TERM; sleep 1000 & echo ready; wait"
    );
    let words = [
        "run", "--lease", "5s", "--grace", "60s", "x", "--", "sh", "-c", &script,
    ];
    let mut run = stage.start(&words);
    run.says("ready");
    run.signal(Signal::SIGTERM);
    run.says("begins");
    assert_eq!(stage.run(&["release", "--force", "x"]).code, 0);
    assert!(run.err_line().contains("`x` was lost"));
    std::fs::write(&go, "").expect("there is room");
    for step in ["step 1: rc=0", "step 2: rc=0", "step 3: rc=0"] {
        run.says(step);
    }
    assert_eq!(run.end().code, 76);
}

/// A TERM that a command takes for a request to reload is no request to end, once the grace is over.
fn a_command_that_continues_after_a_forwarded_term_receives_it_again_after_a_loss(stage: &Stage) {
    let script = "trap 'n=${n}1; echo TERM $n; [ \"$n\" = 1 ] || exit' TERM; echo ready; while :; do sleep 0.1; done";
    let words = [
        "run", "--lease", "5s", "--grace", "4s", "x", "--", "sh", "-c", script,
    ];
    let mut run = stage.start(&words);
    run.says("ready");
    let passed_on = Instant::now();
    run.signal(Signal::SIGTERM);
    run.says("TERM 1");
    // The sleep measures no speed: the grace has to be over.
    std::thread::sleep(Duration::from_millis(4500).saturating_sub(passed_on.elapsed()));
    assert_eq!(stage.run(&["release", "--force", "x"]).code, 0);
    run.says("TERM 11");
    assert_eq!(run.end().code, 76);
}

fn run_cleanup(stage: &Stage, words: &[&str], lose: impl FnOnce(&Stage)) -> Ran {
    let words = [&["run"][..], words, &["--", "sh", "-c", CLEANUP]].concat();
    let mut run = stage.start(&words);
    run.says("ready");
    lose(stage);
    for step in ["step 1: rc=0", "step 2: rc=0", "step 3: rc=0"] {
        run.says(step);
    }
    let ended = run.end();
    assert_eq!(
        ended.code, 76,
        "the lock was lost, however the command ends"
    );
    ended
}

fn a_loss_is_reported_before_the_grace_ends(stage: &Stage) {
    let script = "trap '' TERM; echo $$; while :; do sleep 0.1; done";
    let words = [
        "run", "--lease", "5s", "--grace", "1h", "x", "--", "sh", "-c", script,
    ];
    let mut run = stage.start(&words);
    let command = run.line();
    assert_eq!(stage.run(&["release", "--force", "x"]).code, 0);
    let message = run.err_line();
    assert!(message.contains("`x` was lost"), "{message}");
    assert!(
        message.ends_with("; sending TERM to the command (grace 1h)"),
        "{message}"
    );
    assert!(run.is_running() && is_alive(&command));
    kill(pid_of(&command), Signal::SIGKILL).expect("it ignores all else");
    assert_eq!(run.end().code, 76);
}

fn a_quick_command_whose_lock_was_lost_first_exits_with_76_too(stage: &Stage) {
    let mut command = stage.command(&["run", "x", "--", "sh", "-c", "echo held; read line"]);
    let (input, end) = std::io::pipe().expect("pipes can be made");
    command.stdin(input);
    let mut run = Running::start(command);
    run.says("held");
    assert_eq!(stage.run(&["release", "--force", "x"]).code, 0);
    drop(end);
    let ended = run.end();
    assert_eq!(ended.code, 76, "{ended:?}");
    assert!(ended.err.contains("`x` was lost"), "{ended:?}");
}

fn a_stopped_command_is_ended_too(stage: &Stage) {
    let (run, tree) = tree(stage, &["--lease", "5s", "x"], TREE);
    for pid in &tree {
        kill(pid_of(pid), Signal::SIGSTOP).expect("it is there");
    }
    wait_until("they stand still", || {
        tree.iter().all(|pid| state(pid) == Some('T'))
    });
    // No process has ended, and no lock is lost.
    assert!(stage.is_held("x"));
    assert_eq!(stage.run(&["release", "--force", "x"]).code, 0);
    ends_with_76(run, &tree, "`x` was lost");
}

fn a_run_stopped_until_its_lease_expired_wakes_its_command_only_to_end_it(stage: &Stage) {
    // A process that is continued before it receives TERM has the time to say so.
    let script = "trap 'echo woken' CONT; echo $$; while :; do :; done";
    let words = [
        "run", "--lease", "6s", "--fixed", "x", "--", "sh", "-c", script,
    ];
    let mut run = stage.start(&words);
    let command = run.line();
    let ours = run.pid().to_string();
    run.signal(Signal::SIGTSTP);
    wait_until("both have stopped", || {
        [&command, &ours].iter().all(|pid| state(pid) == Some('T'))
    });
    wait_until("the lease is over", || !stage.is_held("x"));
    run.signal(Signal::SIGCONT);
    let ended = run.end();
    assert_eq!((ended.code, &*ended.out), (76, ""), "{ended:?}");
}

#[test]
fn a_command_that_stops_itself_again_and_again_is_killed() {
    let stage = Stage::redis();
    let script = "trap 'kill -STOP $$' TERM; echo $$; echo $$; echo $$; echo $$; \
                  while :; do kill -STOP $$; done";
    let words = ["--lease", "5s", "--grace", "300ms", "x"];
    let (run, tree) = tree(&stage, &words, script);
    wait_until("it stands still", || state(&tree[0]) == Some('T'));
    stage.server().cmd(&["DEL", "x"]);
    ends_with_76(run, &tree, "`x` was lost");
}

#[test]
fn a_deleted_key_ends_the_command() {
    let stage = Stage::redis();
    let (run, tree) = tree(&stage, &["--lease", "5s", "x"], TREE);
    stage.server().cmd(&["DEL", "x"]);
    ends_with_76(run, &tree, "`x` was lost");
}

#[test]
fn a_crashed_server_ends_the_command_when_the_lease_expires() {
    let stage = Stage::redis();
    let (run, tree) = tree(&stage, &["--lease", "5s", "x"], TREE);
    stage.server().kill();
    let why = format!(
        "`x` was lost: its lease expired; renewal at {} failed: Connection refused",
        stage.url()
    );
    ends_with_76(run, &tree, &why);
}

#[test]
fn a_stalled_server_ends_the_command_when_the_lease_expires() {
    let stage = Stage::redis();
    let (run, tree) = tree(&stage, &["--lease", "5s", "x"], TREE);
    stage.server().stop_process();
    let why = format!("its lease expired; renewal at {} failed: ", stage.url());
    ends_with_76(run, &tree, &why);
    stage.server().continue_process();
}

/// Starts a run of a script that prints four pids.
fn tree(stage: &Stage, words: &[&str], script: &str) -> (Running, Vec<String>) {
    let words = [&["run"][..], words, &["--", "sh", "-c", script]].concat();
    let mut run = stage.start(&words);
    let tree: Vec<_> = (0..4).map(|_| run.line()).collect();
    for pid in &tree {
        assert!(is_alive(pid), "{pid} of {tree:?}");
    }
    (run, tree)
}

fn ends_with_76(run: Running, tree: &[String], why: &str) {
    let ended = run.end();
    assert_eq!(ended.code, 76, "{ended:?}");
    assert!(ended.err.contains(why), "{ended:?}");
    for pid in tree {
        assert!(!is_alive(pid), "{pid} of {tree:?} was left behind");
        let entry = format!("/proc/{pid}");
        assert!(
            !std::path::Path::new(&entry).exists(),
            "{pid} was not buried"
        );
    }
}
