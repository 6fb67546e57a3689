//! Holders learn that the server has been replaced, and what the new server knows of their locks, long before the next renewal.

use std::pin::Pin;
use std::time::Duration;

use distlock::{Client, Lease, Lock, LostReason, Risk};

use super::pair::restart;
use crate::support::{
    ChaosProxy, Fair, Family, Fault, Fenced, Match, PATIENCE, Plain, Read, RedisServer, Script,
    Semaphore, Simple, Write, builder, eventually, simulated,
};

/// A third of this lease is far longer than any wait here.
const LONG: Duration = Duration::from_secs(600);
const LEASES: [Lease; 2] = [Lease::KeepAlive(LONG), Lease::Fixed(LONG)];

#[test]
fn holds_that_a_restarted_server_has_forgotten_are_lost_at_once() {
    simulated(async || {
        for lease in LEASES {
            let server = RedisServer::start();
            let client = connect(&server.url()).await;
            let held = [
                hold::<Plain>(&client, lease).await,
                hold::<Fenced>(&client, lease).await,
                hold::<Fair>(&client, lease).await,
                hold::<Simple>(&client, lease).await,
                hold::<Read>(&client, lease).await,
                hold::<Write>(&client, lease).await,
                hold::<Semaphore>(&client, lease).await,
            ];
            server.restart();
            for (kind, loss) in held {
                let lost = tokio::time::timeout(PATIENCE, loss).await;
                let lost = lost.unwrap_or_else(|_| panic!("{lease:?} of {kind}"));
                assert_eq!(lost, Some(LostReason::Removed), "{lease:?} of {kind}");
            }
        }
    });
}

#[test]
fn holds_are_at_risk_until_the_restarted_server_confirms_them() {
    simulated(async || {
        for lease in LEASES {
            let server = RedisServer::start();
            let proxy = ChaosProxy::start(server.addr());
            let client = connect(&proxy.url()).await;
            let guard = client.lock("kept").with_lease(lease).acquire().await;
            let guard = guard.expect("nobody has it");
            let until = guard.valid_until();
            let question = Match::words(|words| Script::Renew.runs(words));
            proxy.rule(question, Fault::HoldRequest);
            restart(&server);
            eventually(PATIENCE, "it is asked about", async || {
                !proxy.injected().is_empty()
            })
            .await;
            assert_eq!(guard.at_risk(), Some(Risk::Failover));
            assert!(guard.is_held(), "nobody has said that it is gone");
            proxy.clear_rules();
            proxy.deliver_held();
            eventually(PATIENCE, "it has heard", async || guard.at_risk().is_none()).await;
            assert!(guard.is_held());
            match lease {
                Lease::Fixed(_) => {
                    assert_eq!(guard.valid_until(), until, "it was only asked about")
                }
                _ => assert!(guard.valid_until() > until),
            }
            guard.release().await.expect("it is ours");
        }
    });
}

/// Another program has removed the key's expiry, or the server has lost only the expiry.
#[test]
fn a_hold_without_expiry_is_not_ended_by_verification() {
    simulated(async || {
        without_end(|client| client.lock("kept"), "").await;
        without_end(|client| client.lock("kept"), "?scripts=off").await;
        without_end(|client| client.fenced_lock("kept"), "").await;
        without_end(|client| client.simple_lock("kept"), "").await;
        without_end(|client| client.simple_lock("kept"), "?scripts=off").await;
        without_end(|client| client.rw_lock("kept").read(), "").await;
        without_end(|client| client.rw_lock("kept").write(), "").await;
    });
}

async fn without_end<K: 'static>(kept: fn(&Client) -> Lock<K>, parameters: &str) {
    for lease in LEASES {
        let server = RedisServer::start();
        let client = connect(&(server.url() + parameters)).await;
        let guard = kept(&client).with_lease(lease).acquire().await;
        let guard = guard.expect("nobody has it");
        server.cmd(&["PERSIST", "kept"]);
        restart(&server);
        eventually(PATIENCE, "it is at risk, and asked about", async || {
            server.commandstats("pttl") > 0 && guard.at_risk().is_none()
        })
        .await;
        let left = server.pttl("kept");
        let enough = left == -1 || left > 1000;
        assert!(enough, "{left} ms: {lease:?}{parameters}");
        assert!(guard.is_held());
    }
}

#[test]
fn a_broken_connection_is_no_failover() {
    simulated(async || {
        let server = RedisServer::start();
        let proxy = ChaosProxy::start(server.addr());
        let client = connect(&proxy.url()).await;
        let lock = client.lock("kept").with_lease(LEASES[0]);
        let guard = lock.acquire().await.expect("nobody has it");
        for _ in 0..3 {
            let asked = infos(&proxy);
            server.kill_normal_clients();
            // The server's identity takes two requests, over the connection that the watchdog has made again.
            eventually(PATIENCE, "it has asked who that is", async || {
                infos(&proxy) >= asked + 2
            })
            .await;
            assert_eq!(guard.at_risk(), None);
        }
        let renewals = proxy.requests();
        let renewals = renewals.iter().filter(|words| Script::Renew.runs(words));
        assert_eq!(renewals.count(), 0, "there was nothing to ask about");
        guard.release().await.expect("it is ours");
    });
}

/// The end of the connection came before the client kept it, and the client would keep it for good: no task would have met the next server
/// before the next renewal.
#[test]
fn a_connection_closed_after_the_first_replies_is_opened_again() {
    simulated(async || {
        let server = RedisServer::start();
        let proxy = ChaosProxy::start(server.addr());
        let client = connect(&proxy.url()).await;
        let lock = client.lock("kept").with_lease(LEASES[0]);
        let guard = lock.acquire().await.expect("nobody has it");
        for _ in 0..20 {
            let held = proxy.injected().len();
            let last = Match::command("INFO").arg(1, "replication");
            proxy.rule(last, Fault::HoldReply);
            server.kill_normal_clients();
            eventually(PATIENCE, "it asks who that is", async || {
                proxy.injected().len() > held
            })
            .await;
            // The end of the connection comes directly behind the replies.
            server.kill_normal_clients();
            let asked = infos(&proxy);
            proxy.clear_rules();
            proxy.deliver_held();
            eventually(PATIENCE, "it asks again", async || {
                infos(&proxy) >= asked + 2
            })
            .await;
            assert_eq!(guard.at_risk(), None);
        }
        guard.release().await.expect("it is ours");
    });
}

/// Counted permits have no lease, and no owner that could be verified. A server that does not report its identity may be another one each
/// time.
#[test]
fn counted_permits_are_not_verified() {
    simulated(async || {
        let server = RedisServer::start();
        server.cmd(&["ACL", "SETUSER", "default", "-info"]);
        for round in 0..30 {
            let client = connect(&server.url()).await;
            let slots = client.counting_semaphore("slots");
            slots.set_available(8).await.expect("nobody has one");
            // The final request of a waiter that gives up uses the watchdog's connection, which meets the server then.
            drop(tokio::time::timeout(Duration::from_millis(5), slots.acquire(9)).await);
            for _ in 0..8 {
                let taken = slots.acquire(1).await;
                taken.unwrap_or_else(|error| panic!("round {round}: {error}"));
            }
            slots.release(8).await.expect("they are out");
        }
    });
}

type Loss = Pin<Box<dyn Future<Output = Option<LostReason>> + Send>>;

/// Holds a lock of this kind until it is lost.
async fn hold<F: Family>(client: &Client, lease: Lease) -> (&'static str, Loss)
where
    F::Kind: Send + Sync,
{
    let kind = std::any::type_name::<F>();
    let lock = F::lock(client, kind.into()).with_lease(lease);
    let guard = lock.acquire().await.expect("nobody has it");
    assert!(guard.is_held());
    let loss = async move { guard.lost().await.map(|lost| lost.reason) };
    (kind, Box::pin(loss))
}

fn infos(proxy: &ChaosProxy) -> usize {
    let requests = proxy.requests();
    let asked = requests
        .iter()
        .filter(|words| words.first().is_some_and(|word| word == "INFO"));
    asked.count()
}

async fn connect(url: &str) -> Client {
    let client = builder(url).command_timeout(PATIENCE);
    let client = client.connect_timeout(PATIENCE).connect().await;
    client.expect("the server is up")
}
