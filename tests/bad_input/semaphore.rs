//! The semaphore of a user without all rights, or on a server without memory.

use std::sync::Arc;
use std::time::Duration;

use distlock::{Error, Lease};
use tokio::task::JoinSet;

use super::memory_limit::{assert_out_of_memory, fill};
use super::stage::{Broken, Stage};
use super::support::{RedisServer, eventually, rights, simulated};
use super::{IN_VAIN, PATIENCE, connect};

/// Runs everything that can be done with permits, with each of the rights missing: some call reports it. With all of them, none does.
#[test]
fn each_of_the_rights_of_semaphores_is_required() {
    simulated(async || {
        let server = Arc::new(RedisServer::start());
        let mut all = JoinSet::new();
        let rules = rights::of_semaphores("needed-0");
        for number in 0..=rules.len() {
            let server = server.clone();
            all.spawn(async move {
                let name = format!("needed-{number}");
                let mut rules = rights::of_semaphores(&name);
                // The last round has all rights.
                let missing = (number < rules.len()).then(|| rules.remove(number));
                let stage = limited(&server, &name, &rules).await;
                let played = everything(&stage);
                match (tokio::time::timeout(PATIENCE, played).await, missing) {
                    (Ok(Ok(())), None) => {}
                    (Ok(Err(Broken::Told(Error::PermissionDenied { .. }))), Some(_)) => {}
                    (played, missing) => panic!("without {missing:?}: {played:?}"),
                }
            });
        }
        all.join_all().await;
    });
}

pub(crate) async fn everything(stage: &Stage<'_>) -> Result<(), Broken> {
    let (server, client) = (stage.server, &stage.client);
    let (name, key) = (&*stage.name, &*stage.key());
    let semaphore = client.semaphore(name).with_permits(3);
    let lease = Lease::KeepAlive(Duration::from_secs(6));
    // The number has a time to live at first, and later none.
    server.cmd(&["SET", key, "3", "PX", "60000"]);
    let held = semaphore.permits(2).with_lease(lease).acquire().await?;
    server.cmd(&["PERSIST", key]);
    semaphore.permit().acquire().await?.release().await?;
    // And the number has been deleted.
    server.cmd(&["DEL", key]);
    semaphore.permit().acquire().await?.release().await?;
    // The queue contains a crashed waiter.
    let (line, alive) = (
        stage.beside("distlock_line"),
        stage.beside("distlock_alive"),
    );
    server.cmd(&["RPUSH", &line, "nobody"]);
    server.cmd(&["ZADD", &alive, "1", "nobody"]);
    // And one whose entry was lost, so that the queue is searched.
    server.cmd(&["ZADD", &alive, "9000000000000", "somebody"]);
    let waiting = tokio::spawn(semaphore.permits(3).acquire());
    let channel = stage.beside("redisson_sc");
    while !waiting.is_finished() && !server.pubsub_channels().contains(&channel) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    if waiting.is_finished() {
        drop(waiting.await.expect("no panic")?);
        return Err(Broken::Seen("it waits"));
    }
    assert!(semaphore.permit().try_acquire().await?.is_none());
    assert!(client.admin().inspect(name).await?.is_some());
    // It is renewed meanwhile.
    tokio::time::sleep(Duration::from_secs(7)).await;
    held.check()?;
    held.release().await?;
    let all = waiting.await.expect("no panic")?;
    assert!(semaphore.release(all.permit_ids()[0]).await?);
    semaphore.set_total(4).await?;
    assert!(client.admin().force_release(name).await?);
    drop(all);
    let hasty = semaphore.permits(9).acquire_timeout(IN_VAIN);
    assert!(hasty.await?.is_none());
    assert_eq!(semaphore.count().await?.available, 4);
    assert!(semaphore.delete().await?);
    Ok(())
}

#[test]
fn permits_are_renewed_and_released_on_a_server_out_of_memory() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        let semaphore = client.semaphore("full").with_permits(3);
        let lease = Lease::KeepAlive(Duration::from_secs(6));
        let held = semaphore.permits(2).with_lease(lease).acquire().await;
        let held = held.expect("there are three");
        fill(&server);
        let more = semaphore.permit().try_acquire().await;
        assert_out_of_memory("full", more.map(drop).expect_err("there is no room"));
        tokio::time::sleep(Duration::from_secs(8)).await;
        held.check().expect("it was renewed");
        held.release().await.expect("it needs no memory");
        let count = semaphore.count().await.expect("to look needs none");
        assert_eq!((count.available, count.out), (3, 0));
    });
}

async fn limited<'a>(server: &'a RedisServer, name: &'a str, rules: &[String]) -> Stage<'a> {
    let lock = format!("~{name}");
    let mut all = vec![&*lock, "~distlock_undone:*"];
    all.extend(rights::commands());
    all.extend(rules.iter().map(String::as_str));
    let stage = Stage::new(server, &all, ["", name], "").await;
    stage.expect("it is let in")
}

/// The number of one semaphore is lost, and its record of clients is foreign data: the renewals in the same batch are not affected.
#[test]
fn a_foreign_value_in_the_client_record_costs_no_semaphore_its_lease() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        let mut held = Vec::new();
        for name in ["spoilt", "other"] {
            let semaphore = client.semaphore(name).with_permits(3);
            let lease = Lease::KeepAlive(Duration::from_secs(6));
            let permit = semaphore.permit().with_lease(lease).acquire().await;
            held.push(permit.expect("there are three"));
        }
        server.cmd(&["DEL", "spoilt", "distlock_clients:{spoilt}"]);
        server.cmd(&["SET", "distlock_clients:{spoilt}", "theirs"]);
        for held in &held {
            let till = held.valid_until();
            eventually(PATIENCE, "it is renewed", async || {
                held.valid_until() > till
            })
            .await;
        }
        assert_eq!(
            server.query::<String>(&["GET", "distlock_clients:{spoilt}"]),
            "theirs"
        );
    });
}
