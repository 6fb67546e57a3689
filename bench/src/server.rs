//! A `redis-server` of a measurement's own, and its gauges.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use redis::Connection;
use tempfile::TempDir;

use crate::failure::{Failure, Outcome, ensure};

/// A running server without persistence; it is stopped when dropped.
pub(crate) struct Server {
    process: Child,
    addr: SocketAddr,
    connection: Connection,
    /// The folder of the server, kept for as long as the server runs.
    _dir: TempDir,
}

/// The counters of the server so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gauges {
    /// Seconds of processor time.
    pub(crate) cpu: f64,
    /// The calls by command, including those inside scripts.
    pub(crate) calls: BTreeMap<String, u64>,
    /// How often the server found something to read on a connection.
    pub(crate) reads: u64,
}

impl Server {
    pub(crate) fn start() -> Outcome<Self> {
        let dir = TempDir::with_prefix("distlock-bench-")?;
        // Another process may take a free port before the server binds it.
        for _ in 0..PORT_TRIES {
            let port = free_port()?;
            let process = Command::new("redis-server")
                .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
                .args(["--save", "", "--appendonly", "no"])
                .args(["--maxclients", "20000", "--loglevel", "warning"])
                .current_dir(dir.path())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .map_err(|error| Failure::from(error).during("redis-server"))?;
            let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            let mut process = process;
            if let Some(connection) = connect(addr, &mut process) {
                return Ok(Self {
                    process,
                    addr,
                    connection,
                    _dir: dir,
                });
            }
            end(&mut process);
        }
        Err(Failure::new("redis-server does not start"))
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}/", self.addr)
    }

    pub(crate) fn gauges(&mut self) -> Outcome<Gauges> {
        let cpu = self.info("cpu")?;
        let stats = self.info("stats")?;
        let commands = self.info("commandstats")?;
        let mut calls = BTreeMap::new();
        for (key, value) in commands {
            let name = key.strip_prefix("cmdstat_").unwrap_or(&key);
            // `client|tracking` and the like: what MONITOR shows is the first word.
            let name = name.split('|').next().unwrap_or(name);
            let count = value
                .strip_prefix("calls=")
                .and_then(|rest| rest.split(',').next());
            let count: u64 = count.unwrap_or("0").parse()?;
            *calls.entry(name.to_lowercase()).or_default() += count;
        }
        let seconds = |key: &str| -> Outcome<f64> { Ok(number(&cpu, key)?.parse()?) };
        Ok(Gauges {
            cpu: seconds("used_cpu_user")? + seconds("used_cpu_sys")?,
            calls,
            reads: number(&stats, "total_reads_processed")?.parse()?,
        })
    }

    /// Monitors the commands of clients for a while: returns for each command which part of its calls came from outside of scripts. INFO
    /// counts both alike.
    pub(crate) fn sample(&self, time: Duration) -> Outcome<CommandCounts> {
        let mut monitor = TcpStream::connect(self.addr)?;
        monitor.set_read_timeout(Some(Duration::from_millis(20)))?;
        monitor.write_all(b"MONITOR\r\n")?;
        let end = Instant::now() + time;
        let mut lines = BufReader::with_capacity(1 << 20, monitor);
        let mut seen = CommandCounts::default();
        let mut line = Vec::new();
        while Instant::now() < end {
            match lines.read_until(b'\n', &mut line) {
                Ok(0) => break,
                Ok(_) => {
                    seen.note(&String::from_utf8_lossy(&line));
                    line.clear();
                }
                // The text read so far stays in `line`.
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(seen)
    }

    /// Returns the number of subscriptions, of all clients to all channels.
    pub(crate) fn subscriptions(&mut self) -> Outcome<u64> {
        let clients: String = redis::cmd("CLIENT")
            .arg("LIST")
            .query(&mut self.connection)?;
        let mut sum = 0;
        for word in clients.split_whitespace() {
            if let Some(count) = word.strip_prefix("sub=") {
                sum += count.parse::<u64>()?;
            }
        }
        Ok(sum)
    }

    /// Returns the number of keys.
    pub(crate) fn keys(&mut self) -> Outcome<u64> {
        Ok(redis::cmd("DBSIZE").query(&mut self.connection)?)
    }

    fn info(&mut self, section: &str) -> Outcome<BTreeMap<String, String>> {
        let text: String = redis::cmd("INFO")
            .arg(section)
            .query(&mut self.connection)?;
        let pairs = text.lines().filter_map(|line| line.split_once(':'));
        Ok(pairs
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.process);
    }
}

/// How often each command was sent, and how often a script called it.
#[derive(Debug, Default)]
pub(crate) struct CommandCounts {
    sent: BTreeMap<String, u64>,
    inside: BTreeMap<String, u64>,
}

impl CommandCounts {
    /// Counts a line of MONITOR: `+1700000000.123456 [0 127.0.0.1:4711] "EVALSHA" "…"`, or `[0 lua]`.
    fn note(&mut self, line: &str) {
        let Some((place, words)) = line.split_once("] \"") else {
            return;
        };
        let Some((name, _)) = words.split_once('"') else {
            return;
        };
        let book = if place.ends_with(" lua") {
            &mut self.inside
        } else {
            &mut self.sent
        };
        *book.entry(name.to_lowercase()).or_default() += 1;
    }

    /// Returns how many of these calls came from outside of scripts.
    pub(crate) fn of(&self, calls: &BTreeMap<String, u64>) -> f64 {
        let part = |name: &str| {
            let sent = to_f64(self.sent.get(name).copied().unwrap_or(0));
            let inside = to_f64(self.inside.get(name).copied().unwrap_or(0));
            if sent + inside > 0.0 {
                return sent / (sent + inside);
            }
            // The sample missed this rare command. One that cannot be called in a script came from outside.
            f64::from(["eval", "evalsha", "subscribe", "unsubscribe"].contains(&name))
        };
        let calls = calls
            .iter()
            .filter(|(name, _)| !OURS.contains(&name.as_str()));
        calls.map(|(name, count)| to_f64(*count) * part(name)).sum()
    }
}

impl Gauges {
    pub(crate) fn since(&self, before: &Self) -> Self {
        let calls = self.calls.iter().map(|(name, count)| {
            let earlier = before.calls.get(name).copied().unwrap_or(0);
            (name.clone(), count.saturating_sub(earlier))
        });
        Self {
            cpu: self.cpu - before.cpu,
            calls: calls.collect(),
            reads: self.reads - before.reads,
        }
    }

    /// Returns the number of script calls.
    pub(crate) fn scripts(&self) -> u64 {
        let names = ["eval", "evalsha", "fcall"];
        names.iter().filter_map(|name| self.calls.get(*name)).sum()
    }
}

fn number<'a>(info: &'a BTreeMap<String, String>, key: &str) -> Outcome<&'a str> {
    let value = info.get(key).map(|value| value.trim());
    value.ok_or_else(|| Failure::new(format!("INFO has no `{key}`")))
}

#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
pub(crate) const fn to_f64(count: u64) -> f64 {
    count as f64
}

fn connect(addr: SocketAddr, process: &mut Child) -> Option<Connection> {
    let give_up = Instant::now() + Duration::from_secs(5);
    while Instant::now() < give_up {
        if process.try_wait().ok()?.is_some() {
            return None;
        }
        if let Ok(client) = redis::Client::open(format!("redis://{addr}/"))
            && let Ok(mut connection) = client.get_connection()
            && redis::cmd("PING").query::<String>(&mut connection).is_ok()
        {
            return Some(connection);
        }
        thread::sleep(Duration::from_millis(10));
    }
    None
}

fn end(process: &mut Child) {
    // Both fail only if the process has ended already.
    let _ = process.kill();
    let _ = process.wait();
}

fn free_port() -> Outcome<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    ensure!(port != 0, "no port is free");
    Ok(port)
}

const PORT_TRIES: usize = 10;
/// The commands that the orchestrator itself sends between two readings of the gauges.
const OURS: [&str; 3] = ["info", "monitor", "dbsize"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_inside_scripts_are_not_counted_as_sent() {
        let mut seen = CommandCounts::default();
        seen.note("+1.2 [0 127.0.0.1:5] \"EVALSHA\" \"abc\" \"] \\\"x\"\r\n");
        seen.note("+1.2 [0 lua] \"DEL\" \"k\"\r\n");
        seen.note("+1.2 [0 127.0.0.1:5] \"del\" \"k\"\r\n");
        seen.note("+1.2 [0 lua] \"PUBLISH\" \"k\" \"0\"\r\n");
        seen.note("+OK\r\n");
        let calls = [
            ("evalsha", 100),
            ("del", 200),
            ("publish", 100),
            ("info", 3),
        ];
        let calls = calls.map(|(name, count)| (name.to_owned(), count));
        let sent = seen.of(&calls.into_iter().collect());
        assert!((sent - 200.0).abs() < 1e-9, "{sent}");
    }
}
