//! The urls to copy in `docs/connecting.md`: each is accepted, and leads where the page says.

use std::path::Path;

use distlock::{Client, Error, TlsProblem};

use crate::support::RedisServer;
use crate::tls::stage::{Stage, connect, problem, text, use_it};

const PAGE: &str = include_str!("../../docs/connecting.md");

const USER: [&str; 8] = [
    "ACL", "SETUSER", "app", "on", ">s3cr/et", "~*", "&*", "+@all",
];

/// Returns the lines that stand alone in a code block and are urls of one of these schemes.
pub(crate) fn lines(schemes: &[&str]) -> Vec<&'static str> {
    let blocks = PAGE.split("```text\n").skip(1);
    let blocks = blocks.filter_map(|block| block.split("```").next());
    let lines = blocks.flat_map(str::lines);
    let of = |line: &&str| schemes.iter().any(|scheme| line.starts_with(scheme));
    lines.filter(of).collect()
}

#[test]
fn every_documented_line_has_a_tested_scheme() {
    let all = lines(&[""]);
    // Urls with sentinels are tested in `watched.rs`, and in `tests/sentinel`; those of clusters in `clusters.rs`; users in
    // `tests/bad_input` and, at sentinels, in `tests/sentinel`.
    let tried = lines(&[
        "redis://",
        "redis+unix:",
        "rediss://",
        "redis-sentinel://",
        "redis-cluster://",
        "ACL SETUSER app on ",
        "ACL SETUSER reader on ",
    ]);
    assert_eq!(all, tried, "one that nobody tries");
    assert!(tried.len() >= 9, "{tried:#?}");
}

#[tokio::test]
async fn the_documented_lines_for_an_unencrypted_server_work() {
    for line in lines(&["redis://", "redis+unix:"]) {
        // A url with a password alone is for the default user.
        let password = line.contains("://:");
        let server = match password {
            true => RedisServer::start_with(&["--requirepass", "s3cr/et"]),
            false => RedisServer::start(),
        };
        if line.contains("app") {
            server.cmd(&USER);
            server.cmd(&["ACL", "SETUSER", "default", "-@all", "+ping"]);
        }
        let url = line
            .replace("127.0.0.1:6379", &server.addr().to_string())
            .replace("/run/redis/redis.sock", &text(&server.socket_path()));
        assert_ne!(url, line);
        use_it(&connect(&url).await).await;
    }
}

#[tokio::test]
async fn the_documented_lines_for_an_encrypted_server_work() {
    for line in lines(&["rediss://"]) {
        let stage = match line.contains("cert=") {
            true => Stage::asking(),
            false => Stage::new(),
        };
        stage.server.cmd(&USER);
        if line.contains("app") {
            stage
                .server
                .cmd(&["ACL", "SETUSER", "default", "-@all", "+ping"]);
        }
        let files = stage.client_files("client");
        let here = format!("localhost:{}", stage.server.port());
        let file = |path: &Path| text(path);
        let url = line
            .replace("redis.internal:6380", &here)
            .replace("redis.example.com:6380", &here)
            .replace("/etc/redis/ca.pem", &file(&stage.ca))
            .replace("/etc/redis/client.pem", &file(&files.certificate))
            .replace("/etc/redis/client.key", &file(&files.key));
        assert_ne!(url, line);
        if line.contains("ca=") {
            use_it(&connect(&url).await).await;
            continue;
        }
        // The test cannot know which authorities this machine trusts, only that they are used. (The command's tests include a machine that
        // trusts the authority.)
        match Client::connect(&url).await.unwrap_err() {
            error @ Error::Tls { .. } => {
                assert_eq!(problem(&error), TlsProblem::UnknownAuthority);
            }
            Error::InvalidUrl { reason, .. } => assert!(reason.contains("no trusted authorities")),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn every_tls_problem_is_documented() {
    use TlsProblem::{
        BadCertificate, ClientRefused, Expired, NoAgreement, UnknownAuthority, WrongHost,
    };
    for problem in [
        BadCertificate,
        ClientRefused,
        Expired,
        NoAgreement,
        UnknownAuthority,
        WrongHost,
    ] {
        assert!(PAGE.contains(&format!("| `{problem:?}` |")), "{problem:?}");
    }
}
