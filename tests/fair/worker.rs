//! A worker process whose tasks queue for the lock, each for one hold.

use std::fs::OpenOptions;
use std::io::Write;

use distlock::Client;
use redis::aio::MultiplexedConnection;
use tokio::task::JoinHandle;

use super::support::patient_connection;
use super::support::process::{orders, runtime, say, url};
use super::{NAME, connect};

/// Starts the given number of waiting tasks, and more each time the order is repeated.
pub(crate) const STAND: &str = "stand in line";
/// Then it waits until each of them has held the lock.
pub(crate) const ENOUGH: &str = "enough";

/// Then the last fifth of the tasks gives up.
pub(crate) const GIVE_UP: &str = "give up";

pub(crate) fn run(role: &str) {
    assert_eq!(role, STAND);
    let orders = orders();
    runtime().block_on(async {
        let (client, log) = (connect(&url()).await, Log::open(&url()).await);
        say(&format!("ready {}", id_of(&client).await));
        let mut standing: Vec<JoinHandle<()>> = Vec::new();
        for order in orders.iter().take_while(|order| order != ENOUGH) {
            if order == GIVE_UP {
                for waiter in standing.split_off(standing.len() - standing.len() / 5) {
                    waiter.abort();
                }
                continue;
            }
            let tasks: usize = order.parse().expect("a number");
            standing.extend((0..tasks).map(|_| tokio::spawn(turn(client.clone(), log.clone()))));
        }
        let turns = standing.len();
        for turn in standing {
            turn.await.expect("no panic");
        }
        client.close().await.expect("the store answers");
        say(&format!("done {turns}"));
    });
}

/// Returns the client id, the part of its owner ids before the colon.
async fn id_of(client: &Client) -> String {
    let lock = client.lock(&*format!("process {}", std::process::id()));
    let guard = lock.acquire().await.expect("the store answers");
    let owner = guard.owner();
    guard.release().await.expect("it is ours");
    let (id, _) = owner.split_once(':').expect("a client and a number");
    id.to_owned()
}

async fn turn(client: Client, log: Log) {
    let guard = client.fair_lock(NAME).acquire().await;
    let guard = guard.expect("the store answers");
    log.note(&guard.owner()).await;
    guard.release().await.expect("it is ours");
}

/// The log in which every holder records its grant.
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
                let mut note = redis::cmd("RPUSH");
                note.arg(LOG).arg(owner);
                let noted = note.exec_async(&mut connection.clone()).await;
                noted.expect("the server is up");
            }
        }
    }
}

pub(crate) const LOG: &str = "log";
