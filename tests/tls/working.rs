//! Everything that works without TLS also works with it.

use std::time::Duration;

use distlock::{Change, Client, Error, Lease, Severity};
use tokio::time::timeout;

use crate::support::{PATIENCE, eventually};
use crate::tls::certificates::{Authority, HERE, Pair};
use crate::tls::stage::{Stage, connect, text, use_it};

/// Long enough for a machine that stands still for a second or two.
const SHORT: Duration = Duration::from_secs(6);

#[tokio::test]
async fn a_lock_is_acquired_renewed_and_released() {
    let stage = Stage::new();
    let (ours, theirs) = (stage.client().await, stage.client().await);
    let lock = ours.lock("stock").with_lease(Lease::KeepAlive(SHORT));
    let guard = lock.acquire().await.unwrap();
    assert!(theirs.lock("stock").try_acquire().await.unwrap().is_none());
    let first = guard.valid_until();
    eventually(PATIENCE, "it is renewed", async || {
        guard.valid_until() > first + SHORT
    })
    .await;
    assert!(theirs.lock("stock").try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    assert!(theirs.lock("stock").try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn a_waiter_is_notified_of_a_release() {
    let stage = Stage::new();
    let (ours, theirs) = (stage.client().await, stage.client().await);
    let guard = ours.lock("stock").acquire().await.unwrap();
    let waiter = tokio::spawn(async move { theirs.lock("stock").acquire().await });
    eventually(PATIENCE, "somebody listens", async || {
        !stage.server.pubsub_channels().is_empty()
    })
    .await;
    // Only a notified waiter sends a request: there was no other reason meanwhile, nor will there be for seconds.
    guard.release().await.unwrap();
    let got = timeout(PATIENCE, waiter).await.unwrap().unwrap().unwrap();
    assert!(got.is_held());
    let messages = stage.server.commandstats("publish");
    assert!(messages > 0, "nobody was told");
}

#[tokio::test]
async fn a_watch_receives_events() {
    let stage = Stage::new();
    let (ours, theirs) = (stage.client().await, stage.client().await);
    let guard = ours.lock("stock").acquire().await.unwrap();
    let mut watch = theirs.admin().watch("stock");
    let mut next = async || {
        let event = timeout(PATIENCE, watch.next()).await.expect("in time");
        event.expect("no trouble").change
    };
    assert_eq!(next().await, Change::Held);
    let patterns: u64 = stage.server.query(&["PUBSUB", "NUMPAT"]);
    assert!(patterns > 0, "it does not listen");
    guard.release().await.unwrap();
    assert_eq!(next().await, Change::Released);
}

#[tokio::test]
async fn a_restarted_server_is_connected_to_again() {
    let stage = Stage::new();
    let client = stage.client().await;
    let held = client.lock("before").acquire().await.unwrap();
    stage.server.restart();
    let lost = timeout(PATIENCE * 2, held.lost()).await.expect("told");
    assert!(lost.is_some(), "it has forgotten everything");
    eventually(PATIENCE, "a lock is had again", async || {
        matches!(client.lock("after").try_acquire().await, Ok(Some(_)))
    })
    .await;
    // Subscriptions work, too.
    let other = stage.client().await;
    let guard = other.lock("stock").acquire().await.unwrap();
    let waiter = tokio::spawn(async move { client.lock("stock").acquire().await });
    eventually(PATIENCE, "somebody listens", async || {
        !stage.server.pubsub_channels().is_empty()
    })
    .await;
    guard.release().await.unwrap();
    let _guard = timeout(PATIENCE, waiter).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_waiter_survives_a_restart() {
    let stage = Stage::new();
    let (ours, theirs) = (stage.client().await, stage.client().await);
    let _guard = ours.lock("stock").acquire().await.unwrap();
    let waiter = tokio::spawn(async move { theirs.lock("stock").acquire().await });
    eventually(PATIENCE, "somebody listens", async || {
        !stage.server.pubsub_channels().is_empty()
    })
    .await;
    stage.server.restart();
    let got = timeout(PATIENCE, waiter).await.unwrap().unwrap();
    let _guard = got.expect("an outage is no reason to give up");
}

#[tokio::test]
async fn a_user_with_a_password_is_let_in_and_others_are_not() {
    let stage = Stage::new();
    let user = ["ACL", "SETUSER", "app", "on", ">hu/sh", "~*", "&*", "+@all"];
    stage.server.cmd(&user);
    stage.server.cmd(&["ACL", "SETUSER", "default", "off"]);
    // The fixture connects as the default user, which is not allowed any more.
    let client = connect(&stage.url("app:hu%2Fsh@")).await;
    use_it(&client).await;
    for who in ["", "app:wrong@", "app@"] {
        let error = Client::connect(&stage.url(who)).await.unwrap_err();
        let denied = matches!(error, Error::PermissionDenied { .. });
        assert!(denied, "{who}: {error:?}");
    }
}

#[tokio::test]
async fn every_name_in_the_certificate_works_also_addresses() {
    let stage = Stage::with(&["--tls-auth-clients", "no", "--bind", "127.0.0.1", "::1"]);
    for host in ["localhost", "LOCALHOST", "127.0.0.1", "[::1]"] {
        let client = connect(&stage.url_at(host)).await;
        use_it(&client).await;
    }
}

#[tokio::test]
async fn a_server_that_requires_a_client_certificate_receives_it() {
    let stage = Stage::asking();
    let files = stage.client_files("client");
    let (cert, key) = (text(&files.certificate), text(&files.key));
    let by_file = connect(&format!("{}&cert={cert}&key={key}", stage.url(""))).await;
    let mine = stage.authority.sign(&[]);
    let by_bytes = Client::builder(&format!("rediss://localhost:{}/", stage.server.port()))
        .tls_ca(&stage.authority.pem)
        .tls_identity(&mine.certificate, &mine.key)
        .connect()
        .await
        .unwrap();
    let guard = by_file.lock("stock").acquire().await.unwrap();
    assert!(
        by_bytes
            .lock("stock")
            .try_acquire()
            .await
            .unwrap()
            .is_none()
    );
    guard.release().await.unwrap();
}

#[tokio::test]
async fn an_unrequested_client_certificate_is_harmless() {
    for auth in ["no", "optional"] {
        let stage = Stage::with(&["--tls-auth-clients", auth]);
        let files = stage.client_files("client");
        let (cert, key) = (text(&files.certificate), text(&files.key));
        connect(&format!("{}&cert={cert}&key={key}", stage.url(""))).await;
        // And if a client certificate is optional, it may be missing.
        use_it(&stage.client().await).await;
    }
}

#[tokio::test]
async fn older_tls_works_too() {
    let stage = Stage::with(&["--tls-auth-clients", "yes", "--tls-protocols", "TLSv1.2"]);
    let files = stage.client_files("client");
    let (cert, key) = (text(&files.certificate), text(&files.key));
    let client = connect(&format!("{}&cert={cert}&key={key}", stage.url(""))).await;
    use_it(&client).await;
}

#[tokio::test]
async fn one_of_several_authorities_is_enough() {
    let stage = Stage::new();
    let another = Authority::new("another");
    let both = format!("{}{}", another.pem, stage.authority.pem);
    let url = format!("rediss://localhost:{}/", stage.server.port());
    let client = Client::builder(&url).tls_ca(both).connect().await.unwrap();
    use_it(&client).await;
}

#[tokio::test]
async fn a_configured_self_signed_certificate_is_trusted() {
    let itself = Pair::self_signed(&HERE, false);
    let pem = itself.certificate.clone();
    let stage = Stage::showing(|_| itself, &["--tls-auth-clients", "no"]);
    let url = format!("rediss://localhost:{}/", stage.server.port());
    let client = Client::builder(&url).tls_ca(pem).connect().await.unwrap();
    use_it(&client).await;
}

#[tokio::test]
async fn a_diagnosis_reports_an_encrypted_connection() {
    let stage = Stage::new();
    let findings = stage.client().await.admin().examine().await.unwrap();
    let finding = findings
        .iter()
        .find(|finding| finding.subject == "encryption");
    let finding = finding.expect("it was looked at");
    assert_eq!(finding.severity, Severity::Ok);
    assert!(finding.found.contains("TLS"), "{}", finding.found);
}

#[test]
fn the_blocking_api_works_too() {
    let stage = Stage::new();
    let client = distlock::blocking::Client::connect(&stage.url("")).unwrap();
    client.lock("stock").acquire().unwrap().release().unwrap();
    client.close().unwrap();
}
