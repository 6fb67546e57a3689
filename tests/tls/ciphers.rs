//! The choice of the cryptography provider: the application's if it has chosen one, and no application is made to choose.

use std::env;
use std::process::Command;
use std::sync::Arc;

use distlock::{Client, TlsProblem};
use rustls::crypto::{CryptoProvider, ring};

use crate::tls::stage::{Stage, problem, use_it};

/// The environment variable with the url that the application below connects to.
const URL: &str = "DISTLOCK_TEST_TLS_URL";

#[tokio::test]
async fn no_crypto_provider_is_installed_for_the_application() {
    let stage = Stage::new();
    use_it(&stage.client().await).await;
    assert!(CryptoProvider::get_default().is_none());
}

#[tokio::test]
async fn an_application_s_own_ciphers_are_used() {
    if let Ok(url) = env::var(URL) {
        return an_application(&url).await;
    }
    let stage = Stage::with(&[
        "--tls-auth-clients",
        "no",
        "--tls-ciphersuites",
        "TLS_AES_128_GCM_SHA256",
        "--tls-protocols",
        "TLSv1.3",
    ]);
    stage.client().await;
    // The choice holds for a whole process: it must not affect the other tests of this one.
    let program = env::current_exe().unwrap();
    let ran = Command::new(program)
        .args([
            "--exact",
            "tls::ciphers::an_application_s_own_ciphers_are_used",
        ])
        .env(URL, stage.url(""))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.contains("1 passed"), "{said}");
}

/// Runs an application that has chosen a provider without the ciphers of this server.
async fn an_application(url: &str) {
    let only = CryptoProvider {
        cipher_suites: vec![ring::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256],
        ..ring::default_provider()
    };
    only.install_default().expect("it is the first to choose");
    let error = Client::connect(url).await.unwrap_err();
    assert_eq!(problem(&error), TlsProblem::NoAgreement);
    let chosen: &Arc<CryptoProvider> = CryptoProvider::get_default().unwrap();
    assert_eq!(chosen.cipher_suites.len(), 1);
}
