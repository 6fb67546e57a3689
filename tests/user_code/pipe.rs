//! Events are written to a pipe whose reader has gone, as with `service 2>&1 | logger` after the logger has died.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, fs, io};

use tokio::time::timeout;
use tracing_subscriber::filter::LevelFilter;

use super::{PATIENCE, Store, a_loss_is_notified, a_release_is_noticed, closes, stays_renewed};

/// The environment variable with the file in which the process with the closed pipe reports its progress, and with the url of its store.
const REPORT: &str = "DISTLOCK_TEST_REPORT";
const URL: &str = "DISTLOCK_TEST_URL";

#[test]
fn a_closed_stderr_loses_no_lock_on_redis() {
    with_a_closed_stderr(&Store::redis());
}

#[test]
fn a_closed_stderr_loses_no_lock_in_a_file() {
    with_a_closed_stderr(&Store::sqlite());
}

fn with_a_closed_stderr(store: &Store) {
    let folder = tempfile::tempdir().expect("there is room");
    let report = folder.path().join("report");
    let (reader, writer) = io::pipe().expect("there is a pipe");
    drop(reader);
    let program = env::current_exe().expect("this runs from a file");
    let ended = Command::new(program)
        .args(["--exact", "pipe::worker", "--ignored", "--nocapture"])
        .env(REPORT, &report)
        .env(URL, &store.url)
        .stdout(Stdio::null())
        .stderr(writer)
        .status()
        .expect("this program can be started again");
    let said = fs::read_to_string(&report).unwrap_or_default();
    assert!(ended.success(), "{ended}; it has come to: {said}");
    assert!(said.ends_with("closed\n"), "it has come to: {said}");
}

#[tokio::test]
#[ignore = "started by the others, with a closed stderr"]
async fn worker() {
    let (Ok(report), Ok(url)) = (env::var(REPORT), env::var(URL)) else {
        return;
    };
    let mut report = fs::File::create(report).expect("there is a folder");
    let mut note = |what: &str| writeln!(report, "{what}").expect("there is room");
    tracing_subscriber::fmt()
        .with_max_level(LevelFilter::WARN)
        .with_writer(io::stderr)
        .init();
    let store = Store { url, _folder: None };
    let client = store.builder().connect().await.expect("the store is up");
    let good = client.lock("good").acquire().await.expect("it is free");
    let short = client.lock("short");
    let short = short.with_max_hold(Duration::from_millis(100));
    let short = short.acquire().await.expect("it is free");
    let lost = timeout(PATIENCE, short.lost()).await;
    assert!(lost.expect("its holder is notified").is_some());
    note("lost");
    tokio::join!(
        a_release_is_noticed(&store, &client, ""),
        a_loss_is_notified(&store, &client, ""),
        stays_renewed(&good),
    );
    note("renewed");
    closes(client).await;
    note("closed");
}
