//! Servers that the client does not trust, and servers that do not trust the client.

use std::time::Duration;

use distlock::{Client, Error, Lease, TlsProblem};
use tokio::time::timeout;

use crate::support::{PATIENCE, RedisServer, eventually};
use crate::tls::certificates::{Authority, HERE, Pair};
use crate::tls::stage::{Stage, problem, refused, text, told};

const NO_CLIENTS: [&str; 2] = ["--tls-auth-clients", "no"];

/// Returns the error for a server that shows this certificate.
async fn refused_with(pair: impl FnOnce(&Authority) -> Pair) -> (TlsProblem, String) {
    let stage = Stage::showing(pair, &NO_CLIENTS);
    let error = refused(&stage.url("app:hush@")).await;
    let told = error.to_string();
    let server = format!("localhost:{}", stage.server.port());
    let named = told.starts_with(&format!(
        "`rediss://***@{server}/?***`: no secure connection: {server} "
    ));
    assert!(named, "{told}");
    (problem(&error), told)
}

#[tokio::test]
async fn an_expired_certificate_is_rejected() {
    let (problem, told) = refused_with(|authority| authority.sign_expired(&HERE)).await;
    assert_eq!(problem, TlsProblem::Expired);
    assert!(
        told.contains("expired") && told.contains(" days ago"),
        "{told}"
    );
}

#[tokio::test]
async fn a_certificate_that_is_not_yet_valid_is_rejected() {
    let (problem, told) = refused_with(|authority| authority.sign_too_early(&HERE)).await;
    assert_eq!(problem, TlsProblem::Expired);
    assert!(told.contains("not valid for another"), "{told}");
}

#[tokio::test]
async fn a_certificate_for_another_host_is_refused() {
    let names = ["redis.example.org", "192.0.2.1"];
    let (problem, told) = refused_with(|authority| authority.sign(&names)).await;
    assert_eq!(problem, TlsProblem::WrongHost);
    assert!(told.contains("for redis.example.org, 192.0.2.1;"), "{told}");
    assert!(told.contains("issued for `localhost`"), "{told}");
}

#[tokio::test]
async fn a_certificate_without_names_is_refused() {
    let (problem, told) = refused_with(|authority| authority.sign(&[])).await;
    assert_eq!(problem, TlsProblem::WrongHost);
    assert!(told.contains("no subjectAltName"), "{told}");
}

#[tokio::test]
async fn a_host_is_not_its_address() {
    let stage = Stage::showing(|authority| authority.sign(&["localhost"]), &NO_CLIENTS);
    stage.client().await;
    let error = refused(&stage.url_at("127.0.0.1")).await;
    assert_eq!(problem(&error), TlsProblem::WrongHost);
}

#[tokio::test]
async fn a_certificate_of_an_unknown_authority_is_refused() {
    let (problem, told) = refused_with(|_| Authority::new("a stranger").sign(&HERE)).await;
    assert_eq!(problem, TlsProblem::UnknownAuthority);
    assert!(told.contains("`?ca=FILE`"), "{told}");
}

#[tokio::test]
async fn an_authority_of_the_same_name_is_not_trusted() {
    let (problem, _) = refused_with(|_| Authority::new("the authority").sign(&HERE)).await;
    // Its signature does not fit, or the issuer is not found at all.
    let fits = matches!(
        problem,
        TlsProblem::BadCertificate | TlsProblem::UnknownAuthority
    );
    assert!(fits, "{problem:?}");
}

#[tokio::test]
async fn a_self_signed_certificate_is_rejected() {
    let (problem, told) = refused_with(|_| Pair::self_signed(&HERE, false)).await;
    assert_eq!(problem, TlsProblem::UnknownAuthority);
    assert!(told.contains("self-signed"), "{told}");
}

#[tokio::test]
async fn the_certificate_of_an_authority_itself_is_rejected_even_if_it_is_configured() {
    let itself = Pair::self_signed(&HERE, true);
    let pem = itself.certificate.clone();
    let stage = Stage::showing(|_| itself, &NO_CLIENTS);
    let url = format!("rediss://localhost:{}/", stage.server.port());
    let connected = Client::builder(&url).tls_ca(pem).connect().await;
    let error = connected.unwrap_err();
    assert_eq!(problem(&error), TlsProblem::BadCertificate);
    assert!(error.to_string().contains("openssl req -x509"), "{error}");
}

#[tokio::test]
async fn an_authority_that_the_system_does_not_trust_is_rejected() {
    let stage = Stage::new();
    let url = format!("rediss://localhost:{}/", stage.server.port());
    match refused(&url).await {
        error @ Error::Tls { .. } => assert_eq!(problem(&error), TlsProblem::UnknownAuthority),
        // The machine has no authorities.
        Error::InvalidUrl { reason, .. } => {
            assert!(reason.contains("no trusted authorities"), "{reason}")
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_server_that_requires_a_client_certificate_rejects_clients_without_one() {
    for protocols in ["TLSv1.2", "TLSv1.3"] {
        let stage = Stage::with(&["--tls-auth-clients", "yes", "--tls-protocols", protocols]);
        let error = refused(&stage.url("app:hush@")).await;
        assert_eq!(problem(&error), TlsProblem::ClientRefused, "{protocols}");
        let told = error.to_string();
        assert!(told.contains("requires a client certificate"), "{told}");
        assert!(told.contains("`?cert=FILE&key=FILE`"), "{told}");
    }
}

#[tokio::test]
async fn a_server_that_requires_a_client_certificate_rejects_unknown_ones() {
    for protocols in ["TLSv1.2", "TLSv1.3"] {
        let stage = Stage::with(&["--tls-auth-clients", "yes", "--tls-protocols", protocols]);
        let stranger = Authority::new("a stranger");
        for (what, pair) in [
            ("a stranger's", stranger.sign(&[])),
            ("one that has run out", stage.authority.sign_expired(&[])),
        ] {
            let files = pair.write(stage.folder.path(), "client");
            let (cert, key) = (text(&files.certificate), text(&files.key));
            let url = format!("{}&cert={cert}&key={key}", stage.url(""));
            let error = refused(&url).await;
            assert_eq!(
                problem(&error),
                TlsProblem::ClientRefused,
                "{what}, {protocols}"
            );
            let told = error.to_string();
            assert!(
                told.contains("does not accept the client certificate"),
                "{told}"
            );
        }
    }
}

#[tokio::test]
async fn a_port_without_tls_receives_nothing_unencrypted() {
    let server = RedisServer::start();
    let url = format!("rediss://app:hush@localhost:{}/", server.port());
    let authority = Authority::new("the authority");
    let limit = Duration::from_secs(2);
    // Whether the server sends anything depends on how it interprets the client's TLS greeting.
    for _ in 0..5 {
        let builder = Client::builder(&url).tls_ca(&authority.pem);
        let error = builder.connect_timeout(limit).connect().await.unwrap_err();
        let told = error.to_string();
        assert!(told.contains("redis://"), "the way out: {told}");
        assert!(told.contains("TLS"), "{told}");
        assert!(!format!("{told} {error:?}").contains("hush"), "{told}");
        match error {
            Error::Tls { problem, .. } => assert_eq!(problem, TlsProblem::NoAgreement),
            Error::Unavailable { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    let acl: String = server.query(&["INFO", "errorstats"]);
    assert!(!acl.contains("WRONGPASS"), "a password was sent: {acl}");
}

#[tokio::test]
async fn a_plain_connection_to_a_tls_port_gets_a_hint() {
    let stage = Stage::new();
    let url = format!("redis://app:hush@localhost:{}/", stage.server.port());
    let error = refused(&url).await;
    let told = error.to_string();
    assert!(told.contains("TLS") && told.contains("rediss://"), "{told}");
}

#[tokio::test]
async fn a_waiter_gets_an_error_when_the_certificate_expires() {
    let stage = Stage::new();
    let (ours, theirs) = (stage.client().await, stage.client().await);
    let guard = ours
        .lock("stock")
        .with_lease(Lease::Fixed(PATIENCE * 10))
        .acquire()
        .await
        .unwrap();
    let waiter = tokio::spawn(async move { theirs.lock("stock").acquire().await });
    eventually(PATIENCE, "somebody listens", async || {
        !stage.server.pubsub_channels().is_empty()
    })
    .await;
    stage.show(&stage.authority.sign_expired(&HERE));
    // Existing connections stay good: the server's identity was verified.
    let other = ours.lock("another").try_acquire().await.unwrap();
    assert!(other.is_some());
    stage.hang_up();
    let waited = timeout(PATIENCE, waiter)
        .await
        .expect("it is told")
        .unwrap();
    let error = waited.unwrap_err();
    assert_eq!(problem(&error), TlsProblem::Expired);
    assert!(error.to_string().starts_with("`stock`: "), "{error}");
    drop(guard);
}

#[tokio::test]
async fn guards_dropped_while_the_certificate_was_invalid_are_released_once_it_is_valid() {
    let stage = Stage::new();
    let client = stage.client().await;
    let lease = Lease::Fixed(PATIENCE * 10);
    let guard = client
        .lock("stock")
        .with_lease(lease)
        .acquire()
        .await
        .unwrap();
    stage.show(&stage.authority.sign_expired(&HERE));
    stage.hang_up();
    assert_eq!(problem(&told(&client).await), TlsProblem::Expired);
    drop(guard);
    // The release is attempted, and fails, as another call does.
    assert_eq!(problem(&told(&client).await), TlsProblem::Expired);
    let held = || stage.server.keys().contains(&"stock".to_owned());
    assert!(held());
    stage.show(&stage.authority.sign(&HERE));
    eventually(PATIENCE, "it is given back", async || !held()).await;
}
