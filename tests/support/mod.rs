//! The fixtures that the integration tests share: a real server, a network that misbehaves on request, and generous
//! time-outs.
#![allow(
    dead_code,
    unused_imports,
    reason = "each test target compiles this module for itself and uses a part of it"
)]
#![expect(
    clippy::disallowed_methods,
    reason = "a fake network and a real server are made of threads, tasks and timers"
)]

/// Concatenates the text of a script: its file, after the files of the functions that it uses.
macro_rules! lua {
    ($($file:literal)then+) => {
        concat!($(include_str!(concat!("../../src/engine/redis/lua/", $file, ".lua"))),+)
    };
}

pub(crate) mod batch;
pub(crate) mod cluster;
pub(crate) mod command;
pub(crate) mod family;
pub(crate) mod form;
pub(crate) mod hammer;
pub(crate) mod java;
pub(crate) mod login;
pub(crate) mod port;
pub(crate) mod process;
pub(crate) mod proxy;
pub(crate) mod redis;
pub(crate) mod replication;
pub(crate) mod resp;
pub(crate) mod rights;
pub(crate) mod seed;
pub(crate) mod sentinel;
pub(crate) mod servers;
pub(crate) mod transport;
pub(crate) mod witness;

use std::time::{Duration, Instant};

pub(crate) use self::cluster::Cluster;
pub(crate) use self::family::{
    Fair, Family, Fenced, Opposite, Plain, Player, Read, Semaphore, Several, Simple, Write,
};
pub(crate) use self::java::Java;
pub(crate) use self::login::Rights;
pub(crate) use self::proxy::{ChaosProxy, Fault, Match};
pub(crate) use self::redis::{RedisServer, patient_connection};
pub(crate) use self::seed::SeededRng;
pub(crate) use self::sentinel::Topology;
pub(crate) use self::servers::{Arrangement, Servers};
pub(crate) use self::witness::{CommandMonitor, Script, Words, args};

/// Returns the options of a client. The same test may run in a simulated world as well, which has its own `builder`.
pub(crate) fn builder(url: &str) -> distlock::ClientBuilder {
    distlock::Client::builder(url)
}

/// Waits until `condition` holds, and panics with `what` if it does not `within` that time.
///
/// A condition that hangs counts as one that does not hold.
pub(crate) async fn eventually(
    within: Duration,
    what: &str,
    mut condition: impl AsyncFnMut() -> bool,
) {
    let poll = async {
        while !condition().await {
            tokio::time::sleep(POLL).await;
        }
    };
    if tokio::time::timeout(within, poll).await.is_err() {
        panic!("not within {within:?}: {what}");
    }
}

/// Waits as [`eventually`] does, in code that is not async.
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(
            begun.elapsed() < PATIENCE,
            "not within {PATIENCE:?}: {what}"
        );
        std::thread::sleep(POLL);
    }
}

/// Repeats an attempt until one takes less than `bound`. The failure that this rules out makes every attempt slow; on a busy
/// machine a correct program may need more attempts.
pub(crate) fn once_within(bound: Duration, what: &str, mut attempt: impl FnMut() -> Duration) {
    let mut took = Vec::new();
    while took.len() < ATTEMPTS {
        took.push(attempt());
        if took.iter().any(|took| *took < bound) {
            return eprintln!("{what} after {took:?}");
        }
    }
    panic!("{what} never within {bound:?}: {took:?}");
}

/// Upper bound for anything on a busy machine; only a failure waits this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
const ATTEMPTS: usize = 100;
const POLL: Duration = Duration::from_millis(5);
