//! Connections over the simulated network, for a proxy between a client and a server.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use distlock_sim::{Network, Service};
use tokio::sync::watch;

use super::world;

pub(crate) type Stream = distlock_sim::Stream;

/// The host that all servers and proxies run on.
pub(crate) const HOST: &str = "127.0.0.1";

/// Connects to a server.
pub(crate) async fn connect(addr: SocketAddr) -> io::Result<Stream> {
    let network = world().network;
    let host = addr.ip().to_string();
    network.connect("test", &host, addr.port()).await
}

/// A free port that does not accept connections yet.
pub(crate) struct Port(u16);

impl Port {
    pub(crate) fn bind() -> Self {
        thread_local! {
            static NEXT: Cell<u16> = const { Cell::new(20_000) };
        }
        NEXT.set(NEXT.get() + 1);
        Self(NEXT.get())
    }

    pub(crate) const fn number(&self) -> u16 {
        self.0
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.0).into()
    }

    /// Serves each connection, which is given its number.
    pub(crate) fn serve<F>(
        self,
        connection: impl Fn(u64, Stream) -> F + Send + Sync + 'static,
    ) -> Listener
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let network = world().network;
        let state = Arc::new(State {
            stopped: watch::Sender::new(false),
            has_panicked: AtomicBool::new(false),
        });
        let connections = Connections {
            state: state.clone(),
            next: AtomicU64::new(0),
            connection: Box::new(move |number, stream| Box::pin(connection(number, stream))),
        };
        network.serve(HOST, self.0, connections);
        Listener {
            network,
            port: self.0,
            state,
        }
    }
}

struct State {
    stopped: watch::Sender<bool>,
    /// A closure in a rule is the test's own code; its panic must reach the test.
    has_panicked: AtomicBool,
}

type Connection =
    Box<dyn Fn(u64, Stream) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

struct Connections {
    state: Arc<State>,
    next: AtomicU64,
    connection: Connection,
}

impl Service for Connections {
    fn serve(&self, stream: Stream) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let connection = (self.connection)(number, stream);
        let noticed = Noticed(self.state.clone());
        Box::pin(async move {
            let mut stopped = noticed.0.stopped.subscribe();
            tokio::select! {
                biased;
                _ = stopped.wait_for(|stopped| *stopped) => {}
                () = connection => {}
            }
        })
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").finish_non_exhaustive()
    }
}

/// A guard that records a panic of the task that it belongs to.
struct Noticed(Arc<State>);

impl Drop for Noticed {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.has_panicked.store(true, Ordering::Relaxed);
        }
    }
}

/// A port that accepts connections. When this is dropped, every connection ends.
pub(crate) struct Listener {
    network: Network,
    port: u16,
    state: Arc<State>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.network.remove(HOST, self.port);
        self.state.stopped.send_replace(true);
        let has_panicked = self.state.has_panicked.load(Ordering::Relaxed);
        assert!(
            !has_panicked || thread::panicking(),
            "a connection of the proxy has panicked"
        );
    }
}
