//! A process whose tasks stand in line, each for one turn.

use std::fs::OpenOptions;
use std::io::Write;
use std::time::Duration;

use distlock::{Client, Error};
use redis::aio::MultiplexedConnection;
use tokio::task::JoinSet;

use super::support::process::{orders, runtime, say, url};
use super::support::{SeededRng, patient_connection};
use super::{NAME, connect};

/// Stands in line with as many tasks as it is told, and more each time it is told again.
pub(crate) const STAND: &str = "stand in line";
/// Then it waits for their turns.
pub(crate) const ENOUGH: &str = "enough";

/// So many come; every fifth has little patience, if that is wanted.
pub(crate) fn come(tasks: usize, seed: u64, impatient: bool) -> String {
    format!("{tasks} {seed} {}", u8::from(impatient))
}

pub(crate) fn run(role: &str) {
    assert_eq!(role, STAND);
    let orders = orders();
    runtime().block_on(async {
        let (client, log) = (connect(&url()).await, Log::open(&url()).await);
        say("ready");
        let mut standing = JoinSet::new();
        for order in orders.iter().take_while(|order| order != ENOUGH) {
            let order = order.split(' ').map(|n| n.parse().expect("a number"));
            let order: Vec<u64> = order.collect();
            let [tasks, seed, impatient] = order[..] else {
                panic!("no such order: {order:?}");
            };
            let mut dice = SeededRng::new(seed);
            for number in 0..tasks {
                let hasty = impatient == 1 && number % 5 == 0;
                // Long enough to have come at all.
                let patience = hasty.then(|| Duration::from_millis(3_000 + dice.below(4_500)));
                standing.spawn(turn(client.clone(), log.clone(), patience));
            }
        }
        let turns = standing.join_all().await;
        let granted = turns.iter().filter(|granted| **granted).count();
        client.close().await.expect("the store answers");
        say(&format!("done {granted} {}", turns.len() - granted));
    });
}

/// One turn; says whether it came in time.
async fn turn(client: Client, log: Log, patience: Option<Duration>) -> bool {
    let lock = client.fair_lock(NAME);
    let guard = match patience {
        Some(patience) => lock.acquire_timeout(patience).await,
        None => lock.acquire().await.map(Some),
    };
    let guard = match guard {
        // Its time was over just while it asked.
        Err(Error::Timeout { .. }) if patience.is_some() => None,
        guard => guard.expect("the store answers"),
    };
    let Some(guard) = guard else { return false };
    log.note(&guard.owner()).await;
    guard.release().await.expect("it is ours");
    true
}

/// Where everybody who has the lock says so.
#[derive(Clone)]
enum Log {
    File(String),
    Server(MultiplexedConnection),
}

impl Log {
    async fn open(url: &str) -> Self {
        if let Some(file) = url.strip_prefix("sqlite:") {
            return Self::File(format!("{file}.log"));
        }
        Self::Server(patient_connection(url).await)
    }

    async fn note(&self, owner: &str) {
        match self {
            Self::File(path) => {
                let file = OpenOptions::new().create(true).append(true).open(path);
                let line = format!("{owner}\n");
                file.and_then(|mut file| file.write_all(line.as_bytes()))
                    .expect("there is room");
            }
            Self::Server(connection) => {
                let mut note = redis::cmd("EVAL");
                note.arg(NOTE).arg(1).arg(LOG).arg(owner);
                let noted = note.exec_async(&mut connection.clone()).await;
                noted.expect("the server is up");
            }
        }
    }
}

pub(crate) const LOG: &str = "log";
const NOTE: &str = "
local time = redis.call('TIME')
redis.call('RPUSH', KEYS[1], ARGV[1] .. ' ' .. time[1] * 1000 + math.floor(time[2] / 1000))";
