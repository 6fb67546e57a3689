//! A semaphore whose number was deleted while permits are in use: by an eviction, or because the number had a time to live.

use distlock::{Client, Lease};

use super::semaphore::{available, raw, scores};
use super::support::{ChaosProxy, Fault, Match, RedisServer, Script, eventually};
use super::{LEASE, PATIENCE, connect};

#[tokio::test]
async fn a_deleted_total_is_set_to_the_permits_not_in_use() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    let semaphore = client.semaphore("exports").with_permits(2);
    let held = semaphore.permit().acquire().await.unwrap();
    server.cmd(&["DEL", "exports"]);
    let other = semaphore.permit().acquire().await.unwrap();
    assert!(semaphore.permit().try_acquire().await.unwrap().is_none());
    held.release().await.unwrap();
    other.release().await.unwrap();
    assert_eq!(available(&server, "exports"), 2);
}

#[tokio::test]
async fn setting_a_total_again_subtracts_the_permits_in_use() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    let semaphore = client.semaphore("exports");
    semaphore.set_total(2).await.unwrap();
    let held = semaphore.permits(2).acquire().await.unwrap();
    server.cmd(&["DEL", "exports"]);
    assert!(semaphore.try_set(2).await.unwrap());
    let more = semaphore.permit().try_acquire().await.unwrap();
    assert!(more.is_none(), "two of two are out");
    held.release().await.unwrap();
    assert_eq!(available(&server, "exports"), 2);
}

/// Whichever way a permit is returned: it does not show the total.
#[tokio::test]
async fn a_deleted_total_is_not_created_again_by_released_permits() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    let semaphore = client.semaphore("exports").with_permits(5);
    for way in ["released", "by its id", "late", "dropped"] {
        let permit = semaphore.permit().with_lease(Lease::Fixed(LEASE));
        let held = permit.acquire().await.unwrap();
        server.cmd(&["DEL", "exports"]);
        let count = semaphore.count().await.unwrap();
        assert_eq!((count.available, count.out), (0, 1), "{way}");
        match way {
            "released" => held.release().await.unwrap(),
            "by its id" => assert!(semaphore.release(held.permit_ids()[0]).await.unwrap()),
            "late" => {
                let [(id, _)] = <[_; 1]>::try_from(scores(&server, "{exports}:timeout")).unwrap();
                let mut past = redis::cmd("ZADD");
                raw(
                    &server,
                    past.arg("{exports}:timeout")
                        .arg(1_000_000_000_000_u64)
                        .arg(id),
                );
            }
            _ => drop(held),
        }
        eventually(PATIENCE, &format!("{way}: nothing is out"), async || {
            semaphore.count().await.unwrap().out == 0
        })
        .await;
        let number: Option<i64> = server.query(&["GET", "exports"]);
        assert_eq!(number, None, "{way}");
        let all = semaphore.permits(5).try_acquire().await.unwrap();
        all.expect("there are five").release().await.unwrap();
    }
}

#[tokio::test]
async fn permits_without_their_number_are_forgotten_with_the_semaphore() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    let semaphore = client.semaphore("exports").with_permits(2);
    semaphore.permit().acquire().await.unwrap().forget();
    server.cmd(&["DEL", "exports"]);
    assert!(semaphore.delete().await.unwrap());
    assert!(!semaphore.delete().await.unwrap(), "nothing is left");
}

#[tokio::test]
async fn an_acquire_undone_without_its_total_leaves_no_permit_in_use() {
    let server = RedisServer::start();
    let proxy = ChaosProxy::start(server.addr());
    let client = Client::connect(&proxy.url()).await.unwrap();
    let semaphore = client.semaphore("exports").with_permits(5);
    let permit = semaphore.permit().with_lease(Lease::Fixed(LEASE));
    Script::load_all(&server);
    let acquires = Match::words(|words| Script::Acquire.runs(words));
    proxy.rule(acquires.nth(1), Fault::HoldReply);
    let taken = tokio::spawn(permit.acquire());
    let out = || scores(&server, "{exports}:timeout").len();
    eventually(PATIENCE, "it is granted", async || out() == 1).await;
    server.cmd(&["DEL", "exports"]);
    // The outcome of the request is then unknown.
    taken.abort();
    proxy.cut_all();
    eventually(PATIENCE, "it is taken back", async || out() == 0).await;
    let number: Option<i64> = server.query(&["GET", "exports"]);
    assert_eq!(number, None);
}
