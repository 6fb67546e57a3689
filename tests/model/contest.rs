//! Plays sequences against a store until enough have counted.

use std::sync::Arc;
use std::time::Duration;

use distlock::ReleaseOn;
use distlock::internals::engine::events::Events;
use distlock::internals::engine::redis::{self, Address, Endpoint, Redis};
use distlock::internals::engine::sqlite::{self, Sqlite};
use distlock::internals::engine::{Engine, boot};
use distlock::internals::protocol::{ClientId, Kind, Moment};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::clock::Clock;
use super::compare::{EVERYTHING, TRAVELLERS};
use super::keyspace::Keyspace;
use super::kinds::Kinds;
use super::lane::{Lane, Outcome, PlayedSequence};
use super::pair::TICK;
use super::support::{RedisServer, SeededRng, eventually};

/// How long to run more of them if too few counted.
const LONGEST: Duration = Duration::from_secs(480);

/// The fewest sequences of a lane.
const FEWEST: usize = 3;

/// Two clients of a store, and the amount of play against it.
struct Contest {
    engines: [Arc<dyn Engine>; 2],
    /// The clock of the store's leases.
    clock: Clock,
    /// The kinds of lock that are requested.
    kinds: Kinds,
    /// The number of sequences that must count.
    enough: usize,
    /// Lanes run at the same time; in each, the sequences take their turns.
    lanes: u32,
    sequences: usize,
    /// Whether the store may notify late, and more often than there are releases.
    patient: bool,
}

/// Plays sequences of one lock each against Redis, with scripts or without.
pub(crate) async fn against_redis(kinds: Kinds, scripts: bool) {
    let enough = some(kinds);
    let server = RedisServer::start();
    // Without scripts there is one request at a time.
    let (lanes, sequences) = match scripts {
        true => (32, enough / 29),
        false => (8, enough / 7),
    };
    let engines = [
        connect(&server, scripts).await,
        connect(&server, scripts).await,
    ];
    let contest = Contest {
        engines,
        clock: Clock::Wall,
        kinds,
        enough,
        lanes,
        sequences,
        patient: false,
    };
    let begun = Instant::now();
    let mut seen = contest.play_on_redis(&server, Lane::run).await;
    let least = contest.least();
    // On a busy machine the sequences with a rare reply may be among those that took too long to count.
    let has_gaps = |seen: &Outcome| {
        let gaps = seen.coverage.gaps(EVERYTHING, kinds, least).len();
        gaps + seen.together.gaps(TRAVELLERS, kinds, least).len() > 0
    };
    while has_gaps(&seen) && begun.elapsed() < LONGEST {
        seen.add(contest.play_on_redis(&server, Lane::run).await);
    }
    seen.coverage
        .assert_everything_was_seen_of(EVERYTHING, kinds, least);
    seen.together
        .assert_everything_was_seen_of(TRAVELLERS, kinds, least);
    let calls = server.commandstats("evalsha") + server.commandstats("eval");
    if !scripts {
        // The script of the test itself is sent by its text, with `EVAL`.
        return assert_eq!(server.commandstats("evalsha"), 0);
    }
    let (may_travel, others) = (seen.may_travel, seen.others);
    eprintln!("{may_travel} requests that may travel, {others} others: {calls} calls");
    // A request outside a batch is a call of its own; some kinds of lock have no batches.
    let alone = matches!(
        kinds.main(),
        Kind::Fair | Kind::Read | Kind::Semaphore | Kind::Counting | Kind::Latch
    );
    assert!(
        alone || calls < others + may_travel / 2,
        "they travel alone"
    );
    contest.leave_redis(&server).await;
}

/// Plays sequences of one lock each against a file.
pub(crate) async fn against_a_file(kinds: Kinds) {
    let sequences = some(kinds) * 6 / 5;
    let (seen, least) = play_in_a_file(kinds, sequences, Lane::run).await;
    seen.coverage
        .assert_everything_was_seen_of(EVERYTHING, kinds, least);
}

async fn play_in_a_file<P, R>(kinds: Kinds, sequences: usize, run: fn(Lane) -> R) -> (Outcome, u64)
where
    P: PlayedSequence,
    R: Future<Output = P> + Send + 'static,
{
    let clock = Clock::set();
    let clock_of_file = {
        let clock = clock.clone();
        boot::BootClock::new(move || clock.now())
    };
    let folder = tempfile::tempdir().expect("there is room");
    let file = folder.path().join("locks.db");
    let open = async |client| -> Arc<dyn Engine> {
        let settings = sqlite::SqliteSettings {
            path: file.clone(),
            prefix: "".into(),
            client: ClientId::new([client; 16]),
            release_on: ReleaseOn::Process,
            connect_timeout: Duration::from_secs(30),
            busy_timeout: Duration::from_secs(30),
            clock: clock_of_file.clone(),
            events: Events::inline(),
        };
        let engine = Sqlite::connect(settings, &Handle::current()).await;
        let engine: Arc<dyn Engine> = engine.expect("the file can be used");
        engine
    };
    let contest = Contest {
        engines: [open(101).await, open(102).await],
        clock,
        kinds,
        enough: some(kinds),
        // Lanes would share the clock, which each of them advances.
        lanes: 1,
        sequences,
        patient: true,
    };
    let look =
        async |_| Keyspace::of_file(&file, contest.engines[0].clone(), contest.clock.now()).await;
    let seen = contest.play(run, look).await;
    let least = contest.least();
    drop(contest);
    eventually(
        Duration::from_secs(10),
        "every listener has left",
        async || Keyspace::listeners(&file) == 0,
    )
    .await;
    (seen, least)
}

/// Returns the number of sequences, enough for each reply to be seen. A separate command plays more, with
/// `DISTLOCK_SEQUENCES=10000`.
fn some(kinds: Kinds) -> usize {
    let some = match kinds {
        Kinds::Only(_) => 300,
        Kinds::Any(_) => 600,
    };
    std::env::var("DISTLOCK_SEQUENCES").map_or(some, |enough| {
        enough.parse().expect("a number of sequences")
    })
}

/// Returns how many times longer this many sequences may take than the usual number.
fn scale(enough: usize) -> u32 {
    u32::try_from(enough / 600).expect("a few") + 1
}

impl Contest {
    async fn play_on_redis<P, R>(&self, server: &RedisServer, run: fn(Lane) -> R) -> Outcome
    where
        P: PlayedSequence,
        R: Future<Output = P> + Send + 'static,
    {
        let look = async |begun| {
            let keys = Keyspace::of_redis(server, self.engines[0].clone(), begun).await;
            server.flushall();
            keys
        };
        self.play(run, look).await
    }

    async fn leave_redis(self, server: &RedisServer) {
        drop(self);
        eventually(
            Duration::from_secs(10),
            "every listener has left",
            async || server.pubsub_channels().is_empty(),
        )
        .await;
    }

    /// Plays the sequences, and panics if anything differs.
    async fn play<P, R>(
        &self,
        run: fn(Lane) -> R,
        look: impl AsyncFn(Moment) -> Keyspace,
    ) -> Outcome
    where
        P: PlayedSequence,
        R: Future<Output = P> + Send + 'static,
    {
        let begun = Instant::now();
        let mut rng = SeededRng::from_env_or(0x6d6f_6465_6c00_0001);
        let mut seen = Outcome::default();
        let lanes = usize::try_from(self.lanes).expect("a few");
        let mut most = self.sequences;
        for round in 0.. {
            let round_begun = self.clock.now();
            // Play only as many as are missing, and some to spare.
            let missing = self.enough - seen.sequences;
            let sequences = most.min(missing.div_ceil(lanes) * 3 + 5);
            let mut running = JoinSet::new();
            for lane in 0..self.lanes {
                let lane = Lane {
                    name: format!("lane-{round}-{lane}-"),
                    seed: rng.next_u64(),
                    sequences,
                    kinds: self.kinds,
                    // Spread over a tick, so that the lanes do not all begin at the same instant.
                    phase: TICK * lane / self.lanes,
                    patient: self.patient,
                    engines: self.engines.clone(),
                    clock: self.clock.clone(),
                };
                running.spawn(run(lane));
            }
            let ended = running.join_all().await;
            let sent = self.clock.now();
            let keys = look(round_begun).await;
            let latency = self.clock.now().since(sent);
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
            let is_late = begun.elapsed() >= LONGEST * scale(self.enough);
            if seen.sequences >= self.enough || !seen.divergences.is_empty() || is_late {
                break;
            }
            // On a busy machine fewer requests at a time are answered soon enough to count.
            let counted = seen.sequences - (self.enough - missing);
            if counted * 3 < sequences * lanes {
                most = (most / 2).max(FEWEST);
            }
        }
        eprintln!("{}", seen.coverage);

        let found = seen.divergences.len();
        if let Some(shortest) = seen.divergences.iter().min_by_key(|found| found.length()) {
            panic!("{found} sequences diverge, this the soonest:\n{shortest}");
        }
        assert!(
            seen.sequences >= self.enough,
            "only {} of {} sequences counted: this machine is too busy",
            seen.sequences,
            self.enough
        );
        seen
    }

    /// Returns how often the rarest reply must have come: a quarter of its average.
    fn least(&self) -> u64 {
        let share = match self.kinds {
            Kinds::Only(_) => 200,
            // Each kind has fewer owners there.
            Kinds::Any(_) => 800,
        };
        u64::try_from(self.enough / share).expect("a few")
    }
}

async fn connect(server: &RedisServer, scripts: bool) -> Arc<dyn Engine> {
    let address = Address {
        endpoint: Endpoint::Unix(server.socket_path()),
        ..Address::default()
    };
    let settings = redis::RedisSettings {
        prefix: "".into(),
        connect_timeout: Duration::from_secs(10),
        command_timeout: Duration::from_secs(30),
        scripts,
        lazy_connect: false,
        durability: redis::DurabilityPolicy::default(),
        cluster_node: None,
        events: Events::inline(),
        network: Default::default(),
    };
    Redis::connect(address, settings, &Handle::current())
        .await
        .expect("the server is up")
}
