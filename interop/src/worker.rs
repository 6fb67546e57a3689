//! Our half of the hammer: tasks that add one to a counter under a lock, by reading and then writing it, and log when they held it. The
//! other half does the same.

mod counting;
pub(crate) mod permits;
mod quorum_lock;
mod read_write;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use distlock::{Client, Fenced, Guard, Lease, Lock};
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, AsyncConnectionConfig};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::checker::Grant;
use crate::clock::Stamp;
use crate::failure::{Failure, Outcome, ensure, granted};
use crate::library::Shared;
use crate::quorum;
use crate::support::SeededRng;

/// The work order of a worker.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    /// The urls for our half, with `scripts=off` if it has to work without: of one server, or of all. The counters are on the first.
    pub(crate) urls: Vec<String>,
    pub(crate) shared: Shared,
    pub(crate) names: Vec<String>,
    pub(crate) tasks: u64,
    pub(crate) time: Duration,
    /// The longest time for which permits are kept.
    pub(crate) moment: Duration,
    pub(crate) manner: LockMode,
    pub(crate) who: String,
    pub(crate) seed: u64,
    pub(crate) log: PathBuf,
}

/// How the tasks lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LockMode {
    /// All tasks alike, and as fast as they can: no other workload keeps other clients out more than such a crowd.
    Alike,
    /// All the ways there are, spread over the tasks.
    Mixed,
    /// No locks, to show that the locks are needed.
    Unlocked,
}

impl LockMode {
    const ALL: [Self; 3] = [Self::Alike, Self::Mixed, Self::Unlocked];

    const fn word(self) -> &'static str {
        match self {
            Self::Alike => "alike",
            Self::Mixed => "mixed",
            Self::Unlocked => "unlocked",
        }
    }
}

/// The result of a worker.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Tally {
    pub(crate) grants: u64,
    /// Waits that timed out before the lock was free.
    pub(crate) refused: u64,
}

impl Work {
    /// Returns the tally in the format that both halves use.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "urls": self.urls, "shared": self.shared.word(), "names": self.names, "threads": self.tasks,
            "millis": millis(self.time), "moment": millis(self.moment),
            "manner": self.manner.word(), "who": self.who, "seed": self.seed, "log": self.log,
        })
    }

    pub(crate) fn from_json(text: &str) -> Outcome<Self> {
        let value: Value = serde_json::from_str(text)?;
        let wrong = || Failure::new(format!("not a worker's order: {text}"));
        let word = |field: &str| value[field].as_str().ok_or_else(wrong);
        let number = |field: &str| value[field].as_u64().ok_or_else(wrong);
        let words = |field: &str| -> Outcome<Vec<String>> {
            let words = value[field].as_array().ok_or_else(wrong)?.iter();
            words
                .map(|word| word.as_str().map(str::to_owned).ok_or_else(wrong))
                .collect()
        };
        Ok(Self {
            urls: words("urls")?,
            shared: Shared::named(word("shared")?)?,
            names: words("names")?,
            tasks: number("threads")?,
            time: Duration::from_millis(number("millis")?),
            moment: Duration::from_millis(number("moment")?),
            manner: {
                let manner = word("manner")?;
                let mut all = LockMode::ALL.into_iter();
                all.find(|one| one.word() == manner).ok_or_else(wrong)?
            },
            who: word("who")?.into(),
            seed: number("seed")?,
            log: word("log")?.into(),
        })
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Tally {
    pub(crate) fn to_json(self) -> Value {
        json!({"grants": self.grants, "refused": self.refused})
    }

    pub(crate) fn from_json(value: &Value) -> Outcome<Self> {
        let number = |field: &str| {
            let number = value[field].as_u64();
            number.ok_or_else(|| Failure::new(format!("not a tally: {value}")))
        };
        Ok(Self {
            grants: number("grants")?,
            refused: number("refused")?,
        })
    }
}

/// Works until time is up or `stop` is set, then writes the log.
pub(crate) async fn work(work: Work, stop: Arc<AtomicBool>) -> Outcome<Tally> {
    let clients = quorum::clients(work.urls.clone()).await?;
    let [client, ..] = &*clients else {
        return Err(Failure::new("there is no server to work with"));
    };
    // The crate's own half second is short on a busy machine, and a counter has no second try.
    let patient = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE));
    let address = work.urls[0].split('?').next().unwrap_or_default();
    let counters = redis::Client::open(address)?
        .get_multiplexed_async_connection_with_config(&patient)
        .await?;
    let end = Stamp::now() + work.time;
    let refused = Arc::new(AtomicU64::new(0));
    let work = Arc::new(work);
    let mut tasks = JoinSet::new();
    for number in 0..work.tasks {
        let task = Task {
            number,
            work: work.clone(),
            client: client.clone(),
            clients: clients.clone(),
            counters: counters.clone(),
            refused: refused.clone(),
        };
        let stop = stop.clone();
        tasks.spawn(task.run(move || stop.load(Ordering::Relaxed) || Stamp::now() >= end));
    }
    let mut lines = String::new();
    let mut grants = 0;
    while let Some(done) = tasks.join_next().await {
        for grant in done?? {
            lines += &grant.line();
            lines.push('\n');
            grants += 1;
        }
    }
    fs::write(&work.log, lines)?;
    for client in &clients {
        client.close().await?;
    }
    Ok(Tally {
        grants,
        refused: refused.load(Ordering::Relaxed),
    })
}

struct Task {
    number: u64,
    work: Arc<Work>,
    client: Client,
    /// One client for each server.
    clients: Vec<Client>,
    counters: MultiplexedConnection,
    refused: Arc<AtomicU64>,
}

impl Task {
    async fn run(mut self, is_over: impl Fn() -> bool + Send) -> Outcome<Vec<Grant>> {
        let mut random = SeededRng::new(self.work.seed + self.number);
        let mut grants = Vec::new();
        while !is_over() {
            let name = random.pick(&self.work.names).clone();
            let held: Vec<Grant> = match self.work.shared {
                Shared::Counting => self.counted(name, &mut random).await?,
                Shared::Fair => {
                    let lock = self.client.fair_lock(&*name);
                    let turn = self.turn(lock, |_| None, name, &mut random);
                    turn.await?.into_iter().collect()
                }
                Shared::Fenced => {
                    let lock = self.client.fenced_lock(&*name);
                    let token = |guard: &Guard<Fenced>| Some(guard.token().number());
                    let turn = self.turn(lock, token, name, &mut random);
                    turn.await?.into_iter().collect()
                }
                Shared::Latch | Shared::Multi => {
                    return Err(Failure::new("nobody hammers on latches or several locks"));
                }
                Shared::Plain => {
                    let lock = self.client.lock(&*name);
                    let turn = self.turn(lock, |_| None, name, &mut random);
                    turn.await?.into_iter().collect()
                }
                Shared::Quorum | Shared::SimpleQuorum => {
                    let turn = self.on_most(name, &mut random);
                    turn.await?.into_iter().collect()
                }
                Shared::ReadWrite => self.read_or_write(name, &mut random).await?,
                Shared::Semaphore => self.permits(name, &mut random).await?,
                Shared::Simple => {
                    let lock = self.client.simple_lock(&*name);
                    let turn = self.turn(lock, |_| None, name, &mut random);
                    turn.await?.into_iter().collect()
                }
            };
            if held.is_empty() {
                self.refused.fetch_add(1, Ordering::Relaxed);
            }
            grants.extend(held);
        }
        Ok(grants)
    }

    /// Plays one turn; returns its grant, or `None` if the wait timed out before the lock was free.
    async fn turn<K>(
        &mut self,
        lock: Lock<K>,
        token: fn(&Guard<K>) -> Option<u64>,
        name: String,
        random: &mut SeededRng,
    ) -> Outcome<Option<Grant>> {
        let mut guards = Vec::new();
        if self.work.manner != LockMode::Unlocked {
            guards = self.acquire(lock).await?;
            if guards.is_empty() {
                return Ok(None);
            }
        }
        let from = Stamp::now();
        let tokens: Vec<_> = guards.iter().map(token).collect();
        ensure!(
            tokens.windows(2).all(|pair| pair[0] == pair[1]),
            "a re-entry has another token: {tokens:?}"
        );
        let alike = self.work.manner == LockMode::Alike;
        self.add_one(&name, !alike && random.chance(6))
            .await
            .map_err(|failure| failure.during("the counter"))?;
        let to = Stamp::now();
        for guard in guards.into_iter().rev() {
            guard.check()?;
            // Both ways to release a lock: the other is to drop it.
            if alike || random.chance(50) {
                guard.release().await?;
            }
        }
        Ok(Some(Grant {
            who: format!("{}/{}", self.work.who, self.number),
            name,
            from,
            to,
            token: tokens.first().copied().flatten(),
        }))
    }

    /// Acquires the lock; returns no guard if the wait timed out before the lock was free.
    async fn acquire<K>(&self, lock: Lock<K>) -> Outcome<Vec<Guard<K>>> {
        if self.work.manner == LockMode::Alike {
            return Ok(vec![lock.acquire().await?]);
        }
        Ok(match self.number % 8 {
            5 => {
                let lock = lock.with_owner(&self.client.new_owner());
                vec![lock.acquire().await?, lock.acquire().await?]
            }
            6 => {
                let lock = lock.with_lease(Lease::Fixed(Duration::from_secs(10)));
                vec![lock.acquire().await?]
            }
            7 => {
                let guard = lock.acquire_timeout(Duration::from_secs(2)).await;
                granted(guard)?.into_iter().collect()
            }
            _ => vec![lock.acquire().await?],
        })
    }

    /// Returns how long to keep permits.
    fn a_moment(&self, random: &mut SeededRng) -> Duration {
        Duration::from_millis(random.below(millis(self.work.moment)))
    }

    /// Adds one in two round trips, with a pause between them now and then: a task that is not alone loses updates.
    async fn add_one(&mut self, name: &str, slowly: bool) -> Outcome {
        let key = format!("counter:{name}");
        let value: Option<u64> = self.counters.get(&key).await?;
        if slowly {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let () = self.counters.set(&key, value.unwrap_or(0) + 1).await?;
        Ok(())
    }
}

const PATIENCE: Duration = Duration::from_secs(120);

/// How long permits are kept where they are to go round.
pub(crate) const MOMENT: Duration = Duration::from_millis(4);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_round_trips() {
        let work = Work {
            urls: vec!["redis://127.0.0.1:1/".into()],
            shared: Shared::Fenced,
            names: vec!["a".into(), "b".into()],
            tasks: 8,
            time: Duration::from_secs(3),
            moment: MOMENT,
            manner: LockMode::Unlocked,
            who: "we-1".into(),
            seed: 7,
            log: "/tmp/log".into(),
        };
        let arrived = Work::from_json(&work.to_json().to_string()).expect("it is whole");
        assert_eq!(format!("{arrived:?}"), format!("{work:?}"));
        assert!(Work::from_json("{}").is_err());
        assert!(Work::from_json("x").is_err());
    }

    #[test]
    fn a_tally_round_trips() {
        let tally = Tally {
            grants: 5,
            refused: 1,
        };
        assert_eq!(Tally::from_json(&tally.to_json()).expect("whole"), tally);
        assert!(Tally::from_json(&json!({"grants": 5})).is_err());
    }
}
