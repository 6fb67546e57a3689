//! A network that misbehaves on request: a proxy that understands RESP, between a client and a server.
//!
//! Requests and replies are forwarded frame by frame, and each reply is matched with its request, so that a [`Fault`] can
//! hit exactly the exchange a test is about. On a real network (`transport.rs`) the proxy runs on a thread of its own:
//! blocking tests can use it, and a test that freezes its runtime does not freeze the network with it.
//!
//! A request that the proxy has read and a fault delays is delivered for as long as the proxy lives, even if the client
//! closes its connection in the meantime. Kernels and middleboxes do the same, and so a request can be executed after its
//! undo.

#[path = "proxy/connection.rs"]
mod connection;
#[path = "proxy/places.rs"]
mod places;
#[path = "proxy/rule.rs"]
mod rule;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use tokio::sync::watch;

use self::connection::{Answer, Cut};
use self::places::PortMap;
pub(crate) use self::rule::{Fault, Match};
use self::rule::{Injection, Rule};
use super::transport::{Listener, Port, Stream};

/// A proxy on a port of its own. Without rules it changes nothing.
pub(crate) struct ChaosProxy {
    shared: Arc<Shared>,
    addr: SocketAddr,
    url: String,
    /// The proxies of the other servers.
    others: Vec<Self>,
    /// Every connection ends when this is dropped.
    _listener: Listener,
}

impl ChaosProxy {
    pub(crate) fn start(upstream: SocketAddr) -> Self {
        Self::start_before(&[upstream], |proxies| format!("redis://{}/", proxies[0]))
    }

    /// Starts one proxy for each of these servers, which are the nodes of a cluster, or a master and its sentinels. Rules
    /// apply to the first server only; the proxies of the others forward, and rewrite the addresses in replies, so that
    /// clients connect through the proxies. `url` makes the client's address of the proxies' addresses.
    pub(crate) fn start_before(
        servers: &[SocketAddr],
        url: impl FnOnce(&[SocketAddr]) -> String,
    ) -> Self {
        let ports: Vec<Port> = servers.iter().map(|_| Port::bind()).collect();
        let proxies: Vec<SocketAddr> = ports.iter().map(Port::addr).collect();
        let places = Arc::new(PortMap::new(servers, &proxies));
        let each = ports.into_iter().zip(servers);
        let mut each = each.map(|(port, server)| Self::on(port, *server, places.clone()));
        let mut first = each.next().expect("there is a server");
        first.url = url(&proxies);
        first.others = each.collect();
        first
    }

    fn on(port: Port, upstream: SocketAddr, places: Arc<PortMap>) -> Self {
        let addr = port.addr();
        let shared = Arc::new(Shared {
            upstream,
            places,
            book: Mutex::default(),
            deliver_held: watch::Sender::new(0),
            partitioned: watch::Sender::new(false),
        });
        let listener = port.serve({
            let shared = Arc::clone(&shared);
            move |number, client| accept(number, client, &shared)
        });
        Self {
            shared,
            addr,
            url: String::new(),
            others: Vec::new(),
            _listener: listener,
        }
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    /// Returns the url with a parameter, `name=value`; an empty parameter adds nothing.
    pub(crate) fn url_with(&self, parameter: &str) -> String {
        match (parameter, self.url.contains('?')) {
            ("", _) => self.url(),
            (_, true) => format!("{}&{parameter}", self.url),
            (_, false) => format!("{}?{parameter}", self.url),
        }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Does `what` to the requests that `when` selects. Every rule counts the requests that it selects; if several apply to
    /// the same request, the one added first decides.
    pub(crate) fn rule(&self, when: Match, what: Fault) {
        self.shared.book().rules.push(Rule::new(when, what));
    }

    /// Removes the rules. The requests and replies that they hold already stay held.
    pub(crate) fn clear_rules(&self) {
        self.shared.book().rules.clear();
    }

    /// Forwards every request and reply that [`Fault::HoldRequest`] or [`Fault::HoldReply`] holds at this moment.
    pub(crate) fn deliver_held(&self) {
        self.shared.deliver_held.send_modify(|times| *times += 1);
    }

    /// Closes the client's side of every connection. Requests that the proxy has read are still delivered.
    pub(crate) fn cut_all(&self) {
        let cuts = std::mem::take(&mut self.shared.book().cuts);
        for cut in cuts.iter().filter_map(Weak::upgrade) {
            cut.make();
        }
    }

    /// Partitions the network: while on, nothing is forwarded either way, not even the end of a connection. The backlog is
    /// forwarded once the partition is off again.
    pub(crate) fn partition(&self, on: bool) {
        self.shared.partitioned.send_replace(on);
    }

    /// Refuses connections: while on, new connections are closed as soon as they are made. The existing ones stay.
    pub(crate) fn refuse(&self, on: bool) {
        self.shared.book().refusing = on;
    }

    /// Returns the faults that took effect, oldest first, each as `Fault: the request`.
    ///
    /// A fault on the request's way is listed once the request has arrived, one on the reply's way once the reply was read:
    /// the server has then executed the request, for [`Fault::DuplicateRequest`] twice.
    pub(crate) fn injected(&self) -> Vec<String> {
        let book = self.shared.book();
        book.injected
            .iter()
            .map(|fault| fault.text.clone())
            .collect()
    }

    /// Returns the requests that arrived by the same connection as a fault, given by its entry in
    /// [`injected`](Self::injected).
    pub(crate) fn beside(&self, fault: &str) -> Vec<Vec<String>> {
        let book = self.shared.book();
        let fault = book.injected.iter().find(|known| known.text == fault);
        let connection = fault.expect("it took effect").connection;
        let requests = book.requests.iter();
        let beside = requests.filter(|(by, _)| *by == connection);
        beside.map(|(_, words)| words.clone()).collect()
    }

    /// Returns the last 10,000 requests that arrived, oldest first, whether they were forwarded or not.
    pub(crate) fn requests(&self) -> Vec<Vec<String>> {
        let book = self.shared.book();
        book.requests
            .iter()
            .map(|(_, words)| words.clone())
            .collect()
    }

    /// Returns how many requests the server has not answered yet, including those that a fault holds: if there are none, the
    /// server has executed every request that was ever sent. Subscriptions do not count.
    pub(crate) fn unanswered(&self) -> usize {
        self.shared.book().unanswered
    }

    pub(crate) fn clear_requests(&self) {
        self.shared.book().requests.clear();
    }
}

/// The state that the proxy's handle and its connections share.
struct Shared {
    upstream: SocketAddr,
    places: Arc<PortMap>,
    book: Mutex<Book>,
    /// How often [`ChaosProxy::deliver_held`] was called.
    deliver_held: watch::Sender<u64>,
    partitioned: watch::Sender<bool>,
}

impl Shared {
    /// Records a request that arrived by this connection, and returns the fault to apply to it.
    fn arrived(&self, connection: u64, words: &[Vec<u8>]) -> Option<Injection> {
        let mut book = self.book();
        if book.requests.len() == REQUESTS_KEPT {
            book.requests.pop_front();
        }
        let request = words
            .iter()
            .map(|word| String::from_utf8_lossy(word).into_owned());
        let request = request.collect();
        book.requests.push_back((connection, request));

        let mut fault = None;
        for rule in &mut book.rules {
            let fired = rule.fires(words);
            fault = fault.or(fired);
        }
        fault.map(|fault| Injection::new(fault, connection, words))
    }

    /// Adds replies that the server owes.
    fn expects(&self, answers: &[Answer]) {
        let replies = answers.iter().filter(|answer| answer.is_reply());
        self.book().unanswered += replies.count();
    }

    fn answered(&self) {
        self.book().unanswered -= 1;
    }

    fn record(&self, injection: Injection) {
        self.book().injected.push(injection);
    }

    /// Waits until the network is not partitioned.
    async fn healed(&self) {
        let mut partitioned = self.partitioned.subscribe();
        partitioned
            .wait_for(|on| !on)
            .await
            .expect("the sender is in `self`");
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        // Only a test's own closure can poison it, and the proxy's drop passes its panic on.
        self.book
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[derive(Default)]
struct Book {
    rules: Vec<Rule>,
    /// Each with the number of its connection.
    requests: VecDeque<(u64, Vec<String>)>,
    injected: Vec<Injection>,
    unanswered: usize,
    cuts: Vec<Weak<Cut>>,
    refusing: bool,
}

/// Serves a connection, or closes it.
fn accept(number: u64, client: Stream, shared: &Arc<Shared>) -> impl Future<Output = ()> + use<> {
    let cut = Arc::new(Cut::new());
    let mut book = shared.book();
    let refused = book.refusing;
    book.cuts.retain(|cut| cut.strong_count() > 0);
    book.cuts.push(Arc::downgrade(&cut));
    drop(book);
    let shared = Arc::clone(shared);
    async move {
        if !refused {
            connection::run(number, client, shared, cut).await;
        }
    }
}

const REQUESTS_KEPT: usize = 10_000;
