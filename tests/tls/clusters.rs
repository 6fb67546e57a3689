//! A cluster whose servers speak TLS, to clients and to each other.

use distlock::{Client, Error};

use crate::support::Cluster;
use crate::tls::certificates::HERE;
use crate::tls::documents::lines;
use crate::tls::stage::{Stage, connect, text, use_it};

#[tokio::test]
async fn connections_to_all_servers_of_a_cluster_are_encrypted() {
    let stage = Stage::new();
    let files = stage.authority.sign(&HERE);
    let files = files.write(stage.folder.path(), "cluster");
    let (certificate, key, ca) = (text(&files.certificate), text(&files.key), text(&stage.ca));
    let cluster = Cluster::start_masters_tls(&[
        "--tls-auth-clients",
        "no",
        "--tls-cert-file",
        &certificate,
        "--tls-key-file",
        &key,
        "--tls-ca-cert-file",
        &ca,
    ]);
    let port = cluster.servers()[0].port().to_string();
    let lines = lines(&["redis-cluster://"]).into_iter();
    for line in lines.filter(|line| line.contains("tls=on")) {
        let url = line
            .replace("6379", &port)
            .replace("/etc/redis/ca.pem", &ca);
        let client = connect(&url).await;
        use_it(&client).await;
        for name in ["a", "b", "c"] {
            let guard = client.lock(name).acquire().await.expect("it is free");
            guard.release().await.expect("it is ours");
        }
        // A client that does not request TLS gets no connection, rather than one that anyone can read.
        let open = url.split('?').next().expect("it has one");
        let refused = Client::connect(open).await.expect_err("it speaks TLS");
        assert!(matches!(refused, Error::Unavailable { .. }), "{refused:?}");
        let unasked = url.replace("tls=on&", "");
        let refused = Client::connect(&unasked).await;
        let refused = refused.expect_err("it says nothing");
        assert!(matches!(refused, Error::InvalidUrl { .. }), "{refused:?}");
    }
}
