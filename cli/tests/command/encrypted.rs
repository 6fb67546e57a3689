//! Tests of a server that speaks TLS.

use std::fs;
use std::path::Path;

use crate::certificates::{Authority, HERE};
use crate::stage::{distlock, object, ran};
use crate::support::RedisServer;

#[test]
fn a_command_trusts_only_the_configured_authorities() {
    let folder = tempfile::tempdir().expect("there is room");
    let authority = Authority::new("the authority");
    let ca = folder.path().join("ca.pem");
    fs::write(&ca, &authority.pem).expect("the folder is ours");
    let files = authority.sign(&HERE).write(folder.path(), "server");
    let paths = [&files.certificate, &files.key, &ca].map(|path| path.display().to_string());
    let [certificate, key, ca] = &paths;
    let server = RedisServer::start_tls(&[
        "--tls-cert-file",
        certificate,
        "--tls-key-file",
        key,
        "--tls-ca-cert-file",
        ca,
        "--tls-auth-clients",
        "no",
    ]);
    let bare = format!("rediss://localhost:{}/", server.port());
    let named = format!("{bare}?ca={ca}");

    let doctor = ran(distlock(&["doctor", "--json", "--url", &named]));
    assert_eq!(doctor.code, 0, "{doctor:?}");
    let mut findings = doctor.out.lines().map(object);
    let encryption = findings.find(|finding| finding["what"] == "encryption");
    assert_eq!(encryption.expect("it is looked at")["verdict"], "ok");

    let run = ran(distlock(&["run", "--url", &named, "stock", "--", "true"]));
    assert_eq!(run.code, 0, "{run:?}");

    // Without `ca`, the system's certificates decide.
    let trusting = |ca: &Path| {
        let mut command = distlock(&["run", "--url", &bare, "stock", "--", "true"]);
        command.env("SSL_CERT_FILE", ca).env_remove("SSL_CERT_DIR");
        ran(command)
    };
    let run = trusting(Path::new(ca));
    assert_eq!(run.code, 0, "{run:?}");
    let another = folder.path().join("another.pem");
    fs::write(&another, Authority::new("another").pem).expect("the folder is ours");
    let run = trusting(&another);
    assert_eq!(run.code, 69, "{run:?}");
    assert!(
        run.err.contains("signed by an unknown authority"),
        "{run:?}"
    );
}
