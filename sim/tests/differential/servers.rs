//! The two servers, and a pair of connections to both.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use distlock_sim::Server;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use crate::killed_on_exit::{killed_on_exit, program};
use crate::replies::Reply;

/// A real server that ends when this is dropped, and that no other machine can reach.
pub(crate) struct Real {
    child: Child,
    folder: TempDir,
}

impl Real {
    pub(crate) fn start() -> Self {
        Self::start_by(&["--port", "0", "--save", "", "--appendonly", "no"], None)
    }

    /// Starts a sentinel with this configuration.
    pub(crate) fn start_sentinel(port: u16, configuration: &str) -> Self {
        let port = port.to_string();
        Self::start_by(&["--sentinel", "--port", &port], Some(configuration))
    }

    pub(crate) fn start_by(arguments: &[&str], configuration: Option<&str>) -> Self {
        let folder = tempfile::tempdir().expect("there is room for a folder");
        let mut command = killed_on_exit(&program());
        if let Some(configuration) = configuration {
            let file = folder.path().join("configuration");
            std::fs::write(&file, configuration).expect("there is room for a file");
            command.arg(file);
        }
        let child = command
            .args(arguments)
            .args(["--bind", "127.0.0.1"])
            .arg("--unixsocket")
            .arg(folder.path().join("socket"))
            .arg("--dir")
            .arg(folder.path())
            .stdout(Stdio::null())
            .spawn()
            .expect("`redis-server` is installed");
        Self { child, folder }
    }

    /// Returns the version that the server reports, such as `7.0.15`.
    pub(crate) fn version(&self) -> String {
        let mut connection = self.connect();
        let asked = connection.write_all(b"INFO server\r\n");
        asked.expect("it listens");
        let mut said = String::new();
        while !said.contains("os:") {
            let mut some = [0; 1024];
            let count = connection.read(&mut some).expect("it answers");
            assert_ne!(count, 0, "{said}");
            said += &String::from_utf8_lossy(&some[..count]);
        }
        let version = said
            .lines()
            .find_map(|line| line.strip_prefix("redis_version:"));
        version.expect("it says it").to_owned()
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// Connects, as soon as the server has started.
    fn connect(&self) -> UnixStream {
        let begun = Instant::now();
        loop {
            match UnixStream::connect(self.path()) {
                Ok(stream) => {
                    let limit = stream.set_read_timeout(Some(Duration::from_secs(60)));
                    limit.expect("it is more than nothing");
                    return stream;
                }
                Err(error) => assert!(begun.elapsed() < Duration::from_secs(60), "{error}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A connection to each of the servers, which receive the same requests.
pub(crate) struct Pair {
    real: UnixStream,
    real_bytes: Vec<u8>,
    simulated: DuplexStream,
    simulated_bytes: Vec<u8>,
}

impl Pair {
    pub(crate) fn connect(real: &Real, simulated: &Server) -> Self {
        let (near, far) = tokio::io::duplex(1 << 22);
        let server = simulated.clone();
        tokio::spawn(async move { server.serve(far).await });
        Self {
            real: real.connect(),
            real_bytes: Vec::new(),
            simulated: near,
            simulated_bytes: Vec::new(),
        }
    }

    /// Sends a request to both, and returns the reply of the real server, and of the simulated one.
    pub(crate) async fn ask(&mut self, request: &[Vec<u8>]) -> (Reply, Reply) {
        self.send(request).await;
        (self.real_reply(), self.simulated_reply().await)
    }

    pub(crate) async fn ask_words(&mut self, words: &str) -> (Reply, Reply) {
        let request: Vec<Vec<u8>> = words.split(' ').map(Vec::from).collect();
        self.ask(&request).await
    }

    pub(crate) async fn send(&mut self, request: &[Vec<u8>]) {
        let mut bytes = format!("*{}\r\n", request.len()).into_bytes();
        for word in request {
            bytes.extend(format!("${}\r\n", word.len()).bytes());
            bytes.extend(word);
            bytes.extend(b"\r\n");
        }
        self.real.write_all(&bytes).expect("the server reads");
        let written = self.simulated.write_all(&bytes).await;
        written.expect("the simulated server reads");
    }

    pub(crate) fn real_reply(&mut self) -> Reply {
        loop {
            if let Some(reply) = Reply::take(&mut self.real_bytes) {
                return reply;
            }
            let mut part = [0; 65536];
            let length = self.real.read(&mut part).expect("the server answers");
            assert_ne!(length, 0, "the server has closed the connection");
            self.real_bytes.extend(&part[..length]);
        }
    }

    pub(crate) async fn simulated_reply(&mut self) -> Reply {
        loop {
            if let Some(reply) = Reply::take(&mut self.simulated_bytes) {
                return reply;
            }
            let mut part = [0; 65536];
            let length = self.simulated.read(&mut part).await;
            let length = length.expect("the simulated server answers");
            assert_ne!(length, 0, "the simulated server has closed the connection");
            self.simulated_bytes.extend(&part[..length]);
        }
    }
}
