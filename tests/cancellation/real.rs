//! Drops on several threads at once, on a real server.

#[path = "../support/mod.rs"]
mod real_support;

use distlock::{Client, Lease};

use self::real_support::RedisServer;
use super::fixture::remembers;
use super::storm::{Spot, storm};
use super::support::{Fair, Family, Plain, Player, Several, eventually};
use super::{LEASE, PATIENCE};

mod a_storm_of_timeouts_on_two_threads_leaves_everything_free {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_plain_locks() {
        blow::<Plain>("").await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_plain_locks_without_scripts() {
        blow::<Plain>("?scripts=off").await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_fair_locks() {
        blow::<Fair>("").await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_several_permits() {
        blow::<Several>("").await;
    }
}

async fn blow<F: Family>(parameters: &str) {
    let server = RedisServer::start();
    let url = format!("{}{parameters}", server.url());
    let connect = async || {
        let builder = Client::builder(&url).default_lease(Lease::KeepAlive(LEASE));
        // A machine may stand still for some seconds.
        let builder = builder.command_timeout(PATIENCE).connect_timeout(PATIENCE);
        Player::<F>::new(builder.connect().await.expect("the server runs"))
    };
    let clients = [connect().await, connect().await];
    let [ours, theirs] = &clients;
    let spots = (0..3).map(|number| Spot::new(format!("spot-{number}-")));
    let spots = storm([ours, theirs], spots.collect(), 500).await;
    for spot in spots.iter() {
        let guard = theirs
            .lock(spot.name.as_str())
            .acquire_timeout(PATIENCE)
            .await;
        let guard = guard.expect("the server runs").expect("it is free");
        guard.release().await.expect("it is theirs");
        for client in &clients {
            let what = format!("`{}` is forgotten", spot.name);
            eventually(PATIENCE, &what, async || {
                if remembers(client, &spot.name) {
                    drop(client.lock("another").acquire().await);
                }
                !remembers(client, &spot.name)
            })
            .await;
        }
    }
    eventually(PATIENCE, "nothing is left", async || {
        let keys = server.keys();
        let mut keys = keys.iter().filter(|key| key.contains("spot"));
        let stays = |key: &&String| {
            key.starts_with("distlock_undone:") || F::PERMITS > 0 && key.starts_with("spot")
        };
        keys.all(|key| stays(&key)) && server.pubsub_channels().is_empty()
    })
    .await;
}
