//! Readers and writers in many processes, some of which are killed: nobody writes beside another, and everyone gets on.
//!
//! Every grant is written down at the server ([`log`]), and what was written is checked afterwards. The suite plays a few
//! thousand grants. A hundred thousand and more:
//!
//! ```text
//! DISTLOCK_GRANTS=100000 cargo test --release --all-features --test read_write -- --nocapture killed
//! ```

#![cfg(feature = "redis")]
#![expect(
    clippy::disallowed_methods,
    reason = "processes are killed and awaited in real time"
)]

#[path = "../support/mod.rs"]
mod support;

mod crowd;
mod generations;
mod killed;
mod log;
mod patience;

use std::time::Duration;

use distlock::{Client, Lease};

use self::support::process;

/// Where the processes that the tests start begin. It tests nothing by itself and is ignored, so that
/// it is not counted as a test that passed.
#[test]
#[ignore = "no test: the processes that the tests start begin here"]
fn worker() {
    if let Some(role) = process::role() {
        assert_eq!(role, crowd::ROLE);
        crowd::run();
    }
}

async fn connect(url: &str) -> Client {
    Client::builder(url)
        .default_lease(Lease::KeepAlive(LEASE))
        .command_timeout(PATIENCE)
        .connect_timeout(PATIENCE)
        .connect()
        .await
        .expect("the server is up")
}

/// Two thirds of it are what a busy machine may cost without costing the lock.
const LEASE: Duration = Duration::from_secs(3);
/// Far longer than anything takes on a busy machine; only a failure waits for it.
const PATIENCE: Duration = Duration::from_secs(20);
