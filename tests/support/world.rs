//! A simulated world: one thread, one runtime under virtual time, a network, and the machines that clients run on.
#![allow(
    dead_code,
    reason = "each test target compiles this module for itself and uses a part of it"
)]

use std::io;
use std::panic::resume_unwind;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use distlock::simulation::{Connecting, Host, Stream};
use distlock::{Client, ClientBuilder};
use distlock_sim::{Clock, Network, Random, Server};
use tokio::time::Instant;

/// How long one seed may take in real time before it counts as hung.
const LONGEST: Duration = Duration::from_secs(300);

/// Where the server is.
pub(crate) const HOST: &str = "redis";
pub(crate) const PORT: u16 = 6379;

/// The network, the server and the random numbers of a scenario. Clones are the same world.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) network: Network,
    pub(crate) server: Server,
    random: Arc<Mutex<Random>>,
}

/// The machine of one client.
#[derive(Debug)]
struct Machine {
    name: String,
    network: Network,
    started: Instant,
}

/// Plays a scenario in a world of its own, on a fresh thread: whatever a thread keeps from one seed to the next would make
/// a seed depend on those before it.
pub(crate) fn simulate<F, T>(seed: u64, replay: &str, scenario: F) -> T
where
    F: AsyncFnOnce(World) -> T + Send + 'static,
    T: Send + 'static,
{
    let (sender, receiver) = sync_channel(1);
    let thread = std::thread::spawn(move || {
        #[cfg(tokio_unstable)]
        distlock_sim_entropy::seed(seed);
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().start_paused(true);
        #[cfg(tokio_unstable)]
        runtime.rng_seed(tokio::runtime::RngSeed::from_bytes(&seed.to_le_bytes()));
        let runtime = runtime.build().expect("a runtime needs only memory");
        let played = runtime.block_on(async { scenario(World::new(seed)).await });
        // Nobody may be there to take it any more.
        let _ = sender.send(played);
    });
    match receiver.recv_timeout(LONGEST) {
        Ok(played) => played,
        Err(RecvTimeoutError::Timeout) => {
            panic!("seed {seed} has not ended after {LONGEST:?}; replay it with: {replay}")
        }
        Err(RecvTimeoutError::Disconnected) => {
            eprintln!("seed {seed} failed; replay it with: {replay}");
            match thread.join() {
                Err(panic) => resume_unwind(panic),
                Ok(()) => unreachable!("it sends what it has played"),
            }
        }
    }
}

impl World {
    /// A world whose time begins now, by the clock of the runtime that it is made on.
    pub(crate) fn new(seed: u64) -> Self {
        let network = Network::new(seed);
        let server = Server::new(Clock::new(), seed);
        network.listen(HOST, PORT, &server);
        if std::env::var_os("DISTLOCK_TRACE").is_some() {
            network.print();
        }
        let random = Arc::new(Mutex::new(Random::new(!seed)));
        Self {
            network,
            server,
            random,
        }
    }

    /// A client on a machine of that name.
    pub(crate) fn client(&self, name: &str) -> ClientBuilder {
        self.client_of(&format!("redis://{HOST}:{PORT}/"), name)
    }

    /// The same with an address of its own choice.
    pub(crate) fn client_of(&self, url: &str, name: &str) -> ClientBuilder {
        Client::builder(url).simulated(Arc::new(Machine {
            name: name.to_owned(),
            network: self.network.clone(),
            started: Instant::now(),
        }))
    }

    /// A random number below the limit.
    pub(crate) fn below(&self, limit: u64) -> u64 {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        random.below(limit)
    }

    /// Up to that long.
    pub(crate) fn up_to(&self, longest: Duration) -> Duration {
        let longest = longest.as_millis().try_into().expect("it is short");
        Duration::from_millis(self.below(longest))
    }

    /// Whether something happens that happens so many times out of a hundred.
    pub(crate) fn percent(&self, times: u64) -> bool {
        self.below(100) < times
    }
}

impl Host for Machine {
    fn connect(&self, host: &str, port: u16) -> Connecting {
        let (network, name, host) = (self.network.clone(), self.name.clone(), host.to_owned());
        Box::pin(async move {
            let stream: io::Result<distlock_sim::Stream> =
                network.connect(&name, &host, port).await;
            stream.map(|stream| Box::new(stream) as Box<dyn Stream>)
        })
    }

    /// A day after the machine started, at first.
    fn now(&self) -> Duration {
        Duration::from_secs(86_400) + self.started.elapsed()
    }
}
