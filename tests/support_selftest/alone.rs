//! What `scripts/test` runs again: a few tests that have failed beside others, and nothing else.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// Runs the script on a program's log. Its `cargo` fails at the runs of these numbers.
fn alone(program: &str, log: &str, failures: &[usize]) -> (bool, String, usize) {
    let folder = TempDir::new().expect("there is room");
    let path = |name: &str| folder.path().join(name);
    let write = |name: &str, text: &str| fs::write(path(name), text).expect("there is room");
    write(&format!("{program}.log"), log);
    write(&format!("{program}.failed"), "");
    // By bash, not by themselves: what another test starts meanwhile may still have such a file open for writing.
    let script = r#"
        folder=$1
        cargo() {
            echo "$*" >>"$folder/runs"
            if [[ $FAILURES =~ [^0-9]$(($(wc -l <"$folder/runs")))[^0-9] ]]; then
                echo 'test result: FAILED. 0 passed; 1 failed; 0 ignored'
                return 1
            fi
            echo 'test result: ok. 1 passed; 0 failed; 0 ignored'
        }
        source scripts/lib/alone "$@"
    "#;
    let ran = Command::new("bash")
        .args(["-c", script, "alone"])
        .arg(folder.path())
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .env("FAILURES", format!("{failures:?}"))
        .output()
        .expect("there is a bash");
    let runs = fs::read_to_string(path("runs")).unwrap_or_default();
    let wanted = |run: &str| run.ends_with(&format!("--test {program} -- --exact a::b"));
    assert!(runs.lines().all(wanted), "{runs}");
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    (ran.status.success(), said, runs.lines().count())
}

const ONE: &str = "test a::b ... FAILED\ntest result: FAILED. 7 passed; 1 failed; 0 ignored\n";

#[test]
fn what_passes_three_times_alone_is_named() {
    let said = "rules a::b: passed three times alone\n";
    assert_eq!(alone("rules", ONE, &[]), (true, said.into(), 3));
}

#[test]
fn what_fails_once_more_has_failed() {
    for run in 1..=3 {
        let (passed, said, runs) = alone("rules", ONE, &[run]);
        assert_eq!((passed, runs), (false, run), "{said}");
        assert!(
            said.ends_with("rules a::b: failed again, alone\n"),
            "{said}"
        );
    }
}

#[test]
fn what_has_nothing_to_do_with_time_is_not_run_again() {
    for program in ["unit", "doc", "architecture"] {
        let (passed, said, runs) = alone(program, ONE, &[]);
        assert_eq!((passed, runs), (false, 0), "{said}");
    }
}

#[test]
fn a_program_that_broke_off_is_not_run_again() {
    for log in ["", "test a::b ... ok\n", "test a::b ... FAILED\n"] {
        let (passed, said, runs) = alone("rules", log, &[]);
        assert_eq!((passed, runs), (false, 0), "{said}");
    }
}

#[test]
fn many_failures_are_not_run_again() {
    let log = "test a::b ... FAILED\n".repeat(6);
    let log = log + "test result: FAILED. 1 passed; 6 failed; 0 ignored\n";
    let (passed, said, runs) = alone("rules", &log, &[]);
    assert_eq!((passed, runs), (false, 0), "{said}");
}
