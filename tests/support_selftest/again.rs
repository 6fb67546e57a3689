//! What `scripts/test` tries again: what failed while the machine was taken from us, and nothing else.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};
use std::{fs, thread};

use tempfile::TempDir;

use super::PATIENCE;

#[test]
fn what_fails_on_a_machine_of_its_own_has_failed() {
    let stage = Stage::new();
    let ran = stage.run(&[1]);
    assert!(!ran.passed);
    assert_eq!(ran.runs.len(), 1, "it is not tried again");
    assert_eq!(ran.again, None);
}

#[test]
fn what_fails_on_a_machine_that_is_taken_from_it_is_tried_again_and_named() {
    let stage = Stage::new();
    stage.disturb();
    let ran = stage.run(&[1]);
    assert!(ran.passed, "{:?}", ran.said);
    assert_eq!(ran.runs.len(), 4, "once, and three times running");
    assert!(ran.runs[1].ends_with("--test rules -- --exact a::b"));
    let again = "rules: a::b; taken from us 1 times, at last: it snows\n";
    assert_eq!(ran.again.as_deref(), Some(again));
    assert!(ran.said.contains("test a::b ... FAILED"), "in full view");
}

#[test]
fn what_then_fails_once_more_has_failed() {
    for again in 2..=4 {
        let stage = Stage::new();
        stage.disturb();
        let ran = stage.run(&[1, again]);
        assert!(!ran.passed, "it must pass three times running");
        assert_eq!(ran.runs.len(), again);
    }
}

#[test]
fn a_machine_that_is_taken_for_good_is_no_excuse_for_good() {
    let stage = Stage::new();
    stage.disturb();
    stage.tell("for_good", "");
    let ran = stage.run(&[1, 2, 3, 4, 5]);
    assert!(!ran.passed);
    assert_eq!(ran.runs.len(), 4, "once, and three tries");
}

#[test]
fn who_runs_no_test_has_not_passed() {
    let stage = Stage::new();
    stage.tell("says", "test result: ok. 0 passed; 0 failed; 0 ignored");
    let ran = stage.run(&[]);
    assert!(!ran.passed);
    assert_eq!(ran.runs.len(), 1);
}

#[test]
fn a_program_that_breaks_off_is_run_again_as_a_whole() {
    let stage = Stage::new();
    stage.disturb();
    stage.tell("breaks", "test a::b ... FAILED\nSegmentation fault");
    let ran = stage.run(&[1]);
    assert!(ran.passed, "{:?}", ran.said);
    assert_eq!(ran.runs.len(), 2);
    assert!(ran.runs[1].ends_with("--test rules"), "{:?}", ran.runs);
}

#[test]
fn a_machine_that_stands_still_is_noticed() {
    let watch = Watch::start();
    // As long as nobody has looked, nobody can tell.
    let note = watch.until_noted("it stood still for ", |second| Told {
        second,
        ours: 0,
        others: 0,
    });
    assert!(note.ends_with("0 ms"), "{note}");
    watch.ends();
}

#[test]
fn a_machine_that_others_have_is_noticed() {
    let watch = Watch::start();
    watch.until_noted("others had 50% of it for a second", |second| Told {
        second,
        ours: second * 100,
        others: second * 100,
    });
    watch.ends();
}

/// The machine's watcher, and what it is told of the machine.
struct Watch {
    proc: TempDir,
    /// It lives as long as this one does, and not longer.
    somebody: Child,
    notes: Receiver<String>,
}

/// What a machine with two processors tells of itself: the seconds since it was started, and the processors' time in hundredths.
struct Told {
    second: u64,
    ours: u64,
    others: u64,
}

impl Watch {
    fn start() -> Self {
        let proc = tempfile::tempdir().expect("there is room");
        let told = Told {
            second: 0,
            ours: 0,
            others: 0,
        };
        told.at(proc.path());
        let script = "source scripts/lib/machine.sh; disturbances & exec sleep 600";
        let mut somebody = Command::new("bash")
            .args(["-c", script])
            .current_dir(project())
            .env("PROC", proc.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("there is a bash");
        let said = BufReader::new(somebody.stdout.take().expect("it is ours to read"));
        let (noting, notes) = mpsc::channel();
        thread::spawn(move || {
            for line in said.lines().map_while(Result::ok) {
                // Nobody may want to know any more.
                let _ = noting.send(line);
            }
        });
        Self {
            proc,
            somebody,
            notes,
        }
    }

    /// The machine goes on by a second at a time until something is said that begins like this.
    fn until_noted(&self, what: &str, told: impl Fn(u64) -> Told) -> String {
        let begun = Instant::now();
        for second in 1.. {
            assert!(begun.elapsed() < PATIENCE, "nobody says: {what}");
            told(second).at(self.proc.path());
            thread::sleep(Duration::from_millis(250));
            if let Some(note) = self.notes.try_iter().find(|note| note.starts_with(what)) {
                return note;
            }
        }
        unreachable!("it takes too long before")
    }

    /// When whoever started it has ended, it has, too.
    fn ends(mut self) {
        self.kill();
        let begun = Instant::now();
        while self.notes.recv_timeout(PATIENCE).is_ok() {
            assert!(begun.elapsed() < PATIENCE, "it watches on");
        }
    }

    fn kill(&mut self) {
        self.somebody.kill().expect("it is ours");
        self.somebody.wait().expect("it is ours");
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Told {
    fn at(&self, proc: &Path) {
        let Self {
            second,
            ours,
            others,
        } = self;
        let stat = format!("cpu  {ours} 0 0 0 0 0 0 {others} 0 0\ncpu0 1\ncpu1 1\n");
        let uptime = format!("{second}.00 0.00\n");
        for (name, text) in [("stat", stat), ("uptime", uptime)] {
            // Nobody reads half of it.
            let new = proc.join("new");
            fs::write(&new, text).expect("there is room");
            fs::rename(new, proc.join(name)).expect("there is room");
        }
    }
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
        self.tell("disturbed", "");
    }

    fn tell(&self, name: &str, what: &str) {
        fs::write(self.path(name), what).expect("there is room");
    }

    /// Runs a test program that fails the first time, the second, and so on.
    fn run(&self, failures: &[usize]) -> Ran {
        let folder = self.0.path();
        // By bash, not by themselves: what another test starts meanwhile may still have such a file open for writing.
        let script = r#"
            cargo() { bash ./cargo "$@"; }
            env() { shift; "$@"; }
            seq() { :; }
            source scripts/lib/test-one "$@"
        "#;
        let ran = Command::new("bash")
            .args(["-c", script, "test-one"])
            .arg(folder)
            .arg("rules")
            .current_dir(folder)
            .env("FAILURES", format!("{failures:?}"))
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
# It snows on one run alone, unless for good.
while [[ -e disturbed && ! -e noticed ]]; do sleep 0.01; done
[[ -e for_good ]] || rm -f disturbed
echo "$*" >>runs
[[ ! -e says ]] || { cat says; exit 0; }
if [[ $FAILURES =~ [^0-9]$(($(wc -l <runs)))[^0-9] ]]; then
    [[ ! -e breaks ]] || { cat breaks; exit 139; }
    echo 'test a::b ... FAILED'
    echo 'test result: FAILED. 1 passed; 1 failed; 0 ignored'
    exit 101
fi
echo 'test a::b ... ok'
echo 'test result: ok. 1 passed; 0 failed; 0 ignored'
"#;
