//! The tests of what only the embedded store has: its files, its processes, its restarts. The behaviour of locks is in `conformance`, which
//! runs on it as on every other store.
//!
//! A test starts other processes from its own executable: they enter at [`worker`].

#![cfg(all(feature = "sqlite", feature = "blocking", target_os = "linux"))]
#![expect(
    clippy::disallowed_methods,
    reason = "processes are killed, stopped and awaited in real time"
)]

#[path = "../support/mod.rs"]
mod support;

mod busy;
mod crowd;
mod fenced;
mod files;
mod full;
mod gone;
#[cfg(feature = "internals")]
mod priority;
mod restart;
mod trust;
mod versions;
mod waiting;
mod watching;
mod worker;

use std::path::PathBuf;
use std::time::Duration;

use distlock::blocking::Client;
use tempfile::TempDir;

use self::support::process::Process;
use self::support::{PATIENCE, once_within, process, wait_until};

/// The entry of the processes that the tests start. It tests nothing by itself and is ignored, so that it is not counted as a test that
/// passed.
#[test]
#[ignore = "no test: the processes that the tests start begin here"]
fn worker() {
    if let Some(role) = process::role() {
        worker::run(&role);
    }
}

/// Builds a client with timeouts that are long enough for a busy machine.
fn patient(url: &str) -> distlock::ClientBuilder {
    distlock::Client::builder(url)
        .command_timeout(PATIENCE / 2)
        .connect_timeout(PATIENCE / 2)
}

/// A folder of a test's own, and a file in it.
struct StoreFile {
    folder: TempDir,
}

impl StoreFile {
    fn new() -> Self {
        let folder = TempDir::with_prefix("distlock-").expect("there is room");
        Self { folder }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("locks.db")
    }

    fn url(&self) -> String {
        format!("sqlite:{}", self.file().display())
    }

    fn connect(&self) -> Client {
        Client::connect_with(patient(&self.url())).expect("the file can be used")
    }

    /// Connects once no other client has the file open: the threads of dropped clients end a moment later.
    fn connect_after_the_others(&self) -> Client {
        wait_until("the others have gone", || {
            Client::connect(&self.url()).is_ok()
        });
        self.connect()
    }

    /// Stops a process while it is not accessing the file: in the middle of a write it would block all others.
    fn stop(&self, process: &Process) {
        wait_until("it is not writing", || {
            process.stop();
            let database = self.database();
            database
                .busy_timeout(Duration::ZERO)
                .expect("nobody is asked");
            let free = database.execute_batch("BEGIN IMMEDIATE; ROLLBACK");
            if free.is_err() {
                process.resume();
            }
            free.is_ok()
        });
    }

    /// Returns the files in the folder beside the file.
    fn left(&self) -> Vec<String> {
        let folder = self.folder.path().join("locks.db-clients");
        let files = std::fs::read_dir(folder).expect("it is there");
        let name = |file: std::io::Result<std::fs::DirEntry>| {
            let file = file.expect("it can be read");
            file.file_name().into_string().expect("names are text")
        };
        let mut names: Vec<String> = files.map(name).collect();
        names.retain(|name| name != ".made");
        names.sort();
        names
    }

    /// Returns the number of rows of a table.
    fn rows(&self, table: &str) -> u32 {
        let count = format!("SELECT count(*) FROM {table}");
        let rows = self.database().query_row(&count, [], |row| row.get(0));
        rows.expect("it is there")
    }

    /// Opens the file as any program may.
    fn database(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.file()).expect("it is a database")
    }
}
