//! A simulated world: one thread, one runtime under virtual time, a network, and the machines that clients run on.
#![allow(
    dead_code,
    reason = "each test target compiles this module for itself and uses a part of it"
)]

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::task::Waker;
use std::time::Duration;

use distlock::simulation::{Connecting, Host, Process, Stream, Task};
use distlock::{Client, ClientBuilder};
use distlock_sim::{Clock, Network, Random, Server};
use tokio::runtime::Handle;
use tokio::time::Instant;

/// Upper bound for the real time of one seed; a seed that takes longer counts as hung.
const LONGEST: Duration = Duration::from_secs(300);

/// The address of the server.
pub(crate) const HOST: &str = "redis";
pub(crate) const PORT: u16 = 6379;

/// The network, the server and the random numbers of a scenario. All clones share one world.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) network: Network,
    pub(crate) server: Server,
    random: Arc<Mutex<Random>>,
    machines: Arc<Mutex<BTreeMap<String, Arc<Machine>>>>,
    begun: Instant,
}

/// The machine of one client, with the one process that runs on it.
#[derive(Debug)]
pub(crate) struct Machine {
    name: String,
    network: Network,
    started: Instant,
    /// How many microseconds its clock gains in a second.
    drift_ppm: i64,
    stops: Mutex<Stops>,
}

/// The reasons why a process is stopped, and the tasks to wake when it continues.
#[derive(Debug, Default)]
struct Stops {
    reasons: u32,
    tasks: Vec<Waker>,
}

/// A panic on the thread of a scenario, whether it was caught or not.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Panic {
    /// The simulated time since the scenario began.
    pub(crate) at: Duration,
    /// The message, with the place in the source.
    pub(crate) what: String,
}

/// Runs a scenario in a world of its own, on a fresh thread: thread-local state that survives a seed would make the next
/// seed depend on it. A panic of any task fails the scenario, unless it is [expected](expect_panics).
pub(crate) fn simulate<F, T>(seed: u64, replay: &str, scenario: F) -> T
where
    F: AsyncFnOnce(World) -> T + Send + 'static,
    T: Send + 'static,
{
    let played = attempt(seed, scenario).and_then(|(played, panics)| match panics.first() {
        Some(Panic { at, what }) => Err(format!("a task panicked at {at:?}: {what}")),
        None => Ok(played),
    });
    played.unwrap_or_else(|error| panic!("seed {seed}: {error}; replay it with: {replay}"))
}

/// Runs a scenario as [`simulate`] does, but returns failures: a panic of the scenario is an error, and so is a run that
/// takes too long. Panics of other tasks are returned in the list: the library catches those of its own tasks, and a
/// scenario need not join the tasks that it has spawned.
pub(crate) fn attempt<F, T>(seed: u64, scenario: F) -> Result<(T, Vec<Panic>), String>
where
    F: AsyncFnOnce(World) -> T + Send + 'static,
    T: Send + 'static,
{
    let (sender, receiver) = sync_channel(1);
    std::thread::spawn(move || {
        #[cfg(tokio_unstable)]
        distlock_sim_entropy::seed(seed);
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().start_paused(true);
        #[cfg(tokio_unstable)]
        runtime.rng_seed(tokio::runtime::RngSeed::from_bytes(&seed.to_le_bytes()));
        let runtime = runtime.build().expect("a runtime needs only memory");
        let played = panic::catch_unwind(AssertUnwindSafe(|| {
            runtime.block_on(async {
                PanicRecorder::start();
                scenario(World::new(seed)).await
            })
        }));
        // The remaining tasks are dropped here, and may panic as well.
        drop(runtime);
        let panics = PanicRecorder::finish();
        // The scenario may have panicked because one of its tasks had.
        let first = panics.first().map(|panic| panic.what.clone());
        let played = match played {
            Ok(played) => Ok((played, panics)),
            Err(panic) => Err(first.unwrap_or_else(|| panic_message(&*panic).to_owned())),
        };
        // The receiver may have been dropped.
        let _ = sender.send(played);
    });
    receiver
        .recv_timeout(LONGEST)
        .unwrap_or_else(|error| match error {
            RecvTimeoutError::Timeout => Err(format!("it has not ended after {LONGEST:?}")),
            RecvTimeoutError::Disconnected => Err("its thread has ended without a result".into()),
        })
}

/// Ignores panics from now on if their message contains this text: they do not fail the scenario that runs on this thread.
pub(crate) fn expect_panics(text: &'static str) {
    PANICS.with_borrow_mut(|recorder| {
        let recorder = recorder.as_mut().expect("only inside of a scenario");
        recorder.expected.push(text);
    });
}

/// Records the panics of one scenario. It uses the panic hook, not the results of joined tasks: most panics are caught
/// before a join could see them.
struct PanicRecorder {
    begun: Instant,
    panics: Vec<Panic>,
    expected: Vec<&'static str>,
}

thread_local! {
    /// The recorder of the scenario that runs on this thread.
    static PANICS: RefCell<Option<PanicRecorder>> = const { RefCell::new(None) };
}

impl PanicRecorder {
    /// Records the panics of this thread from now on.
    fn start() {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let usual = panic::take_hook();
            panic::set_hook(Box::new(move |panic| {
                // A thread that ends may have dropped its recorder.
                let _ = PANICS.try_with(|recorder| {
                    if let Ok(mut recorder) = recorder.try_borrow_mut() {
                        recorder.iter_mut().for_each(|it| it.record(panic));
                    }
                });
                usual(panic);
            }));
        });
        PANICS.set(Some(Self {
            begun: Instant::now(),
            panics: Vec::new(),
            expected: Vec::new(),
        }));
    }

    /// Ends the record, and returns it.
    fn finish() -> Vec<Panic> {
        let recorder = PANICS.take();
        recorder.map_or_else(Vec::new, |recorder| recorder.panics)
    }

    fn record(&mut self, panic: &PanicHookInfo<'_>) {
        let message = panic_message(panic.payload());
        if self.expected.iter().any(|text| message.contains(text)) {
            return;
        }
        let what = match panic.location() {
            Some(place) => format!("{message} ({}:{})", place.file(), place.line()),
            None => message.to_owned(),
        };
        // Only inside the runtime is time simulated.
        let at = match Handle::try_current() {
            Ok(_) => self.begun.elapsed(),
            Err(_) => self.panics.last().map_or(Duration::ZERO, |panic| panic.at),
        };
        self.panics.push(Panic { at, what });
    }
}

fn panic_message(payload: &dyn Any) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
    text.unwrap_or("it has panicked")
}

impl World {
    /// Makes a world whose time begins now, by the clock of the current runtime.
    pub(crate) fn new(seed: u64) -> Self {
        Self::with_clock(seed, Clock::new())
    }

    /// Makes a world whose server has a clock of its own.
    pub(crate) fn with_clock(seed: u64, clock: Clock) -> Self {
        let network = Network::new(seed);
        let server = Server::new(clock, seed);
        network.listen(HOST, PORT, &server);
        if std::env::var_os("DISTLOCK_TRACE").is_some() {
            network.print();
        }
        let random = Arc::new(Mutex::new(Random::new(!seed)));
        Self {
            network,
            server,
            random,
            machines: Arc::default(),
            begun: Instant::now(),
        }
    }

    /// Adds another server to the world.
    pub(crate) fn add_server(&self, host: &str, seed: u64, clock: Clock) -> Server {
        let server = Server::new(clock, seed);
        self.network.listen(host, PORT, &server);
        server
    }

    /// Returns the simulated time since the world began.
    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Returns the machine of that name. The first call for a name makes the machine, with a clock that is right.
    pub(crate) fn machine(&self, name: &str) -> Arc<Machine> {
        self.machine_with_drift(name, 0)
    }

    /// Returns the machine of that name. If this call makes it, its clock gains this many microseconds in a second.
    pub(crate) fn machine_with_drift(&self, name: &str, drift_ppm: i64) -> Arc<Machine> {
        let mut machines = self.machines.lock().unwrap_or_else(PoisonError::into_inner);
        let machine = machines.entry(name.to_owned()).or_insert_with(|| {
            Arc::new(Machine {
                name: name.to_owned(),
                network: self.network.clone(),
                started: Instant::now(),
                drift_ppm,
                stops: Mutex::default(),
            })
        });
        machine.clone()
    }

    /// Returns a builder for a client on the machine of that name.
    pub(crate) fn client(&self, name: &str) -> ClientBuilder {
        self.client_of(&format!("redis://{HOST}:{PORT}/"), name)
    }

    /// Returns a builder for a client that connects to this address.
    pub(crate) fn client_of(&self, url: &str, name: &str) -> ClientBuilder {
        Client::builder(url).simulated(self.machine(name))
    }

    /// Returns a random number below the limit.
    pub(crate) fn below(&self, limit: u64) -> u64 {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        random.below(limit)
    }

    /// Returns a random duration below `longest`.
    pub(crate) fn up_to(&self, longest: Duration) -> Duration {
        let longest = longest.as_millis().try_into().expect("it is short");
        Duration::from_millis(self.below(longest))
    }

    /// Returns true in this many of a hundred cases.
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

    /// Returns the machine's clock, which shows one day when the machine starts.
    fn now(&self) -> Duration {
        let elapsed = self.started.elapsed();
        let drift = i128::try_from(elapsed.as_nanos()).unwrap_or(0) * i128::from(self.drift_ppm);
        let drift = i64::try_from(drift / 1_000_000).unwrap_or(0);
        let day = 86_400_000_000_000_u64.saturating_add_signed(drift);
        Duration::from_nanos(day) + elapsed
    }
}

impl Machine {
    /// Makes a future a task of the machine's process; the task makes no progress while the process is stopped.
    pub(crate) fn task<F: Future>(self: &Arc<Self>, future: F) -> Task<F> {
        Task::new(self.clone(), future)
    }

    /// Stops the process, as SIGSTOP does. Its clock goes on.
    pub(crate) fn stop(&self) {
        self.stops().reasons += 1;
    }

    /// Ends one stop of the process.
    pub(crate) fn go_on(&self) {
        let reasons = self.stops().reasons;
        self.leave_stopped(reasons.saturating_sub(1));
    }

    /// Ends all stops of the process.
    pub(crate) fn heal(&self) {
        self.leave_stopped(0);
    }

    /// Sets the number of reasons for the stop; the process continues once none is left.
    fn leave_stopped(&self, reasons: u32) {
        let mut stops = self.stops();
        stops.reasons = reasons;
        if reasons == 0 {
            std::mem::take(&mut stops.tasks)
                .into_iter()
                .for_each(Waker::wake);
        }
    }

    fn stops(&self) -> MutexGuard<'_, Stops> {
        self.stops.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Process for Machine {
    fn is_running(&self, waker: &Waker) -> bool {
        let mut stops = self.stops();
        let stopped = stops.reasons > 0;
        if stopped && !stops.tasks.iter().any(|task| task.will_wake(waker)) {
            stops.tasks.push(waker.clone());
        }
        !stopped
    }
}
