//! A full disk: a real one, small, in a mount namespace of the test's own.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use distlock::blocking::Client;
use distlock::{Error, Lease};

use super::support::process::{say, url};

pub(crate) const ROLE: &str = "full";

#[test]
fn a_full_disk_is_reported_and_no_grant_is_lost() {
    let disk = tempfile::tempdir().expect("there is room");
    let program = std::env::current_exe().expect("this runs from a file");
    let script = "mount -t tmpfs -o size=600k none \"$1\" && shift && exec \"$@\"";
    let mut inside = Command::new("unshare");
    inside.args([
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        script,
        "sh",
    ]);
    inside.arg(disk.path()).arg(program);
    inside.args(["--exact", "worker", "--ignored", "--nocapture"]);
    inside.env("DISTLOCK_TEST_ROLE", ROLE);
    inside.env(
        "DISTLOCK_TEST_URL",
        format!("sqlite:{}/locks.db", disk.path().display()),
    );
    // The process ends when its input does.
    inside.stdin(std::process::Stdio::piped());
    let mut inside = inside.spawn().expect("namespaces can be had");
    let _input = inside.stdin.take();
    let status = inside.wait().expect("it is our child");
    assert!(status.success(), "{status}");
}

/// The worker's part, on a disk of 600 KB.
pub(crate) fn fill() -> Result<(), Error> {
    let file = url();
    let folder = Path::new(file.trim_start_matches("sqlite:"))
        .parent()
        .expect("it has one");
    let client = Client::connect_with(
        distlock::Client::builder(&url()).default_lease(Lease::KeepAlive(Duration::from_secs(600))),
    )?;
    let first = client.lock("first").acquire()?;
    let fat = vec![0; 1 << 20];
    let _ = fs::write(folder.join("fat"), &fat);
    let mut held = Vec::new();
    let error = loop {
        assert!(held.len() < 10_000, "this disk is never full");
        match client.lock(format!("lock {}", held.len())).try_acquire() {
            Ok(guard) => held.push(guard.expect("nobody else is here")),
            Err(error) => break error,
        }
    };
    say(&format!("{} locks, then: {error}", held.len()));
    assert!(matches!(error, Error::OutOfMemory { .. }), "{error:?}");
    assert!(error.to_string().contains("locks.db") && error.to_string().contains("disk is full"));
    fs::remove_file(folder.join("fat")).expect("it is there");
    let other = Client::connect(&url())?;
    for number in 0..held.len() {
        let taken = other.lock(format!("lock {number}")).try_acquire()?;
        assert!(taken.is_none(), "it was granted before: {number}");
    }
    // Afterwards everything works again.
    for guard in held {
        guard.release()?;
    }
    first.release()?;
    client.lock("another").acquire()?.release()?;
    client.close()
}
