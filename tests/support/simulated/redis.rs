//! A simulated `redis-server` for one test, on a port of its own.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use distlock_sim::{Clock, Server};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, FromRedisValue, IntoConnectionInfo, RedisResult, Value};

use super::login::Rights;
use super::transport::{HOST, Port};
use super::{PATIENCE, world};

#[path = "../redis/ask.rs"]
mod ask;

/// A simulated server without persistence, see [`distlock_sim::Server`]. The fixture's own commands are executed at once,
/// whatever state the network is in.
pub(crate) struct RedisServer {
    server: Server,
    addr: SocketAddr,
    rights: Rights,
}

impl RedisServer {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server with further arguments, such as `&["--maxmemory", "3mb"]`.
    pub(crate) fn start_with(args: &[&str]) -> Self {
        let (world, port) = (world(), Port::bind());
        let number = port.number();
        let server = Server::new(Clock::new(), world.below(u64::MAX));
        server.set_address(HOST, number);
        world.network.listen(HOST, number, &server);
        let started = Self {
            server,
            addr: port.addr(),
            rights: Rights::from_env(),
        };
        let mut password = None;
        for pair in args.chunks(2) {
            let [name, value] = pair else {
                panic!("{args:?}: an argument has no value");
            };
            started.config_set(name.trim_start_matches('-'), value);
            password = password.or((*name == "--requirepass").then_some(*value));
        }
        let args: Vec<String> = args.iter().map(ToString::to_string).collect();
        for user in started.rights.users(&args, password) {
            let words: Vec<&str> = ["ACL", "SETUSER"]
                .into_iter()
                .chain(user.split(' '))
                .collect();
            started.cmd(&words);
        }
        started
    }

    /// Wraps a server that is already started; it has no address of its own here.
    pub(crate) fn of(server: &Server) -> Self {
        Self {
            server: server.clone(),
            addr: Port::bind().addr(),
            rights: Rights::All,
        }
    }

    /// Wraps a server that already runs at an address.
    pub(crate) fn at(addr: SocketAddr, server: &Server) -> Self {
        Self {
            server: server.clone(),
            addr,
            rights: Rights::from_env(),
        }
    }

    /// Returns the server, for operations that only a simulated one has.
    pub(crate) fn simulated(&self) -> &Server {
        &self.server
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}/", self.addr())
    }

    /// Returns an address for the test's own commands, which works whatever rights other users have.
    pub(crate) fn own_url(&self) -> String {
        self.rights.own(&self.url())
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(crate) fn port(&self) -> u16 {
        self.addr.port()
    }

    /// Runs a command that may fail; otherwise like [`query`](Self::query).
    pub(crate) fn try_query<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        if !self.server.is_alive() {
            return Err(io::Error::from(io::ErrorKind::ConnectionRefused).into());
        }
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let mut reply = Vec::new();
        self.server.call(&words).encode(2, &mut reply);
        let reply = redis::parse_redis_value(&reply)?;
        Ok(redis::from_redis_value(reply.extract_error()?)?)
    }

    /// Ends all connections and accepts none.
    pub(crate) fn kill(&self) {
        self.server.kill();
    }

    /// Starts the server again, without data.
    pub(crate) fn restart(&self) {
        self.server.kill();
        self.server.revive();
        self.server.restart(false);
    }

    /// Stops the server: it keeps its connections and replies to nothing.
    pub(crate) fn stop_process(&self) {
        self.server.stall(FOREVER);
    }

    /// Continues the server, after [`stop_process`](Self::stop_process).
    pub(crate) fn continue_process(&self) {
        self.server.stall(Duration::ZERO);
    }
}

/// Connects over the simulated network, for the test's own commands.
pub(crate) async fn patient_connection(url: &str) -> MultiplexedConnection {
    let info = url.into_connection_info();
    let info = info.expect("a server's address is right");
    let redis::ConnectionAddr::Tcp(host, port) = info.addr() else {
        panic!("{url}: a simulated network has nothing but TCP");
    };
    let stream = world().network.connect("test", host, *port).await;
    let stream = stream.expect("the server is up");
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
    let made = MultiplexedConnection::new_with_config(info.redis_settings(), stream, config);
    let (connection, driver) = made.await.expect("the server is up");
    tokio::spawn(driver);
    connection
}

/// Longer than any test.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);
