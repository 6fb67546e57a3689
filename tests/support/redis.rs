//! A real `redis-server` for one test, on a port of its own; it ends with the test.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};
use std::{fs, thread};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, FromRedisValue, RedisResult, Value};
use tempfile::TempDir;

mod ask;
mod folder;
mod killed_on_exit;
mod process;

use self::folder::folder;
pub(crate) use self::killed_on_exit::PROGRAM;
use self::killed_on_exit::{killed_on_exit, program};
use self::process::{Process, spawn};
use super::login::Rights;
use super::port::Port;

/// A running server without persistence. All calls block until their command is answered.
///
/// The fixture itself connects through the unix socket, which can only belong to this server: while the server is down,
/// another program may use its port.
pub(crate) struct RedisServer {
    /// `None` between [`kill`](Self::kill) and [`restart`](Self::restart).
    process: Mutex<Option<Process>>,
    port: Port,
    /// Whether the port speaks TLS.
    tls: bool,
    args: Vec<String>,
    rights: Rights,
    /// The configuration file, which the server reads first and may rewrite.
    file: Option<PathBuf>,
    dir: TempDir,
}

impl RedisServer {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server with further arguments, such as `&["--maxmemory", "3mb"]`.
    pub(crate) fn start_with(args: &[&str]) -> Self {
        Self::start_on(false, None, args)
    }

    /// Starts a server whose port speaks TLS; the arguments name the certificates.
    pub(crate) fn start_tls(args: &[&str]) -> Self {
        Self::start_on(true, None, args)
    }

    /// Starts a server with a configuration file of this text, which a sentinel requires.
    pub(crate) fn start_from(file: &str, args: &[&str]) -> Self {
        Self::start_on(false, Some(file), args)
    }

    /// Starts a server with a configuration file of this text, whose port speaks TLS.
    pub(crate) fn start_tls_from(file: &str, args: &[&str]) -> Self {
        Self::start_on(true, Some(file), args)
    }

    fn start_on(tls: bool, file: Option<&str>, args: &[&str]) -> Self {
        let mut server = Self {
            process: Mutex::new(None),
            port: Port::take(),
            tls,
            args: args.iter().map(ToString::to_string).collect(),
            rights: Rights::from_env(),
            file: None,
            dir: folder(),
        };
        if let Some(text) = file {
            let path = server.dir.path().join("redis.conf");
            // A server with a configuration file may rewrite it, including these lines.
            let users = server.rights.users(&server.args, server.password());
            let users = users.iter().map(|user| format!("user {user}\n"));
            let text = users.chain([text.to_owned()]).collect::<String>();
            fs::write(&path, text).expect("the folder is ours");
            server.file = Some(path);
        }
        // Another program may take the port before the server binds it.
        for _ in 0..PORT_TRIES {
            match server.launch() {
                Ok(()) => return server,
                Err(log) if log.contains(PORT_TAKEN) => server.port = Port::take(),
                Err(log) => panic!("redis-server did not start:\n{log}"),
            }
        }
        panic!("no free port found in {PORT_TRIES} tries");
    }

    pub(crate) fn url(&self) -> String {
        let scheme = if self.tls { "rediss" } else { "redis" };
        format!("{scheme}://{}/", self.addr())
    }

    /// Returns an address for the test's own commands, which works whatever rights other users have.
    pub(crate) fn own_url(&self) -> String {
        self.rights.own(&self.url())
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port()).into()
    }

    pub(crate) fn port(&self) -> u16 {
        self.port.number()
    }

    pub(crate) fn socket_path(&self) -> PathBuf {
        self.dir.path().join("redis.sock")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.running(|process| process.child.id())
    }

    /// Runs a command that may fail; otherwise like [`query`](Self::query).
    pub(crate) fn try_query<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        loop {
            // The end of a child process interrupts a read that has a time-out.
            match self.query_once(words) {
                Err(error) if LOOKS.contains(&words[0]) && was_interrupted(&error) => {}
                answer => return answer,
            }
        }
    }

    fn query_once<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        let (name, args) = words.split_first().expect("a command has a name");
        let mut connection =
            redis::Client::open(self.socket_url())?.get_connection_with_timeout(PATIENCE)?;
        connection.set_read_timeout(Some(PATIENCE))?;
        redis::cmd(name).arg(args).query(&mut connection)
    }

    /// Sends SIGKILL. A server that is already dead is left alone.
    pub(crate) fn kill(&self) {
        // Dropping the process kills it and waits for it.
        self.process().take();
    }

    /// Starts the server again with the same port and arguments, and no data; kills it first if it still runs.
    pub(crate) fn restart(&self) {
        self.kill();
        let give_up = Instant::now() + PATIENCE;
        loop {
            match self.launch() {
                Ok(()) => return,
                Err(log) if log.contains(PORT_TAKEN) && Instant::now() < give_up => {
                    thread::sleep(POLL)
                }
                Err(log) => panic!("redis-server did not start again:\n{log}"),
            }
        }
    }

    /// Sends SIGSTOP: the server keeps its connections and replies to nothing. Returns once it has really stopped.
    pub(crate) fn stop_process(&self) {
        self.running(|process| {
            if process.stopped {
                return;
            }
            kill(process.pid(), Signal::SIGSTOP).expect("a child can be signalled");
            let status =
                waitpid(process.pid(), Some(WaitPidFlag::WUNTRACED)).expect("it is our child");
            assert!(
                matches!(status, WaitStatus::Stopped(..)),
                "redis-server ended: {status:?}"
            );
            process.stopped = true;
        });
    }

    /// Sends SIGCONT, after [`stop_process`](Self::stop_process).
    pub(crate) fn continue_process(&self) {
        self.running(|process| {
            kill(process.pid(), Signal::SIGCONT).expect("a child can be signalled");
            process.stopped = false;
        });
    }

    /// Makes one attempt to start; the error is the server's output.
    fn launch(&self) -> Result<(), String> {
        let log = self.dir.path().join("redis.log");
        let output = File::create(&log).expect("the folder is ours");
        let mut command = killed_on_exit(&program());
        let port = self.port().to_string();
        let open = if self.tls { "0" } else { &port };
        command.args(&self.file);
        command.args(["--bind", "127.0.0.1", "--port", open]);
        if self.tls {
            // Some servers do not know this option.
            command.args(["--tls-port", &port]);
        }
        command
            .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
            .args(["--protected-mode", "no", "--loglevel", "warning"])
            .arg("--dir")
            .arg(self.dir.path())
            .arg("--unixsocket")
            .arg(self.socket_path())
            .args(&self.args)
            .args(self.users())
            .stdin(Stdio::null())
            .stderr(output.try_clone().expect("a file can be cloned"))
            .stdout(output);
        let mut process = Process {
            child: spawn(command).expect("a server can be started"),
            stopped: false,
        };

        let give_up = Instant::now() + LONGEST_START;
        while self.try_query::<Value>(&["PING"]).is_err() {
            let ended = process.child.try_wait().expect("it is our child").is_some();
            if ended || Instant::now() > give_up {
                let said = fs::read_to_string(&log).unwrap_or_default();
                let how = if ended {
                    "it ended"
                } else {
                    "it does not answer"
                };
                return Err(format!(
                    "{how}, port {}, arguments {:?}\n{said}",
                    self.port(),
                    self.args
                ));
            }
            thread::sleep(POLL);
        }
        *self.process() = Some(process);
        Ok(())
    }

    fn socket_url(&self) -> String {
        let url = format!("redis+unix://{}", self.socket_path().display());
        let url = self.rights.own(&url);
        match (self.rights, self.password()) {
            (Rights::All, Some(password)) => format!("{url}?pass={password}"),
            (Rights::All, None) | (Rights::Least, _) => url,
        }
    }

    /// Returns the arguments for its users; a server with a configuration file has them there.
    fn users(&self) -> Vec<String> {
        match self.file {
            Some(_) => Vec::new(),
            None => self.rights.as_arguments(&self.args, self.password()),
        }
    }

    fn password(&self) -> Option<&str> {
        let at = self.args.iter().position(|arg| arg == "--requirepass")?;
        Some(&self.args[at + 1])
    }

    fn running<T>(&self, act: impl FnOnce(&mut Process) -> T) -> T {
        act(self.process().as_mut().expect("the server runs"))
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        // A test that fails while it holds the mutex must still be able to clean up.
        self.process
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Connects with the time-outs of the tests: the redis crate's own is half a second, and a busy machine may stand still for
/// longer.
pub(crate) async fn patient_connection(url: &str) -> MultiplexedConnection {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(super::PATIENCE))
        .set_response_timeout(Some(super::PATIENCE));
    let client = redis::Client::open(url).expect("a server's address is right");
    let connection = client.get_multiplexed_async_connection_with_config(&config);
    connection.await.expect("the server is up")
}

const PORT_TRIES: usize = 20;
const PORT_TAKEN: &str = "Address already in use";
const PATIENCE: Duration = Duration::from_secs(60);
/// Some servers have data to load, on machines that are busy with other work.
const LONGEST_START: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(5);

/// The commands that may be sent again, since they change nothing.
const LOOKS: [&str; 17] = [
    "EXISTS", "GET", "HGET", "HGETALL", "INFO", "KEYS", "LLEN", "LRANGE", "PING", "PTTL", "PUBSUB",
    "ROLE", "TIME", "TYPE", "ZCARD", "ZRANGE", "ZSCORE",
];

fn was_interrupted(error: &redis::RedisError) -> bool {
    let kind = std::error::Error::source(error).and_then(|source| source.downcast_ref());
    let kind = kind.map(std::io::Error::kind);
    kind == Some(std::io::ErrorKind::Interrupted) || error.to_string().contains("os error 4)")
}
