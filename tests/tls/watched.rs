//! Sentinels that speak TLS, as their master does.

use distlock::{Client, Error};

use crate::support::{PATIENCE, RedisServer, eventually};
use crate::tls::certificates::{Authority, HERE};
use crate::tls::documents::lines;
use crate::tls::stage::{Stage, connect, text, use_it};

#[tokio::test]
async fn connections_to_sentinels_and_their_master_are_encrypted() {
    let stage = Stage::with(&["--tls-auth-clients", "no", "--tls-replication", "yes"]);
    let file = format!(
        "sentinel monitor mymaster 127.0.0.1 {} 1\n",
        stage.server.port()
    );
    let ca = text(&stage.ca);
    let files = stage.authority.sign(&HERE);
    let files = files.write(stage.folder.path(), "sentinel");
    let (certificate, key) = (text(&files.certificate), text(&files.key));
    let args = [
        "--sentinel",
        "--tls-auth-clients",
        "no",
        "--tls-replication",
        "yes",
        "--tls-cert-file",
        &certificate,
        "--tls-key-file",
        &key,
        "--tls-ca-cert-file",
        &ca,
    ];
    let sentinel = RedisServer::start_tls_from(&file, &args);
    eventually(PATIENCE, "the sentinel knows its master", async || {
        let info: String = sentinel.query(&["INFO", "sentinel"]);
        info.contains("status=ok")
    })
    .await;

    let lines = lines(&["redis-sentinel://"]).into_iter();
    let secret = lines.filter(|line| line.contains("tls=on"));
    for line in secret {
        let url = line
            .replace("26379", &sentinel.port().to_string())
            .replace("/etc/redis/ca.pem", &ca);
        let client = connect(&url).await;
        use_it(&client).await;
        // A client that does not request TLS gets no connection, rather than one that anyone can read.
        let open = url.split('?').next().expect("it has one");
        let refused = Client::connect(open).await.expect_err("it speaks TLS");
        assert!(matches!(refused, Error::Unavailable { .. }), "{refused:?}");
        let unasked = url.replace("tls=on&", "");
        let refused = Client::connect(&unasked)
            .await
            .expect_err("it says nothing");
        assert!(matches!(refused, Error::InvalidUrl { .. }), "{refused:?}");
        // Nor is a certificate of any other authority enough.
        let stranger = Authority::new("a stranger");
        let path = stage.folder.path().join("stranger.pem");
        std::fs::write(&path, &stranger.pem).expect("the folder is ours");
        let distrusted = url.replace(&ca, &text(&path));
        let refused = Client::connect(&distrusted)
            .await
            .expect_err("nobody knows it");
        assert!(matches!(refused, Error::Tls { .. }), "{refused:?}");
    }
}
