//! The two clusters, and connections to both.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use distlock_sim::{Cluster, Network};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use crate::killed_on_exit::{killed_on_exit, program};
use crate::replies::Reply;
use crate::servers;

/// A real cluster and a simulated one, with the same number of nodes.
pub(crate) struct Both {
    real: Vec<Real>,
    pub(crate) simulated: Cluster,
    /// The ids of the nodes, real and simulated.
    ids: Vec<[String; 2]>,
}

/// The number of nodes: two masters, and a replica of the first.
pub(crate) const NODES: usize = 3;

impl Both {
    /// Starts both clusters; returns `None` if `redis-server` is not the simulated version.
    pub(crate) async fn start() -> Option<Self> {
        if !servers::Real::start().version().starts_with("7.0.") {
            eprintln!("not compared: the simulated cluster is one of Redis 7.0");
            return None;
        }
        let network = Network::new(1);
        let simulated = Cluster::with_slots(&network, &[0, 8192], 1, 1);
        simulated.set_lag(Duration::ZERO);
        let real: Vec<Real> = (0..NODES).map(|_| Real::start()).collect();
        let mut admin: Vec<Pair> = real
            .iter()
            .zip(simulated.servers())
            .map(|(real, simulated)| Pair::connect(real, &simulated))
            .collect();
        for (master, slots) in ["0 8191", "8192 16383"].into_iter().enumerate() {
            admin[master].order(&format!("CLUSTER ADDSLOTSRANGE {slots}"));
            admin[master].order(&format!("CLUSTER SET-CONFIG-EPOCH {}", master + 1));
        }
        for node in &mut admin[1..] {
            let Real { port, bus, .. } = &real[0];
            node.order(&format!("CLUSTER MEET 127.0.0.1 {port} {bus}"));
        }
        let mut ids = Vec::new();
        for pair in &mut admin {
            let (one, two) = pair.ask(&["CLUSTER", "MYID"]).await;
            ids.push([one.text(), two.text()]);
        }
        let replicate = format!("CLUSTER REPLICATE {}", ids[0][0]);
        until("the replica knows its master", || {
            admin[2].ask_real(&replicate) == Reply::Line(b'+', b"OK".to_vec())
        });
        // A replica is listed once it has received anything.
        until("the first is writable", || {
            admin[0].ask_real("SET {b} 1") == Reply::Line(b'+', b"OK".to_vec())
        });
        until("the nodes agree", || {
            admin.iter_mut().all(|node| {
                let is_ok = node.ask_real("CLUSTER INFO").text().contains("state:ok");
                let slots = node.ask_real("CLUSTER SLOTS");
                let nodes = node.ask_real("CLUSTER NODES").text();
                // A message to a node that is not connected yet is lost.
                let is_linked = nodes.matches(" connected").count() == NODES;
                let is_known = slots.items().len() == 2 && slots.items()[0].items().len() == 4;
                is_ok && is_linked && is_known && !nodes.contains("handshake")
            })
        });
        Some(Self {
            real,
            simulated,
            ids,
        })
    }

    pub(crate) fn connect(&self, node: usize) -> Pair {
        let mut pair = Pair::connect(&self.real[node], self.simulated.server(node));
        pair.names = self.names();
        pair
    }

    /// Returns the names that differ between the two sides, each with a common one.
    fn names(&self) -> Vec<[String; 3]> {
        let mut names = Vec::new();
        for node in 0..NODES {
            let [real, simulated] = self.ids[node].clone();
            names.push([real, simulated, format!("<id-{node}>")]);
            let Real { port, bus, .. } = &self.real[node];
            let host = self.simulated.host(node);
            names.push([
                format!("127.0.0.1:{port}@{bus}"),
                format!("{host}:6379@16379"),
                format!("<bus-{node}>"),
            ]);
            names.push([
                format!("127.0.0.1:{port}"),
                format!("{host}:6379"),
                format!("<node-{node}>"),
            ]);
        }
        names
    }

    /// Moves a key as `MIGRATE` does; a real node has to be asked.
    pub(crate) fn move_key(&self, key: &str, from: usize, to: usize) {
        let mut real = Pair::connect(&self.real[from], self.simulated.server(from));
        let port = self.real[to].port;
        let said = real.ask_real(&format!("MIGRATE 127.0.0.1 {port} {key} 0 60000"));
        let moved = self.simulated.move_key(key.as_bytes(), from, to);
        let stays = said.text() == "NOKEY" || said.text().contains("BUSYKEY");
        assert!(
            stays != moved && (stays || said.text() == "OK"),
            "MIGRATE {key}: {said:?}"
        );
    }

    /// Waits until all real nodes know the same epochs and slots: before that, their replies depend on time, and a new owner may not know
    /// of an epoch that is greater than its own.
    pub(crate) fn until_agreed(&self) {
        let mut nodes: Vec<Pair> = (0..NODES).map(|node| self.connect(node)).collect();
        until("the nodes agree", || {
            let mut views = nodes.iter_mut().map(|node| {
                let text = node.ask_real("CLUSTER NODES").text();
                let lines = text.lines().map(|line| {
                    let words = line.split(' ').filter(|word| !word.starts_with('['));
                    let words: Vec<&str> = words.collect();
                    [words[0], words[6], &words[8..].join(" ")].join(" ")
                });
                let mut lines: Vec<String> = lines.collect();
                lines.sort();
                lines
            });
            let first = views.next();
            views.all(|view| Some(view) == first)
        });
    }

    /// Compares the nodes' reports of the cluster, once the real ones have told each other everything.
    pub(crate) async fn agree_at_rest(&mut self) {
        let mut last = None;
        let begun = Instant::now();
        'again: loop {
            assert!(begun.elapsed() < PATIENCE, "they never agree: {last:?}");
            std::thread::sleep(Duration::from_millis(20));
            tokio::time::sleep(Duration::from_secs(1)).await;
            for node in 0..NODES {
                let mut pair = self.connect(node);
                pair.ask(&["HELLO", "3"]).await;
                for what in ["SLOTS", "NODES", "INFO"] {
                    let (one, two) = pair.ask(&["CLUSTER", what]).await;
                    let (one, two) = (self.at_rest(&one), self.at_rest(&two));
                    if one != two {
                        last = Some((node, what, one, two));
                        continue 'again;
                    }
                }
            }
            return;
        }
    }

    /// Returns a reply about the cluster without the parts that always differ: addresses, offsets, counts of messages, the order of nodes.
    fn at_rest(&self, reply: &Reply) -> Reply {
        match reply {
            Reply::Items(kind, items) => {
                let items = items.iter().map(|item| self.at_rest(item));
                let mut items: Vec<Reply> = items.collect();
                let offset = items
                    .iter()
                    .position(|item| item.bytes() == b"replication-offset");
                if let Some(offset) = offset {
                    items[offset + 1] = Reply::Line(b':', b"any".to_vec());
                }
                let is_node = |item: &Reply| item.items().iter().any(|item| item.bytes() == b"id");
                let is_shard =
                    |item: &Reply| item.items().iter().any(|item| item.bytes() == b"nodes");
                if items.iter().all(|item| is_node(item) || is_shard(item)) {
                    items.sort();
                }
                Reply::Items(*kind, items)
            }
            Reply::Line(b':', number) => {
                let number = String::from_utf8_lossy(number).into_owned();
                let nodes = 0..NODES;
                let mut nodes = nodes.filter(|&node| self.real[node].port.to_string() == number);
                match nodes.next() {
                    Some(_) => Reply::Line(b':', b"6379".to_vec()),
                    None => reply.clone(),
                }
            }
            Reply::Bulk(kind, bytes) => {
                let text = String::from_utf8_lossy(bytes).into_owned();
                if text == "127.0.0.1" || text.starts_with("10.0.0.") {
                    return Reply::Bulk(*kind, b"<host>".to_vec());
                }
                let text = text.strip_prefix("txt:").unwrap_or(&text);
                let mut lines: Vec<String> = text.lines().filter_map(at_rest).collect();
                lines.sort();
                Reply::Bulk(*kind, lines.join("\n").into_bytes())
            }
            other => other.clone(),
        }
    }
}

/// Returns a line of `CLUSTER NODES` without its times, or one of `CLUSTER INFO` unless it counts messages.
fn at_rest(line: &str) -> Option<String> {
    if line.starts_with("cluster_stats") || line.starts_with("total_cluster_links") {
        return None;
    }
    let mut words: Vec<&str> = line.split(' ').collect();
    if words.len() >= 8 {
        (words[4], words[5]) = ("-", "-");
    }
    Some(words.join(" "))
}

/// A real node that ends when this is dropped.
struct Real {
    child: Child,
    folder: TempDir,
    port: u16,
    bus: u16,
}

impl Real {
    fn start() -> Self {
        let begun = Instant::now();
        loop {
            let folder = tempfile::tempdir().expect("there is room for a folder");
            let ports = [free_port(), free_port()];
            let child = killed_on_exit(&program())
                .args(["--bind", "127.0.0.1"])
                .args(["--port", &ports[0].to_string()])
                .args(["--cluster-port", &ports[1].to_string()])
                .args(["--cluster-enabled", "yes"])
                // The timeout is so long that no node is taken for dead on a busy machine.
                .args(["--cluster-node-timeout", "600000"])
                .args(["--repl-diskless-sync-delay", "0"])
                .args(["--save", "", "--appendonly", "no", "--unixsocket"])
                .arg(folder.path().join("socket"))
                .arg("--dir")
                .arg(folder.path())
                .stdout(Stdio::null())
                .spawn()
                .expect("`redis-server` is installed");
            let mut real = Self {
                child,
                folder,
                port: ports[0],
                bus: ports[1],
            };
            // Another process may have taken the port meanwhile.
            while let Ok(None) = real.child.try_wait() {
                if UnixStream::connect(real.path()).is_ok() {
                    return real;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            assert!(begun.elapsed() < PATIENCE, "no server starts");
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("socket")
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("there is a free port");
    listener.local_addr().expect("it has an address").port()
}

pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}: never");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Connections to the same node of both clusters, which receive the same requests.
pub(crate) struct Pair {
    real: UnixStream,
    real_bytes: Vec<u8>,
    simulated: DuplexStream,
    simulated_bytes: Vec<u8>,
    names: Vec<[String; 3]>,
}

impl Pair {
    fn connect(real: &Real, simulated: &distlock_sim::Server) -> Self {
        let (near, far) = tokio::io::duplex(1 << 22);
        let server = simulated.clone();
        tokio::spawn(async move { server.serve(far).await });
        let real = UnixStream::connect(real.path()).expect("it listens");
        let limit = real.set_read_timeout(Some(PATIENCE));
        limit.expect("it is more than nothing");
        Self {
            real,
            real_bytes: Vec::new(),
            simulated: near,
            simulated_bytes: Vec::new(),
            names: Vec::new(),
        }
    }

    /// Sends a request to the real node alone.
    pub(crate) fn ask_real(&mut self, words: &str) -> Reply {
        let words: Vec<&str> = words.split(' ').collect();
        self.send_real(&words);
        self.real_reply()
    }

    fn order(&mut self, words: &str) {
        let reply = self.ask_real(words);
        assert!(!matches!(reply, Reply::Line(b'-', _)), "{words}: {reply:?}");
    }

    fn send_real(&mut self, words: &[&str]) {
        let written = self.real.write_all(&encoded(words));
        written.expect("the server reads");
    }

    /// Sends a request to both, and returns the reply of the real node, and of the simulated one. Names such as `<id-1>` are replaced by
    /// each one's own.
    pub(crate) async fn ask(&mut self, words: &[&str]) -> (Reply, Reply) {
        self.send(words).await;
        self.replies().await
    }

    pub(crate) async fn send(&mut self, words: &[&str]) {
        let named = |side: usize| -> Vec<String> {
            let words = words.iter().map(|word| {
                let name = self.names.iter().find(|name| name[2] == *word);
                name.map_or(*word, |name| &name[side]).to_owned()
            });
            words.collect()
        };
        let (real, simulated) = (named(0), named(1));
        self.send_real(&real.iter().map(String::as_str).collect::<Vec<_>>());
        let simulated: Vec<&str> = simulated.iter().map(String::as_str).collect();
        let written = self.simulated.write_all(&encoded(&simulated)).await;
        written.expect("the simulated server reads");
    }

    /// Returns the next reply, or message, of both.
    pub(crate) async fn replies(&mut self) -> (Reply, Reply) {
        let real = self.real_reply();
        let simulated = self.simulated_reply().await;
        (self.renamed(&real, 0), self.renamed(&simulated, 1))
    }

    fn renamed(&self, reply: &Reply, side: usize) -> Reply {
        let renamed = |bytes: &[u8]| -> Vec<u8> {
            let Ok(text) = std::str::from_utf8(bytes) else {
                return bytes.to_vec();
            };
            let mut text = text.to_owned();
            for name in &self.names {
                text = text.replace(&name[side], &name[2]);
            }
            text.into_bytes()
        };
        match reply {
            Reply::Line(kind, text) => Reply::Line(*kind, renamed(text)),
            Reply::Bulk(kind, bytes) => Reply::Bulk(*kind, renamed(bytes)),
            Reply::Items(kind, items) => {
                let items = items.iter().map(|item| self.renamed(item, side));
                Reply::Items(*kind, items.collect())
            }
        }
    }

    fn real_reply(&mut self) -> Reply {
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

    async fn simulated_reply(&mut self) -> Reply {
        loop {
            if let Some(reply) = Reply::take(&mut self.simulated_bytes) {
                return reply;
            }
            let mut part = [0; 65536];
            // Messages take some time on the bus, but never a minute.
            let read = self.simulated.read(&mut part);
            let length = tokio::time::timeout(Duration::from_secs(60), read).await;
            let length = length.expect("the simulated server answers");
            let length = length.expect("the connection is there");
            assert_ne!(length, 0, "the simulated server has closed the connection");
            self.simulated_bytes.extend(&part[..length]);
        }
    }
}

fn encoded(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len());
    for word in words {
        bytes += &format!("${}\r\n{word}\r\n", word.len());
    }
    bytes.into_bytes()
}

/// Upper bound for any wait; only a failure takes as long.
const PATIENCE: Duration = Duration::from_secs(120);
