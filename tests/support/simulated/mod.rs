//! The fixtures of `tests/support` in a simulated world: the same names and methods, under virtual time.
//!
//! A test program that declares `#[path = "../support/simulated/mod.rs"] mod support;` has simulated fixtures in place of
//! the real ones: a `RedisServer`, a `ChaosProxy` and a `CommandMonitor` in front of it, and so on. Each test runs in a world of
//! its own:
//!
//! ```ignore
//! #[test]
//! fn a_waiter_survives_a_restart() {
//!     simulated(async || {
//!         let server = RedisServer::start();
//!         let client = builder(&server.url()).connect().await.unwrap();
//!         ..
//!     });
//! }
//! ```
//!
//! Clients are made with [`builder`] in place of `Client::builder`, and time is read from `tokio::time::Instant`. The time
//! of the machine plays no part: a minute of sleep takes no time, and an upper bound on elapsed time is exact. Everything
//! runs on one thread, so a test must not block it.
//!
//! A test runs with one seed, `DISTLOCK_SEED` if that is set, or with as many as `DISTLOCK_SEEDS` says. `DISTLOCK_TRACE=1`
//! prints every message.
#![allow(
    dead_code,
    unused_imports,
    reason = "each test target compiles this module for itself and uses a part of it"
)]
#![expect(
    clippy::disallowed_methods,
    reason = "a simulated network is made of tasks and timers"
)]

/// Concatenates the text of a script: its file, after the files of the functions that it uses.
macro_rules! lua {
    ($($file:literal)then+) => {
        concat!($(include_str!(concat!("../../src/engine/redis/lua/", $file, ".lua"))),+)
    };
}

#[path = "../batch.rs"]
pub(crate) mod batch;
pub(crate) mod cluster;
#[path = "../command.rs"]
pub(crate) mod command;
#[path = "../family.rs"]
pub(crate) mod family;
#[path = "../form.rs"]
pub(crate) mod form;
#[path = "../hammer.rs"]
pub(crate) mod hammer;
#[path = "../java.rs"]
pub(crate) mod java;
#[path = "../login.rs"]
pub(crate) mod login;
#[path = "../proxy.rs"]
pub(crate) mod proxy;
pub(crate) mod redis;
#[path = "../resp.rs"]
pub(crate) mod resp;
#[path = "../rights.rs"]
pub(crate) mod rights;
#[path = "../seed.rs"]
pub(crate) mod seed;
pub(crate) mod sentinel;
pub(crate) mod transport;
#[path = "../witness.rs"]
pub(crate) mod witness;
#[path = "../world.rs"]
pub(crate) mod world;

use std::cell::RefCell;
use std::thread;
use std::time::Duration;

use distlock::ClientBuilder;

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
pub(crate) use self::witness::{CommandMonitor, Script, Words, args};
use self::world::World;

thread_local! {
    /// The world of the test that runs on this thread.
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

/// Runs a test in a simulated world, once for each seed, on a thread of its own.
pub(crate) fn simulated<F>(test: F)
where
    F: AsyncFnOnce() + Copy + Send + 'static,
{
    let number = |name: &str| {
        let text = std::env::var(name).ok()?;
        let number = text.parse::<u64>();
        Some(number.unwrap_or_else(|_| panic!("{name}={text} is not a number")))
    };
    let seeds = match number("DISTLOCK_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..number("DISTLOCK_SEEDS").unwrap_or(1) + 1,
    };
    let name = thread::current().name().unwrap_or_default().to_owned();
    for seed in seeds {
        let replay = format!(
            "DISTLOCK_SEED={seed} cargo test --all-features --test {} -- --exact {name}",
            env!("CARGO_CRATE_NAME")
        );
        world::simulate(seed, &replay, async move |world| {
            WORLD.set(Some(world));
            test().await;
        });
    }
}

/// Returns the world of this test.
pub(crate) fn world() -> World {
    let world = WORLD.with_borrow(Clone::clone);
    world.expect("only inside of `simulated`")
}

/// Returns the options of a client on a machine of its own.
pub(crate) fn builder(url: &str) -> ClientBuilder {
    thread_local! {
        static MACHINES: RefCell<u32> = const { RefCell::new(0) };
    }
    let number = MACHINES.with_borrow_mut(|number| {
        *number += 1;
        *number
    });
    world().client_of(url, &format!("client-{number}"))
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

/// Upper bound for anything but an hour of waiting; only a failure waits this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(5);
