//! What `scripts/test` tries again: what failed while the machine was taken from us, and nothing else.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::PATIENCE;

#[test]
fn what_fails_on_a_machine_of_its_own_has_failed() {
    let stage = Stage::new();
    let ran = stage.run(1);
    assert!(!ran.passed);
    assert_eq!(ran.runs.len(), 1, "it is not tried again");
    assert_eq!(ran.again, None);
}

#[test]
fn what_fails_on_a_machine_that_is_taken_from_it_is_tried_again_and_named() {
    let stage = Stage::new();
    stage.disturb();
    let ran = stage.run(1);
    assert!(ran.passed, "{}", ran.said);
    assert_eq!(ran.runs.len(), 2);
    assert!(ran.runs[1].ends_with("--test rules -- --exact a::b"));
    let again = "rules: a::b; taken from us 1 times, at last: it snows\n";
    assert_eq!(ran.again.as_deref(), Some(again));
    assert!(ran.said.contains("test a::b ... FAILED"), "in full view");
}

#[test]
fn what_then_fails_once_more_has_failed() {
    let stage = Stage::new();
    stage.disturb();
    let ran = stage.run(2);
    assert!(!ran.passed);
    assert_eq!(ran.runs.len(), 2);
}

#[test]
fn a_machine_that_stands_still_is_noticed_for_as_long_as_somebody_lives() {
    // It lives as long as this one does, and not longer.
    let watch = "source scripts/lib/machine.sh; disturbances & echo $!; exec sleep 1000";
    let mut somebody = Command::new("bash")
        .args(["-c", watch])
        .current_dir(project())
        .stdout(Stdio::piped())
        .spawn()
        .expect("there is a bash");
    let said = BufReader::new(somebody.stdout.take().expect("it is ours to read"));
    let mut said = said.lines().map(|line| line.expect("it says words"));
    let watcher = said.next().expect("a process number");
    let watcher = Pid::from_raw(watcher.parse().expect("a number"));
    // It has to have begun.
    thread::sleep(Duration::from_millis(500));
    kill(watcher, Signal::SIGSTOP).expect("it is ours");
    thread::sleep(Duration::from_millis(600));
    kill(watcher, Signal::SIGCONT).expect("it is ours");
    let note = said.find(|line| line.starts_with("it stood still for "));
    assert!(note.is_some());
    end(somebody);
    let begun = Instant::now();
    while kill(watcher, None).is_ok() {
        assert!(begun.elapsed() < PATIENCE, "it watches on");
        thread::sleep(Duration::from_millis(20));
    }
}

fn end(mut child: Child) {
    child.kill().expect("it is ours");
    child.wait().expect("it is ours");
}

fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The script, in a folder with a `cargo` and a machine that do as they are told.
struct Stage(TempDir);

struct Ran {
    passed: bool,
    said: String,
    /// What `cargo` was asked for each time.
    runs: Vec<String>,
    again: Option<String>,
}

impl Stage {
    fn new() -> Self {
        let stage = Self(tempfile::tempdir().expect("there is room"));
        fs::create_dir_all(stage.path("scripts/lib")).expect("there is room");
        for script in ["scripts/lib/test-one", "scripts/lib/results.sh"] {
            // With its permissions.
            fs::copy(project().join(script), stage.path(script)).expect("there is room");
        }
        fs::write(stage.path("scripts/lib/machine.sh"), MACHINE).expect("there is room");
        fs::write(stage.path("cargo"), CARGO).expect("there is room");
        stage
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The machine is taken from the next run.
    fn disturb(&self) {
        fs::write(self.path("disturbed"), "").expect("there is room");
    }

    /// Runs a test program that fails so many times.
    fn run(&self, failures: usize) -> Ran {
        let folder = self.0.path();
        // By bash, not by themselves: what another test starts meanwhile may still have such a file open for writing.
        let script = r#"cargo() { bash ./cargo "$@"; }; env() { shift; "$@"; }; source scripts/lib/test-one "$@""#;
        let ran = Command::new("bash")
            .args(["-c", script, "test-one"])
            .arg(folder)
            .arg("rules")
            .current_dir(folder)
            .env("FAILURES", failures.to_string())
            .output()
            .expect("there is a bash");
        let read = |name: &str| fs::read_to_string(self.path(name)).ok();
        let runs = read("runs").unwrap_or_default();
        Ran {
            passed: ran.status.success(),
            said: String::from_utf8_lossy(&ran.stdout).into_owned(),
            runs: runs.lines().map(str::to_owned).collect(),
            again: read("rules.again"),
        }
    }
}

const MACHINE: &str = "
disturbances() {
    [[ -e disturbed ]] || return 0
    echo 'it snows'
    touch noticed
}
";

const CARGO: &str = r#"
# It snows on one run alone.
while [[ -e disturbed && ! -e noticed ]]; do sleep 0.01; done
rm -f disturbed
echo "$*" >>runs
if (($(wc -l <runs) <= FAILURES)); then
    echo 'test a::b ... FAILED'
    echo 'test result: FAILED. 1 passed; 1 failed; 0 ignored'
    exit 101
fi
echo 'test a::b ... ok'
echo 'test result: ok. 1 passed; 0 failed; 0 ignored'
"#;
