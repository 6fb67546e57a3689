//! A server that speaks TLS, and the clients that may connect to it.

use std::path::PathBuf;
use std::time::Duration;

use distlock::{Client, Error, TlsProblem};
use tempfile::TempDir;

use crate::support::{PATIENCE, RedisServer, eventually};
use crate::tls::certificates::{Authority, Files, HERE, Pair};

/// A server with a certificate, the authority that both sides trust, and a folder for files.
pub(crate) struct Stage {
    pub(crate) server: RedisServer,
    pub(crate) authority: Authority,
    pub(crate) ca: PathBuf,
    pub(crate) folder: TempDir,
}

impl Stage {
    /// Starts a server that requires no client certificate.
    pub(crate) fn new() -> Self {
        Self::with(&["--tls-auth-clients", "no"])
    }

    /// Starts a server that requires a client certificate of the authority.
    pub(crate) fn asking() -> Self {
        Self::with(&["--tls-auth-clients", "yes"])
    }

    pub(crate) fn with(args: &[&str]) -> Self {
        Self::showing(|authority| authority.sign(&HERE), args)
    }

    /// Starts a server that shows this certificate.
    pub(crate) fn showing(pair: impl FnOnce(&Authority) -> Pair, args: &[&str]) -> Self {
        let folder = TempDir::with_prefix("distlock-tls-").expect("there is room");
        let authority = Authority::new("the authority");
        let ca = folder.path().join("ca.pem");
        std::fs::write(&ca, &authority.pem).expect("the folder is ours");
        let files = pair(&authority).write(folder.path(), "server");
        let (certificate, key) = (text(&files.certificate), text(&files.key));
        let mut all = vec!["--tls-cert-file", &*certificate, "--tls-key-file", &*key];
        let trusted = text(&ca);
        all.extend(["--tls-ca-cert-file", &*trusted]);
        all.extend(args);
        Self {
            server: RedisServer::start_tls(&all),
            authority,
            ca,
            folder,
        }
    }

    /// Changes the certificate that the server shows to new connections.
    pub(crate) fn show(&self, pair: &Pair) {
        let files = pair.write(self.folder.path(), "another");
        let (certificate, key) = (text(&files.certificate), text(&files.key));
        self.server.cmd(&[
            "CONFIG",
            "SET",
            "tls-cert-file",
            &certificate,
            "tls-key-file",
            &key,
        ]);
    }

    /// Makes a certificate for a client, in files.
    pub(crate) fn client_files(&self, name: &str) -> Files {
        self.authority.sign(&[]).write(self.folder.path(), name)
    }

    /// Returns the url, with these credentials in front of the host and the authority's file after it.
    pub(crate) fn url(&self, who: &str) -> String {
        self.url_at(&format!("{who}localhost"))
    }

    pub(crate) fn url_at(&self, host: &str) -> String {
        let (port, ca) = (self.server.port(), self.ca.display());
        format!("rediss://{host}:{port}/?ca={ca}")
    }

    pub(crate) async fn client(&self) -> Client {
        connect(&self.url("")).await
    }

    /// Ends every connection but the fixture's own, which is made for each call.
    pub(crate) fn hang_up(&self) {
        self.server.kill_pubsub_clients();
        self.server.kill_normal_clients();
    }
}

pub(crate) async fn connect(url: &str) -> Client {
    let connected = Client::builder(url).connect_timeout(LONG).connect().await;
    connected.unwrap_or_else(|error| panic!("{url}: {error}"))
}

/// Returns the problem with the connection, after a check of the error's wording.
pub(crate) fn problem(error: &Error) -> TlsProblem {
    let Error::Tls {
        problem, detail, ..
    } = error
    else {
        panic!("not about TLS: {error:?}");
    };
    assert!(!error.is_transient(), "{error}");
    assert!(error.to_string().contains(detail), "{error}");
    assert!(!detail.ends_with('.'), "{detail}");
    *problem
}

/// Acquires a lock and releases it.
pub(crate) async fn use_it(client: &Client) {
    let guard = client.lock("use").acquire().await.expect("it works");
    guard.release().await.expect("it works");
}

/// Returns the error of a client that has lost its connections when it makes others.
pub(crate) async fn told(client: &Client) -> Error {
    let mut told = None;
    eventually(PATIENCE, "it makes another connection", async || {
        let asked = client.lock("asked").try_acquire().await;
        told = asked.err().filter(|error| !error.is_transient());
        told.is_some()
    })
    .await;
    told.expect("there was one")
}

/// Returns the error of connecting to this url, and checks that it contains no secret.
pub(crate) async fn refused(url: &str) -> Error {
    let connected = Client::builder(url).connect_timeout(LONG).connect().await;
    let Err(error) = connected else {
        panic!("connected to {url}");
    };
    let told = format!("{error} {error:?}");
    assert!(!told.contains("hush"), "{told}");
    assert!(!told.contains("MIGHAg"), "a key: {told}");
    error
}

/// Returns the path as [`text`], for a url.
pub(crate) fn text(path: &std::path::Path) -> String {
    path.display().to_string()
}

/// Upper bound for connecting on a busy machine.
const LONG: Duration = Duration::from_secs(120);
