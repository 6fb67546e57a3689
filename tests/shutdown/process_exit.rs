//! A process may end with guards in its statics.

use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Instant;

use distlock::{Client, Guard};
use tokio::runtime::Runtime;

use super::support::RedisServer;
use super::{COMPANY, PATIENCE, connect, runtime};

#[test]
fn a_process_with_guards_in_its_statics_ends_quietly() {
    static KEPT: OnceLock<(Guard, Client, Runtime)> = OnceLock::new();
    if let Ok(url) = std::env::var(CHILD) {
        // This is the child: the rest is the end of a careless program.
        let runtime = runtime();
        let client = runtime.block_on(connect(&url));
        let guard = runtime.block_on(client.lock("exit").acquire()).unwrap();
        assert!(KEPT.set((guard, client, runtime)).is_ok());
        return;
    }
    let _company = COMPANY.blocking_read();
    let server = RedisServer::start();
    for url in ["memory:", &server.url()] {
        let begun = Instant::now();
        let this = std::env::current_exe().expect("tests are executable");
        let child = Command::new(this)
            .args(["--exact", "--nocapture"])
            .arg("process_exit::a_process_with_guards_in_its_statics_ends_quietly")
            .env(CHILD, url)
            .stdin(Stdio::null())
            .output()
            .expect("it can be started again");
        let took = begun.elapsed();
        let said = String::from_utf8_lossy(&child.stderr);
        assert!(child.status.success(), "{said}");
        assert!(!said.contains("panicked"), "{said}");
        assert!(took < PATIENCE, "{took:?}");
    }
    // The lock was not released: it is left to its lease.
    assert_eq!(server.keys(), ["exit"]);
}

const CHILD: &str = "DISTLOCK_TEST_STORE_OF_A_CARELESS_PROGRAM";
