//! The operations beyond locks themselves, for a user with exactly these rights.

use std::time::Duration;

use tokio::time::Instant;

use distlock::{ClientBuilder, Diagnostic, Durability, Error, Lease, Severity};

use super::PATIENCE;
use super::stage::{Broken, limit};
use super::support::rights::user;
use super::support::{RedisServer, builder};

type Round = Result<(), Broken>;

/// Builds a client of a user with these rules, whose names have the prefix of the page.
fn restricted_client(server: &RedisServer, rules: &[&str], parameters: &str) -> ClientBuilder {
    let rules = [&["resetkeys", "resetchannels", "-@all"], rules].concat();
    let builder = builder(&(user(server, &rules) + parameters)).key_prefix("app:");
    builder.command_timeout(PATIENCE).connect_timeout(PATIENCE)
}

pub(crate) async fn other_database(server: &RedisServer, rules: &[&str]) -> Round {
    let client = restricted_client(server, rules, "1").connect().await?;
    client.lock("stock").acquire().await?.release().await?;
    Ok(())
}

pub(crate) async fn listed(server: &RedisServer, rules: &[&str]) -> Round {
    let client = restricted_client(server, rules, "").connect().await?;
    let held = [client.lock("stock").acquire().await?];
    let simple = client.simple_lock("prices").acquire().await?;
    let semaphore = client.semaphore("permits");
    semaphore.set_total(300).await?;
    let many = semaphore.permits(300).acquire().await?;
    let readers = "redis.call('HSET', 'app:shared', 'mode', 'read')
        for i = 1, 300 do
          local owner = '0e8be4d2-4b6c-4f0a-9d41-2f5b7a6c1d3e:' .. i
          redis.call('HSET', 'app:shared', owner, 1)
          redis.call('PEXPIRE', 'app:shared', 300000)
          redis.call('SET', '{app:shared}:' .. owner .. ':rwlock_timeout:1', 1, 'PX', 300000)
        end";
    server.cmd(&["EVAL", readers, "0"]);
    let listed = client.admin().list("*").await?;
    drop((held, simple, many));
    match listed.len() {
        4 => {}
        _ => return Err(Broken::Seen("all locks are listed")),
    }
    Ok(())
}

/// Watches the events of plain and of read/write locks.
pub(crate) async fn watched(server: &RedisServer, rules: &[&str]) -> Round {
    let client = restricted_client(server, rules, "").connect().await?;
    let held = client.lock("stock").acquire().await?;
    let mut watch = client.admin().watch("*");
    let seen = tokio::time::timeout(PATIENCE, watch.next()).await;
    seen.map_err(|_| Broken::Seen("it looks"))??;
    held.release().await?;
    match server.query::<usize>(&["PUBSUB", "NUMPAT"]) {
        2 => Ok(()),
        _ => Err(Broken::Seen("it hears of all")),
    }
}

pub(crate) async fn connected(server: &RedisServer, rules: &[&str]) -> Round {
    let client = restricted_client(server, rules, "").connect().await?;
    client.lock("stock").acquire().await?.release().await?;
    Ok(())
}

pub(crate) async fn durable(server: &RedisServer, rules: &[&str]) -> Round {
    let replica = RedisServer::start();
    let lag = Duration::from_millis(20);
    replica.simulated().follow(server.simulated(), lag);
    let durability = Durability::Replicas {
        acks: 1,
        timeout: Duration::from_secs(1),
    };
    let client = restricted_client(server, rules, "").durability(durability);
    let lock = client.connect().await?.lock("stock");
    let begun = Instant::now();
    loop {
        match lock.try_acquire().await {
            // The replica may not be connected yet, and the last grant may not be undone yet.
            Ok(None) | Err(Error::NotReplicated { .. }) if begun.elapsed() < limit() => {}
            Ok(None) | Err(Error::NotReplicated { .. }) => {
                return Err(Broken::Seen("its replica has it"));
            }
            Err(error) => return Err(error.into()),
            Ok(Some(granted)) => return Ok(granted.release().await?),
        }
    }
}

pub(crate) async fn delayed(server: &RedisServer, rules: &[&str]) -> Round {
    let delay = Duration::from_secs(3);
    let builder = restricted_client(server, rules, "").failover_delay(delay);
    let client = builder
        .default_lease(Lease::KeepAlive(delay))
        .connect()
        .await?;
    let granted = tokio::time::timeout(PATIENCE, client.lock("stock").acquire()).await;
    let granted = granted.map_err(|_| Broken::Seen("it is up for long enough"))?;
    match granted {
        Err(Error::Storage { .. }) => Err(Broken::Seen("the server says which it is")),
        granted => Ok(granted?.release().await?),
    }
}

pub(crate) async fn examined(server: &RedisServer, rules: &[&str]) -> Round {
    let client = restricted_client(server, rules, "").connect().await?;
    let findings = client.admin().examine_with_probe().await?;
    let ours = [
        "version", "role", "eviction", "locking", "messages", "labels", "listing", "clock",
    ];
    let fine = |what: &&str| {
        let mut all = findings.iter();
        // The simulated server's clock is years away from the machine's.
        let is_fine = |finding: &&Diagnostic| match *what {
            "clock" => finding.found.contains("behind the server's"),
            _ => finding.severity == Severity::Ok,
        };
        all.any(|finding| finding.subject == **what && is_fine(&finding))
    };
    match ours.iter().all(fine) {
        true => Ok(()),
        false => Err(Broken::Seen("all is well")),
    }
}
