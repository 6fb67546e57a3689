//! A simulated network: latency, faults and partitions, all from one seed.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::{Future, pending};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, sleep};

use crate::Server;
use crate::random::Random;
use crate::stream::{self, Stream};

/// A network between hosts that are known by name. Clones are the same network.
#[derive(Clone, Debug)]
pub struct Network {
    shared: Arc<Mutex<Shared>>,
}

/// A service that accepts connections at an address: a server, or a proxy before one.
pub trait Service: fmt::Debug + Send + Sync {
    /// Returns whether connections are accepted. A connection to a service that is down is refused.
    fn is_up(&self) -> bool {
        true
    }

    /// Serves one connection until it ends.
    fn serve(&self, stream: Stream) -> Pin<Box<dyn Future<Output = ()> + Send>>;

    /// Returns the server that this service is, which sentinels watch.
    fn server(&self) -> Option<&Server> {
        None
    }
}

impl Service for Server {
    fn is_up(&self) -> bool {
        self.is_alive()
    }

    fn serve(&self, stream: Stream) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let server = self.clone();
        Box::pin(async move { Self::serve(&server, stream).await })
    }

    fn server(&self) -> Option<&Server> {
        Some(self)
    }
}

/// A fault of one message. A message is the data of one write, which may be several commands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum MessageFault {
    /// The connection breaks, and the message is lost.
    Cut,
    /// The message is delivered, then the connection breaks: its reply is lost.
    CutAfter,
    /// The message, and everything sent behind it, arrives this much later.
    Stall(Duration),
    /// Nothing arrives on the connection any more, in either direction, and neither end is notified.
    BlackHole,
    /// The connection breaks for the sender, but the message arrives this much later, as from a buffer on the way, at a receiver that has
    /// not noticed.
    Late(Duration),
    /// The message is delivered, and this much later once more, on a connection of its own. The reply to the copy is lost.
    Duplicate(Duration),
}

/// The fate of one message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Delivery {
    Delivered,
    Lost,
    LastDelivered,
    BlackHole,
    Late,
}

/// The direction from one host to another.
type Link = (String, String);

#[derive(Debug)]
struct Shared {
    random: Random,
    services: BTreeMap<(String, u16), Arc<dyn Service>>,
    /// The faults of the next messages on each link.
    next: BTreeMap<Link, VecDeque<MessageFault>>,
    /// The links on which nothing arrives, and the number of blocks of each.
    blocked: BTreeMap<Link, u32>,
    /// The longest latency of most messages, and of every fiftieth.
    latency: (u64, u64),
    /// The hosts whose connection attempts are refused, and the number of reasons for it.
    refused: BTreeMap<String, u32>,
    /// The number of connections that clients have to each host.
    open: BTreeMap<Arc<str>, usize>,
    /// The readers behind blocked links.
    waiting: Vec<Waker>,
    counts: Counts,
    begun: Instant,
    trace: u64,
    prints: bool,
}

/// The number of events so far.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Counts {
    /// Connections that were made.
    pub connections: u64,
    /// Messages that were sent.
    pub messages: u64,
    /// Faults of all kinds.
    pub faults: u64,
}

impl Network {
    /// Makes a network without servers and faults.
    pub fn new(seed: u64) -> Self {
        Self {
            shared: Arc::new(Mutex::new(Shared {
                random: Random::new(seed),
                services: BTreeMap::new(),
                next: BTreeMap::new(),
                blocked: BTreeMap::new(),
                latency: (3, 60),
                refused: BTreeMap::new(),
                open: BTreeMap::new(),
                waiting: Vec::new(),
                counts: Counts::default(),
                begun: Instant::now(),
                trace: 0xcbf2_9ce4_8422_2325,
                prints: false,
            })),
        }
    }

    /// Puts a server at an address.
    pub fn listen(&self, host: &str, port: u16, server: &Server) {
        self.serve(host, port, server.clone());
    }

    /// Puts a service at an address, in place of the service that was there.
    pub fn serve(&self, host: &str, port: u16, service: impl Service + 'static) {
        let mut shared = self.lock();
        let address = (host.to_owned(), port);
        shared.services.insert(address, Arc::new(service));
    }

    /// Removes the service at an address. Its connections stay.
    pub fn remove(&self, host: &str, port: u16) {
        let service = self.lock().services.remove(&(host.to_owned(), port));
        // The service's destructor may use the network.
        drop(service);
    }

    /// Returns the server at an address, if there is one and both hosts can reach each other.
    pub(crate) fn reach(&self, from: &str, (host, port): (&str, u16)) -> Option<Server> {
        let shared = self.lock();
        let is_cut = shared.is_blocked(from, host) || shared.is_blocked(host, from);
        let service = shared.services.get(&(host.to_owned(), port));
        service.filter(|_| !is_cut)?.server().cloned()
    }

    /// Sets the longest latency of most messages, and of every fiftieth. Default: 3 ms and 60 ms.
    pub fn set_latency(&self, most: Duration, some: Duration) {
        let ms = |longest: Duration| {
            u64::try_from(longest.as_millis())
                .unwrap_or(u64::MAX)
                .max(1)
        };
        self.lock().latency = (ms(most), ms(some));
    }

    /// Blocks a link, so that nothing arrives at `to` from `from`. Data that is sent meanwhile arrives when the link is restored, as TCP
    /// ensures.
    pub fn block(&self, from: &str, to: &str) {
        let mut shared = self.lock();
        *shared.blocked.entry((from.into(), to.into())).or_default() += 1;
    }

    /// Ends one block of a link.
    pub fn unblock(&self, from: &str, to: &str) {
        let mut shared = self.lock();
        let link = (from.into(), to.into());
        release(&mut shared.blocked, &link);
        shared.wake_readers();
    }

    /// Refuses the connection attempts of a host.
    pub fn refuse(&self, from: &str) {
        *self.lock().refused.entry(from.into()).or_default() += 1;
    }

    /// Ends one refusal of a host's connection attempts.
    pub fn accept(&self, from: &str) {
        release(&mut self.lock().refused, &from.to_owned());
    }

    /// Applies a fault to the next message on a link.
    pub fn fault_next(&self, from: &str, to: &str, fault: MessageFault) {
        let mut shared = self.lock();
        let link = (from.into(), to.into());
        shared.next.entry(link).or_default().push_back(fault);
    }

    /// Returns whether the next message on a link will suffer a fault.
    pub fn has_fault_next(&self, from: &str, to: &str) -> bool {
        let shared = self.lock();
        let faults = shared.next.get(&(from.into(), to.into()));
        faults.is_some_and(|faults| !faults.is_empty())
    }

    /// Returns whether any link is blocked.
    pub(crate) fn has_blocks(&self) -> bool {
        !self.lock().blocked.is_empty()
    }

    /// Returns whether the link from `from` to `to` is blocked.
    pub fn is_blocked(&self, from: &str, to: &str) -> bool {
        self.lock().is_blocked(from, to)
    }

    /// Ends all blocks and refusals, and removes the faults of the next messages.
    pub fn heal(&self) {
        let mut shared = self.lock();
        shared.next.clear();
        shared.blocked.clear();
        shared.refused.clear();
        let waiting = std::mem::take(&mut shared.waiting);
        drop(shared);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Makes a connection from the host `from`.
    ///
    /// # Errors
    ///
    /// The connection is refused if no service listens there, or by a fault.
    pub async fn connect(&self, from: &str, host: &str, port: u16) -> io::Result<Stream> {
        let (latency, answered, refused) = {
            let mut shared = self.lock();
            let answered = !shared.is_blocked(from, host);
            let refused = shared.refused.contains_key(from);
            (shared.latency(), answered, refused)
        };
        if !answered {
            pending::<()>().await;
        }
        sleep(latency * 2).await;
        let service = self.lock().services.get(&(host.to_owned(), port)).cloned();
        let Some(service) = service.filter(|service| service.is_up() && !refused) else {
            return Err(io::ErrorKind::ConnectionRefused.into());
        };
        self.lock().counts.connections += 1;
        let (ours, theirs) = stream::pair(self, from, host);
        tokio::spawn(service.serve(theirs));
        Ok(ours)
    }

    /// Returns the counts of events so far.
    pub fn counts(&self) -> Counts {
        self.lock().counts
    }

    /// Returns the number of connections to a host that its clients have not closed.
    pub fn open_connections(&self, host: &str) -> usize {
        self.lock().open.get(host).copied().unwrap_or(0)
    }

    pub(crate) fn opened(&self, host: &Arc<str>) {
        *self.lock().open.entry(host.clone()).or_default() += 1;
    }

    pub(crate) fn closed(&self, host: &Arc<str>) {
        if let Some(open) = self.lock().open.get_mut(host) {
            *open -= 1;
        }
    }

    /// Returns a hash of every message that was sent, with its time and its hosts.
    pub fn trace(&self) -> u64 {
        self.lock().trace
    }

    /// Prints every message from now on, with its time, its hosts and its fate.
    pub fn print(&self) {
        self.lock().prints = true;
    }

    /// Decides the fate of a message, and its delay.
    pub(crate) fn send(&self, from: &str, to: &str, message: &[u8]) -> (Delivery, Duration) {
        let mut shared = self.lock();
        shared.note(from, to, message);
        let mut latency = shared.latency();
        let fate = match shared.next_fault(from, to) {
            None => Delivery::Delivered,
            Some(MessageFault::Cut) => Delivery::Lost,
            Some(MessageFault::CutAfter) => Delivery::LastDelivered,
            Some(MessageFault::BlackHole) => Delivery::BlackHole,
            Some(MessageFault::Stall(by)) => {
                latency += by;
                Delivery::Delivered
            }
            Some(MessageFault::Late(by)) => {
                latency += by;
                Delivery::Late
            }
            Some(MessageFault::Duplicate(by)) => {
                shared.repeat(self, (from, to), message, latency + by);
                Delivery::Delivered
            }
        };
        if shared.prints {
            let now = shared.begun.elapsed();
            let text = message.escape_ascii();
            eprintln!("{now:?} {from} -> {to} {fate:?} in {latency:?}: {text}");
        }
        (fate, latency)
    }

    pub(crate) fn latency(&self) -> Duration {
        self.lock().latency()
    }

    /// Returns whether the link is blocked now. The reader is woken when that ends.
    pub(crate) fn blocks(&self, from: &str, to: &str, reader: &Waker) -> bool {
        let mut shared = self.lock();
        let blocked = shared.is_blocked(from, to);
        if blocked {
            shared.waiting.push(reader.clone());
        }
        blocked
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// Draws a latency: short mostly, and now and then much longer.
    fn latency(&mut self) -> Duration {
        let (most, some) = self.latency;
        let longest = if self.random.below(50) == 0 {
            some
        } else {
            most
        };
        Duration::from_millis(1 + self.random.below(longest))
    }

    fn is_blocked(&self, from: &str, to: &str) -> bool {
        let mut blocked = self.blocked.keys();
        blocked.any(|(one, other)| (&**one, &**other) == (from, to))
    }

    /// Delivers a message once more, later, on a connection of its own.
    fn repeat(&self, network: &Network, (from, to): (&str, &str), message: &[u8], by: Duration) {
        let mut services = self.services.iter();
        let found = services.find(|((host, _), _)| host == to);
        // A reply or a push has no second connection to arrive on.
        let Some((_, service)) = found else { return };
        let (service, message) = (service.clone(), message.to_vec());
        let (network, from, to) = (network.clone(), format!("copy of {from}"), to.to_owned());
        tokio::spawn(async move {
            sleep(by).await;
            if !service.is_up() {
                return;
            }
            // The connection is made only here, since the network is locked while a message is sent.
            let (mut copy, theirs) = stream::pair(&network, &from, &to);
            tokio::spawn(service.serve(theirs));
            let _ = copy.write_all(&message).await;
            // The reply has no reader.
            sleep(Duration::from_secs(1)).await;
        });
    }

    fn next_fault(&mut self, from: &str, to: &str) -> Option<MessageFault> {
        if self.next.is_empty() {
            return None;
        }
        let fault = self.next.get_mut(&(from.into(), to.into()))?.pop_front();
        self.counts.faults += u64::from(fault.is_some());
        fault
    }

    fn wake_readers(&mut self) {
        for reader in std::mem::take(&mut self.waiting) {
            reader.wake();
        }
    }

    /// Adds a message to the hash (FNV-1a) of everything that can be seen on the wire.
    fn note(&mut self, from: &str, to: &str, message: &[u8]) {
        self.counts.messages += 1;
        let now = self.begun.elapsed().as_micros().to_le_bytes();
        let parts: [&[u8]; 4] = [&now, from.as_bytes(), to.as_bytes(), message];
        for byte in parts.into_iter().flatten() {
            self.trace = (self.trace ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// Removes one reason.
fn release<K: Ord>(reasons: &mut BTreeMap<K, u32>, key: &K) {
    if let Some(count) = reasons.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            reasons.remove(key);
        }
    }
}
