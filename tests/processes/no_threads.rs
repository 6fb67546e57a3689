//! A process that may not start any thread: it has reached the pid limit of its container or user.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;
use std::{env, fs};

use distlock::{Client, Error, blocking};

const URLS: &str = "DISTLOCK_TEST_URLS";

#[test]
fn connecting_reports_a_failure_to_spawn_a_thread() {
    let folder = tempfile::tempdir().expect("there is room");
    let program = folder.path().join("program");
    fs::copy(env::current_exe().expect("this runs from a file"), &program).expect("it is readable");
    for path in [folder.path(), &program] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is ours");
    }
    let file = folder.path().join("locks.db");
    // The limit does not apply to root.
    let is_root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    let mut limited = match is_root {
        true => {
            let mut nobody = Command::new("setpriv");
            nobody.args([
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
                "prlimit",
            ]);
            nobody
        }
        false => Command::new("prlimit"),
    };
    limited.arg("--nproc=1").arg(&program);
    limited.args(["--exact", "no_threads::worker", "--ignored", "--nocapture"]);
    // The test then runs on the first thread.
    limited.args(["--test-threads", "1"]);
    let urls = format!(
        "redis://127.0.0.1:1 rediss://127.0.0.1:1 sqlite:{}",
        file.display()
    );
    let ended = limited.env(URLS, urls).output();
    let ended = ended.expect("util-linux is there");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{}: {said}", ended.status);
}

#[test]
#[ignore = "started by the other, in a process that may start no thread"]
fn worker() {
    let Ok(urls) = env::var(URLS) else {
        return;
    };
    let says_so = |connected: Result<(), Error>| {
        let error = connected.expect_err("there is no thread");
        let Error::Unavailable { detail, .. } = &error else {
            panic!("{error}");
        };
        assert!(detail.contains("no thread can be started"), "{error}");
    };
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().expect("it needs no thread");
    for url in urls.split(' ') {
        says_so(runtime.block_on(async { Client::connect(url).await.map(drop) }));
        says_so(blocking::Client::connect(url).map(drop));
    }
}
