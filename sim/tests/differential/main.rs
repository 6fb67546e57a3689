//! The simulated server beside a real one: both receive the same requests, and have to give the same replies.
//!
//! The test sends a few thousand requests by default; `DISTLOCK_DIFFERENTIAL` sets another number, in thousands, and
//! `DISTLOCK_DIFFERENTIAL_SEED` the seed. Leases are hours and differ by minutes, and a command ends those that expire: the comparison does
//! not depend on how fast the machine is. If `redis-server` is not a Redis 7.0, the simulated version, only the parts that the library
//! relies on are compared: its scripts, and the keys and messages that they leave.
#![expect(
    clippy::disallowed_methods,
    reason = "a test starts the tasks of a world, and a real server beside it"
)]

mod cluster;
mod generator;
#[path = "../../../tests/support/redis/killed_on_exit.rs"]
mod killed_on_exit;
mod replies;
mod scripts;
mod sentinels;
mod sequences;
mod servers;
mod words;

use std::collections::BTreeMap;

use distlock_sim::{Clock, Server};

use crate::sequences::{Likeness, Sequence};
use crate::servers::Real;

#[tokio::test(start_paused = true)]
async fn the_simulated_server_replies_like_a_real_one() {
    let number = |name| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    let requests = number("DISTLOCK_DIFFERENTIAL").unwrap_or(12) * 1000;
    let first = number("DISTLOCK_DIFFERENTIAL_SEED").unwrap_or(1);
    let real = Real::start();
    let likeness = Likeness::of(&real.version());
    let simulated = Server::new(Clock::new(), 1);
    let mut scripts = scripts::all();
    if likeness == Likeness::ScriptsWithoutShards {
        scripts.retain(|script| !script.text.contains("'SPUBLISH'"));
    }
    let mut outcomes = BTreeMap::new();
    let mut asked = 0;
    for seed in first.. {
        if asked >= requests {
            break;
        }
        let mut sequence =
            Sequence::begin(&real, &simulated, &scripts, likeness, seed, &mut outcomes).await;
        sequence.play().await;
        asked += sequence.asked;
    }
    let errors: u64 = outcomes
        .iter()
        .filter(|((_, said), _)| said.starts_with(char::is_uppercase))
        .map(|(_, times)| times)
        .sum();
    eprintln!(
        "{asked} requests, {errors} errors, {} different outcomes, {likeness:?}",
        outcomes.len()
    );
    let played = |script: &scripts::Script| outcomes.keys().any(|(name, _)| *name == script.name);
    let missing: Vec<&str> = scripts
        .iter()
        .filter(|script| !played(script))
        .map(|script| script.name.as_str())
        .collect();
    assert!(missing.is_empty(), "never played: {missing:?}");
}
