//! Readers and writers of many clients, some of which are cut off for ever as a killed process is: no client writes beside
//! another, and every client gets on.

mod crowd;
mod generations;
mod patience;

use std::time::Duration;

use distlock::{Client, Lease};

async fn connect(url: &str) -> Client {
    let builder = crate::support::builder(url).default_lease(Lease::KeepAlive(LEASE));
    builder.connect().await.expect("the server is up")
}

const LEASE: Duration = Duration::from_secs(3);
/// Only a failure waits for it.
const PATIENCE: Duration = Duration::from_secs(20);
