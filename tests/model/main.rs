//! Holds the memory engine's pure rules against the Redis engine's scripts, and against the embedded store's file:
//! the same random requests at the same times must get the same replies.
//!
//! Ten thousand sequences run side by side, each on a name of its own, in lock-step: one action a
//! tick. The rules are told the time at which a request is sent to the store, which keeps its own. Leases
//! end half-way between two ticks, so that ends and actions stay apart; where a busy machine has
//! brought them together all the same, both answers may be right, and that sequence counts for
//! nothing. Enough others must be left.

#![cfg(all(feature = "redis", feature = "sqlite", feature = "internals"))]
#![expect(clippy::disallowed_methods, reason = "tests keep their own time")]

#[path = "../support/mod.rs"]
mod support;

mod compare;
mod generator;
mod keyspace;
mod lane;
mod listening;
mod sequence;

use std::sync::Arc;
use std::time::Duration;

use distlock::HoldsEndWith;
use distlock::internals::engine::Engine;
use distlock::internals::engine::redis::{self, Address, Place, Redis};
use distlock::internals::engine::sqlite::{self, Sqlite};
use distlock::internals::protocol::{ClientId, Kind};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::Instant;

use compare::{EVERYTHING, TRAVELLERS};
use generator::Kinds;
use keyspace::Keyspace;
use lane::{Lane, Outcome, TICK};
use support::{RedisServer, SeededRng, eventually};

/// Of one name: what can be told apart.
const MIXED: [Kind; 4] = [Kind::Mutex, Kind::Fenced, Kind::Fair, Kind::Simple];
/// Both sides of one lock.
const BOTH: [Kind; 2] = [Kind::Read, Kind::Write];
/// What can be had without scripts.
const UNSCRIPTED: [Kind; 3] = [Kind::Mutex, Kind::Fenced, Kind::Simple];

/// How often to run more of them if too few counted, beside as often as they all need.
const ROUNDS: u32 = 4;

/// Two clients of a store, and how much of it there is to try.
struct Contest {
    engines: [Arc<dyn Engine>; 2],
    /// Which locks are asked for.
    kinds: Kinds,
    /// Sequences that must count.
    enough: usize,
    /// Lanes run at the same time; in each, the sequences take their turns.
    lanes: u32,
    sequences: usize,
    /// Whether news may take its time, and come more often than there is any.
    patient: bool,
}

/// Random requests get the same replies from memory and from Redis.
mod redis_says_what_memory_says {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_plain_locks() {
        against_redis(Kinds::Only(Kind::Mutex), 10_000, true).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_fenced_locks() {
        against_redis(Kinds::Only(Kind::Fenced), 10_000, true).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_fair_locks() {
        against_redis(Kinds::Only(Kind::Fair), 10_000, true).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_read_write_locks() {
        against_redis(Kinds::Any(&BOTH), 10_000, true).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_simple_locks() {
        against_redis(Kinds::Only(Kind::Simple), 10_000, true).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_one_name_for_all_kinds() {
        against_redis(Kinds::Any(&MIXED), 2_000, true).await;
    }
}

/// And without scripts.
mod redis_without_scripts_says_what_memory_says {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_plain_locks() {
        against_redis(Kinds::Only(Kind::Mutex), 2_000, false).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_fenced_locks() {
        against_redis(Kinds::Only(Kind::Fenced), 2_000, false).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_simple_locks() {
        against_redis(Kinds::Only(Kind::Simple), 2_000, false).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_one_name_for_all_kinds() {
        against_redis(Kinds::Any(&UNSCRIPTED), 2_000, false).await;
    }
}

/// And from a file.
mod a_file_says_what_memory_says {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_plain_locks() {
        against_a_file(Kinds::Only(Kind::Mutex)).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_fenced_locks() {
        against_a_file(Kinds::Only(Kind::Fenced)).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_fair_locks() {
        against_a_file(Kinds::Only(Kind::Fair)).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_read_write_locks() {
        against_a_file(Kinds::Any(&BOTH)).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_simple_locks() {
        against_a_file(Kinds::Only(Kind::Simple)).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_one_name_for_all_kinds() {
        against_a_file(Kinds::Any(&MIXED)).await;
    }
}

async fn against_redis(kinds: Kinds, enough: usize, scripts: bool) {
    let server = RedisServer::start();
    let contest = Contest {
        engines: [
            connect(&server, scripts).await,
            connect(&server, scripts).await,
        ],
        kinds,
        enough,
        // Without scripts there is one request at a time.
        lanes: if scripts { 32 } else { 8 },
        sequences: if scripts { enough / 29 } else { enough / 7 },
        patient: false,
    };
    let look = async |begun| {
        let keys = Keyspace::of_redis(&server, contest.engines[0].clone(), begun).await;
        server.flushall();
        keys
    };
    let seen = contest.play(look).await;
    let least = contest.least();
    seen.together
        .assert_everything_was_seen_of(TRAVELLERS, kinds, least);
    let calls = server.commandstats("evalsha") + server.commandstats("eval");
    if !scripts {
        // What the test itself looks with is sent by its text.
        return assert_eq!(server.commandstats("evalsha"), 0);
    }
    let (may_travel, others) = (seen.may_travel, seen.others);
    eprintln!("{may_travel} requests that may travel, {others} others: {calls} calls");
    // Whatever did not travel in company was a call of its own; some locks' always are.
    let alone = matches!(kinds.main(), Kind::Fair | Kind::Read);
    assert!(
        alone || calls < others + may_travel / 2,
        "they travel alone"
    );
    drop(contest);
    eventually(
        Duration::from_secs(10),
        "every listener has left",
        async || server.pubsub_channels().is_empty(),
    )
    .await;
}

async fn against_a_file(kinds: Kinds) {
    let folder = tempfile::tempdir().expect("there is room");
    let file = folder.path().join("locks.db");
    let open = async |client| -> Arc<dyn Engine> {
        let settings = sqlite::Settings {
            path: file.clone(),
            prefix: "".into(),
            client: ClientId::new([client; 16]),
            holds_end_with: HoldsEndWith::Process,
            connect_timeout: Duration::from_secs(30),
            patience: Duration::from_secs(30),
        };
        let engine = Sqlite::connect(settings, &Handle::current()).await;
        let engine: Arc<dyn Engine> = engine.expect("the file can be used");
        engine
    };
    let contest = Contest {
        engines: [open(101).await, open(102).await],
        kinds,
        enough: enough_of_a_file(),
        lanes: 8,
        sequences: 270,
        patient: true,
    };
    let look = async |_| Keyspace::of_file(&file, contest.engines[0].clone()).await;
    contest.play(look).await;
    drop(contest);
    eventually(
        Duration::from_secs(10),
        "every listener has left",
        async || Keyspace::listeners(&file) == 0,
    )
    .await;
}

/// A file is slower: the suite plays some of what a command of its own plays, with `DISTLOCK_SEQUENCES=10000`.
fn enough_of_a_file() -> usize {
    std::env::var("DISTLOCK_SEQUENCES").map_or(2_000, |enough| {
        enough.parse().expect("a number of sequences")
    })
}

impl Contest {
    /// Plays it, and panics if anything differs.
    async fn play(&self, look: impl AsyncFn(Instant) -> Keyspace) -> Outcome {
        let begun = Instant::now();
        let mut rng = SeededRng::from_env_or(0x6d6f_6465_6c00_0001);
        let mut seen = Outcome::default();
        let lanes = usize::try_from(self.lanes).expect("a few");
        let rounds = ROUNDS + u32::try_from(self.enough / (self.sequences * lanes)).expect("a few");
        for round in 0..rounds {
            let round_begun = Instant::now();
            // Only as many as are missing, and some to spare.
            let missing = self.enough - seen.sequences;
            let sequences = self.sequences.min(missing.div_ceil(lanes) * 3 + 5);
            let mut running = JoinSet::new();
            for lane in 0..self.lanes {
                let lane = Lane {
                    name: format!("lane-{round}-{lane}-"),
                    seed: rng.next_u64(),
                    sequences,
                    kinds: self.kinds,
                    // Spread over a tick, so that they do not all begin at the same instant.
                    phase: TICK * lane / self.lanes,
                    patient: self.patient,
                    engines: self.engines.clone(),
                };
                running.spawn(async move { lane.run().await });
            }
            let ended = running.join_all().await;
            let sent = Instant::now();
            let keys = look(round_begun).await;
            let latency = sent.elapsed();
            for lane in ended {
                seen.add(lane.end(&keys, sent, latency).await);
            }
            eprintln!(
                "round {round}: {} sequences of {} requests; {} more counted for nothing; slowest \
                 answer {:.0?}, slowest tick {:.0?}; {:.1?}",
                seen.sequences,
                seen.coverage.requests(),
                seen.unclear,
                seen.slowest_answer,
                seen.slowest_tick,
                begun.elapsed()
            );
            if seen.sequences >= self.enough || !seen.divergences.is_empty() {
                break;
            }
        }
        eprintln!("{}", seen.coverage);

        let found = seen.divergences.len();
        if let Some(shortest) = seen.divergences.iter().min_by_key(|found| found.length()) {
            panic!("{found} sequences diverge, this the soonest:\n{shortest}");
        }
        assert!(
            seen.sequences >= self.enough,
            "this machine is too busy: nothing can be said"
        );
        seen.coverage
            .assert_everything_was_seen_of(EVERYTHING, self.kinds, self.least());
        seen
    }

    /// How often the rarest reply must have come: a quarter of what it does on average.
    fn least(&self) -> u64 {
        let share = match self.kinds {
            Kinds::Only(_) => 200,
            // Owners of one kind are fewer there.
            Kinds::Any(_) => 800,
        };
        u64::try_from(self.enough / share).expect("a few")
    }
}

async fn connect(server: &RedisServer, scripts: bool) -> Arc<dyn Engine> {
    let address = Address {
        place: Place::Unix(server.socket_path()),
        ..Address::default()
    };
    let settings = redis::Settings {
        prefix: "".into(),
        connect_timeout: Duration::from_secs(10),
        command_timeout: Duration::from_secs(30),
        scripts,
    };
    Redis::connect(address, settings, &Handle::current())
        .await
        .expect("the server is up")
}
