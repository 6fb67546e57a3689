//! The comparison of the scripts with the pure rules (tests/model), on the simulated server and under virtual time.

#[path = "../model/compare.rs"]
mod compare;
#[path = "../model/dice.rs"]
mod dice;
#[path = "../model/generator.rs"]
mod generator;
#[path = "../model/kinds.rs"]
mod kinds;
#[path = "../model/lane.rs"]
mod lane;
#[path = "../model/listening.rs"]
mod listening;
#[path = "../model/numbers.rs"]
mod numbers;
#[path = "../model/pair.rs"]
mod pair;
#[path = "../model/sequence.rs"]
mod sequence;

#[path = "../support/seed.rs"]
mod seed;

mod support {
    pub(crate) use super::seed::SeededRng;
}

/// The clock of the simulated server.
mod clock {
    use std::time::Duration;

    use distlock::internals::protocol::Moment;
    use tokio::time::Instant;

    #[derive(Clone, Debug)]
    pub(crate) struct Clock(pub(super) Instant);

    impl Clock {
        pub(crate) fn now(&self) -> Moment {
            Moment::at(Duration::from_secs(1_893_456_000) + self.0.elapsed())
        }

        /// Returns `false`: the clock advances by itself.
        pub(crate) const fn advance(&self, _: Duration) -> bool {
            false
        }
    }
}

/// The keys that are left in the store.
mod keyspace {
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::Arc;

    use distlock::internals::engine::Engine;
    use distlock::internals::protocol::Kind;
    use distlock_sim::{Server, Value};

    #[derive(Debug, Default)]
    pub(crate) struct Keyspace {
        pub(crate) listed: BTreeSet<String>,
        pub(crate) locks: BTreeSet<String>,
        pub(crate) undone: BTreeMap<String, BTreeSet<String>>,
        /// Keys that should expire but do not.
        pub(crate) endless: Vec<String>,
    }

    impl Keyspace {
        pub(crate) async fn of(server: &Server, engine: Arc<dyn Engine>) -> Self {
            let mut keyspace = Self::default();
            let mut semaphores = BTreeSet::new();
            let mut from = Some(0);
            while let Some(place) = from {
                let page = engine.clone().scan("*".into(), place).await;
                let page = page.expect("the store answers");
                for lock in page.found {
                    let names = match lock.kind {
                        Kind::Semaphore => &mut semaphores,
                        _ => &mut keyspace.listed,
                    };
                    names.insert(lock.name.to_string());
                }
                from = page.next;
            }
            for (_, key, state) in server.keyspace() {
                let key = String::from_utf8_lossy(&key).into_owned();
                if let Some(name) = key
                    .strip_prefix('{')
                    .and_then(|key| key.strip_suffix("}:timeout"))
                {
                    let now = number(&server.call(&[b"TIME"]));
                    let from = format!("({now}");
                    let out = server.call(&[b"ZCOUNT", key.as_bytes(), from.as_bytes(), b"+inf"]);
                    if number(&out) > 0 {
                        keyspace.locks.insert(name.to_owned());
                    }
                } else if let Some(name) = key.strip_prefix("distlock_undone:{") {
                    let name = name.trim_end_matches('}').to_owned();
                    let Value::Scored(members) = &state.value else {
                        continue;
                    };
                    let members = members.iter();
                    let members =
                        members.map(|(member, _)| String::from_utf8_lossy(member).into_owned());
                    keyspace.undone.insert(name, members.collect());
                } else if !key.contains(':') && !is_number(&state.value) {
                    keyspace.locks.insert(key.clone());
                }
                let endless = key.contains("redisson_lock_token:") || key.ends_with(":timeout");
                if state.pttl == -1 && !endless && !is_number(&state.value) {
                    keyspace.endless.push(key);
                }
            }
            // Expired permits stay until the next request; a listing of semaphores inspects each of them.
            let out: Vec<_> = semaphores.intersection(&keyspace.locks).cloned().collect();
            keyspace.listed.extend(out);
            keyspace
        }
    }

    fn is_number(value: &Value) -> bool {
        matches!(value, Value::Bulk(text) if String::from_utf8_lossy(text).parse::<f64>().is_ok())
    }

    fn number(value: &Value) -> u64 {
        match value {
            Value::Integer(number) => u64::try_from(*number).unwrap_or(0),
            // The reply of `TIME`: seconds and microseconds.
            Value::Array(parts) => match &parts[..] {
                [Value::Bulk(seconds), Value::Bulk(micros)] => {
                    let part = |text: &[u8]| String::from_utf8_lossy(text).parse().unwrap_or(0_u64);
                    part(seconds) * 1000 + part(micros) / 1000
                }
                _ => 0,
            },
            _ => 0,
        }
    }
}

use std::io;
use std::sync::Arc;
use std::time::Duration;

use distlock::internals::engine::Engine;
use distlock::internals::engine::events::Events;
use distlock::internals::engine::redis::{self, Address, Endpoint, Network, Redis};
use distlock::internals::protocol::Kind;
use distlock::simulation::{Connecting, Host, Stream};
use distlock_sim::Server;
use tokio::runtime::Handle;
use tokio::time::Instant;

use self::clock::Clock;
use self::keyspace::Keyspace;
use self::kinds::Kinds;
use self::lane::{Lane, Outcome, PlayedSequence};

/// A transport to the server without a network: nothing takes time.
#[derive(Debug)]
struct DirectTransport(Server);

impl Host for DirectTransport {
    fn connect(&self, _: &str, _: u16) -> Connecting {
        let server = self.0.clone();
        Box::pin(async move {
            let (ours, theirs) = tokio::io::duplex(1 << 20);
            tokio::spawn(async move { server.serve(theirs).await });
            Ok::<_, io::Error>(Box::new(ours) as Box<dyn Stream>)
        })
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }
}

/// The kinds of locks that are compared, each by the name that `scripts/mutants` has for it.
pub(crate) const COMPARED: [(&str, Kinds); 9] = [
    ("mutex", Kinds::Only(Kind::Mutex)),
    ("fenced", Kinds::Only(Kind::Fenced)),
    ("fair", Kinds::Only(Kind::Fair)),
    ("rw", Kinds::Any(&[Kind::Read, Kind::Write])),
    ("simple", Kinds::Only(Kind::Simple)),
    ("semaphore", Kinds::Only(Kind::Semaphore)),
    ("latch", Kinds::Only(Kind::Latch)),
    ("counting", Kinds::Only(Kind::Counting)),
    (
        "mixed",
        Kinds::Any(&[Kind::Mutex, Kind::Fenced, Kind::Fair, Kind::Simple]),
    ),
];

/// Plays this many sequences of one kind, and returns the shortest difference, if there is one.
pub(crate) fn difference(kinds: Kinds, seed: u64, sequences: usize) -> Option<String> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build();
    runtime
        .expect("a runtime needs only memory")
        .block_on(async {
            let clock = Clock(Instant::now());
            let server = Server::new(distlock_sim::Clock::new(), seed);
            let connect = async || -> Arc<dyn Engine> {
                let address = Address {
                    endpoint: Endpoint::Tcp("redis".into(), 6379),
                    ..Address::default()
                };
                let settings = redis::RedisSettings {
                    prefix: "".into(),
                    connect_timeout: Duration::from_secs(10),
                    command_timeout: Duration::from_secs(30),
                    scripts: true,
                    lazy_connect: false,
                    durability: redis::DurabilityPolicy::default(),
                    cluster_node: None,
                    events: Events::inline(),
                    network: Network::Simulated(Arc::new(DirectTransport(server.clone()))),
                };
                let engine = Redis::connect(address, settings, &Handle::current()).await;
                let engine: Arc<dyn Engine> = engine.expect("the server is up");
                engine
            };
            let engines = [connect().await, connect().await];
            let lane = Lane {
                name: "lane-".into(),
                seed,
                sequences,
                kinds,
                phase: Duration::ZERO,
                patient: false,
                engines: engines.clone(),
                clock: clock.clone(),
            };
            let run = lane.run().await;
            let sent = clock.now();
            let keys = Keyspace::of(&server, engines[0].clone()).await;
            let Outcome {
                divergences,
                sequences: counted,
                ..
            } = run.end(&keys, sent, Duration::ZERO).await;
            if let Some(key) = keys.endless.first() {
                return Some(format!("`{key}` has no end"));
            }
            let shortest = divergences.iter().min_by_key(|found| found.length());
            assert!(
                shortest.is_some() || counted * 10 >= sequences,
                "too few count: {counted}"
            );
            shortest.map(ToString::to_string)
        })
}
