//! Certificates in files are renewed while programs run.

use std::fs;

use distlock::TlsProblem;

use crate::support::{PATIENCE, eventually};
use crate::tls::certificates::{Authority, HERE};
use crate::tls::stage::{Stage, connect, problem, text, told};

#[tokio::test]
async fn a_client_certificate_that_is_renewed_in_its_file_is_used_for_the_next_connection() {
    let stage = Stage::asking();
    let files = stage.client_files("client");
    let (cert, key) = (text(&files.certificate), text(&files.key));
    let client = connect(&format!("{}&cert={cert}&key={key}", stage.url(""))).await;
    // The server trusts another authority from now on, and has closed its connections.
    let another = Authority::new("another");
    let trusted = stage.folder.path().join("another.pem");
    fs::write(&trusted, &another.pem).unwrap();
    stage.server.config_set("tls-ca-cert-file", &text(&trusted));
    stage.hang_up();
    assert_eq!(problem(&told(&client).await), TlsProblem::ClientRefused);

    another.sign(&[]).write(stage.folder.path(), "client");
    eventually(PATIENCE, "the new one is used", async || {
        matches!(client.lock("stock").try_acquire().await, Ok(Some(_)))
    })
    .await;
}

#[tokio::test]
async fn an_authority_that_is_replaced_in_its_file_is_used_for_the_next_connection() {
    let stage = Stage::new();
    let client = stage.client().await;
    let another = Authority::new("another");
    stage.show(&another.sign(&HERE));
    stage.hang_up();
    assert_eq!(problem(&told(&client).await), TlsProblem::UnknownAuthority);
    fs::write(&stage.ca, &another.pem).unwrap();
    eventually(PATIENCE, "the new one is trusted", async || {
        matches!(client.lock("stock").try_acquire().await, Ok(Some(_)))
    })
    .await;
}

#[tokio::test]
async fn a_missing_or_half_written_file_does_not_stop_the_client() {
    let stage = Stage::asking();
    let files = stage.client_files("client");
    let (cert, key) = (text(&files.certificate), text(&files.key));
    let client = connect(&format!("{}&cert={cert}&key={key}", stage.url(""))).await;
    for spoil in [
        &|| fs::write(&files.key, "-----BEGIN PRIVATE").unwrap(),
        &|| fs::remove_file(&files.certificate).unwrap() as _,
    ] as [&dyn Fn(); 2]
    {
        spoil();
        stage.hang_up();
        eventually(PATIENCE, "it goes on with what it had", async || {
            client.lock("stock").try_acquire().await.is_ok()
        })
        .await;
    }
}
