//! One lock on five real servers, some of which are killed, hang, are full, or restart and have forgotten everything.

#![cfg(all(feature = "redis", target_os = "linux"))]
#![expect(
    clippy::disallowed_methods,
    reason = "servers are killed and awaited in real time"
)]

#[path = "../support/mod.rs"]
mod support;

mod beside;
mod faults;
mod hammer;
mod held;
mod restarted;
mod stage;
mod undone;

use support::process;

/// Where the processes that the hammer starts begin. It tests nothing by itself and is ignored, so that it is not counted as a
/// test that passed.
#[test]
#[ignore = "no test: the processes that the hammer starts begin here"]
fn worker() {
    let Some(role) = process::role() else {
        return;
    };
    // Ends this process with the test.
    let _orders = process::orders();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be had");
    runtime.block_on(hammer::work(&role));
}
