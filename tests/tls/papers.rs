//! Certificates and keys that cannot be used.

use std::fs;
use std::path::Path;

use distlock::{Client, Error};

use crate::tls::certificates::{Authority, Pair};
use crate::tls::stage::{refused, text};

/// No server is there: the error is found before any connection is made.
const NOBODY: &str = "rediss://app:hush@localhost:1/";

/// Writes an authority's file, and a client's certificate and key.
fn prepared(folder: &Path) -> (String, String, String) {
    let authority = Authority::new("the authority");
    let ca = folder.join("ca.pem");
    fs::write(&ca, &authority.pem).unwrap();
    let files = authority.sign(&[]).write(folder, "client");
    (text(&ca), text(&files.certificate), text(&files.key))
}

/// Returns the reason of the error, which names the file.
async fn reason(parameters: &str, file: &Path) -> String {
    let error = refused(&format!("{NOBODY}?{parameters}")).await;
    assert!(!error.is_transient(), "{error}");
    let Error::InvalidUrl { url, reason } = error else {
        panic!("{error:?}");
    };
    assert_eq!(url, "rediss://***@localhost:1/?***");
    assert!(reason.contains(&*text(file)), "{reason}");
    reason
}

#[tokio::test]
async fn a_missing_or_unreadable_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (ca, cert, key) = prepared(folder.path());
    let none = folder.path().join("none.pem");
    let nothing = text(&none);
    for parameters in [
        format!("ca={nothing}"),
        format!("ca={ca}&cert={nothing}&key={key}"),
        format!("ca={ca}&cert={cert}&key={nothing}"),
    ] {
        let reason = reason(&parameters, &none).await;
        assert!(reason.contains("cannot be read: No such file"), "{reason}");
    }
    let reason = reason(&format!("ca={}", text(folder.path())), folder.path()).await;
    assert!(
        reason.contains("cannot be read: Is a directory"),
        "{reason}"
    );
}

#[tokio::test]
async fn a_file_with_something_else_in_it_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (ca, cert, key) = prepared(folder.path());
    let other = folder.path().join("other.pem");
    let path = text(&other);
    let damaged = "-----BEGIN CERTIFICATE-----\nhush hush hush\n-----END CERTIFICATE-----\n";
    let no_certificate = "-----BEGIN CERTIFICATE-----\naHVzaA==\n-----END CERTIFICATE-----\n";
    let encrypted =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\naHVzaA==\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let bad_key = "-----BEGIN PRIVATE KEY-----\naHVzaA==\n-----END PRIVATE KEY-----\n";
    let authority = format!("ca={path}");
    let certificate = format!("ca={ca}&cert={path}&key={key}");
    let private = format!("ca={ca}&cert={cert}&key={path}");
    for (content, parameters, why) in [
        ("", &authority, "no certificate in PEM format"),
        ("hush", &authority, "no certificate in PEM format"),
        (damaged, &authority, "damaged"),
        (no_certificate, &authority, "damaged"),
        ("hush", &certificate, "no certificate in PEM format"),
        (damaged, &certificate, "damaged"),
        (no_certificate, &certificate, "damaged"),
        (VERSION_1, &certificate, "the certificate has version 1"),
        ("hush", &private, "no private key in PEM format"),
        (encrypted, &private, "the key is encrypted"),
        (
            bad_key,
            &private,
            "the key is damaged, or its type is not supported",
        ),
    ] {
        fs::write(&other, content).unwrap();
        let reason = reason(parameters, &other).await;
        assert!(reason.contains(why), "`{why}` is not in {reason}");
        assert!(!reason.contains("aHVzaA"), "{reason}");
    }
}

#[tokio::test]
async fn a_key_of_another_certificate_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (ca, cert, _) = prepared(folder.path());
    let another = Pair::self_signed(&[], false).write(folder.path(), "another");
    let parameters = format!("ca={ca}&cert={cert}&key={}", text(&another.key));
    let reason = reason(&parameters, &another.key).await;
    assert!(
        reason.contains("belongs to another certificate"),
        "{reason}"
    );
}

#[tokio::test]
async fn a_key_in_the_address_itself_is_not_shown() {
    let pair = Pair::self_signed(&[], false);
    let lines: String = pair.key.replace('\n', "%0A").replace('+', "%2B");
    for key in [lines, pair.key.replace('\n', "")] {
        let error = refused(&format!("{NOBODY}?cert=/c.pem&key={key}")).await;
        let told = format!("{error} {error:?}");
        let secret = pair.key.lines().nth(1).unwrap();
        assert!(!told.contains(&secret[..10]), "{told}");
        assert!(told.contains("`key` must be the path of a file"), "{told}");
    }
}

#[tokio::test]
async fn certificates_of_a_builder_are_checked_as_well() {
    let authority = Authority::new("the authority");
    let (mine, another) = (authority.sign(&[]), authority.sign(&[]));
    let builder = || Client::builder(NOBODY).tls_ca(&authority.pem);
    for (builder, option, why) in [
        (
            Client::builder(NOBODY).tls_ca("hush"),
            "tls_ca",
            "no certificate",
        ),
        (
            builder().tls_identity("hush", &mine.key),
            "tls_identity",
            "no certificate",
        ),
        (
            builder().tls_identity(&mine.certificate, "hush"),
            "tls_identity",
            "no private key",
        ),
        (
            builder().tls_identity(&mine.certificate, &another.key),
            "tls_identity",
            "another certificate",
        ),
    ] {
        let told = format!("{builder:?}");
        assert!(
            !told.contains("hush") && !told.contains("PRIVATE"),
            "{told}"
        );
        let error = builder.connect().await.unwrap_err();
        let told = format!("{error} {error:?}");
        assert!(!told.contains("hush") && !told.contains("MIGHAg"), "{told}");
        assert!(told.contains(why), "`{why}` is not in {told}");
        let Error::InvalidOption { option: found, .. } = error else {
            panic!("{error:?}");
        };
        assert_eq!(found, option);
    }
}

#[tokio::test]
async fn certificates_for_an_unencrypted_address_are_rejected() {
    let pair = Pair::self_signed(&[], false);
    for url in [
        "redis://localhost:1/",
        "redis+unix:///s",
        "memory:",
        "sqlite:/s.db",
    ] {
        let ca = Client::builder(url).tls_ca(&pair.certificate);
        let identity = Client::builder(url).tls_identity(&pair.certificate, &pair.key);
        for (builder, name) in [(ca, "tls_ca"), (identity, "tls_identity")] {
            let error = builder.connect().await.unwrap_err();
            let Error::InvalidOption { option, reason, .. } = error else {
                panic!("{url}: {error:?}");
            };
            assert_eq!(option, name);
            assert!(reason.contains("rediss://"), "{reason}");
        }
    }
}

#[tokio::test]
async fn an_option_set_twice_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let (ca, cert, key) = prepared(folder.path());
    let url = format!("{NOBODY}?ca={ca}&cert={cert}&key={key}");
    let ca = Client::builder(&url).tls_ca("another");
    let identity = Client::builder(&url).tls_identity("another", "key");
    for builder in [ca, identity] {
        let error = builder.connect().await.unwrap_err();
        let twice = matches!(error, Error::InvalidOption { .. });
        assert!(twice && error.to_string().contains("as well"), "{error:?}");
    }
}

/// `openssl x509 -req` makes such certificates by default; other tools no longer do.
const VERSION_1: &str = "\
-----BEGIN CERTIFICATE-----\n\
MIIBFzCBvwIUB35IacMHMOADnAP2Tr0VaaENbMEwCgYIKoZIzj0EAwIwDjEMMAoG\n\
A1UEAwwDb2xkMCAXDTI2MTExNzE5MjUwOVoYDzIxMjYxMDI0MTkyNTA5WjAOMQww\n\
CgYDVQQDDANvbGQwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAQZLp65AhhLIScH\n\
s/lamV4egfw8pb6Ora5FuzfTXRC58IK14FVM7RfHq3QBEa22CkPnnM0FQPYUNnW5\n\
JyWRcJxPMAoGCCqGSM49BAMCA0cAMEQCIGuX7+lQuJSdxIyQiXB0CieRlGJxJyLf\n\
Mj9KUr4yMICOAiB6ETTt4GTyvj+Pzm556tc4+K1CGJwEUSD0odkyQEws0w==\n\
-----END CERTIFICATE-----\n";
