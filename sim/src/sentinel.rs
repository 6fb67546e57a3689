//! A simulated sentinel: its observations of a master and its replicas, its conclusions, and its actions.
//!
//! It follows the rules of Redis 7 in simple form: a server that is silent for `down-after` is subjectively down, a quorum of sentinels
//! makes it objectively down, a majority elects the sentinel that fails over, and each failover has an epoch. Sentinels greet each other
//! through the servers that they watch, so that a partition separates them as it does real ones. Orders and requests to other hosts take no
//! time, but pass no cut link.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use crate::core::Core;
use crate::random::Random;
use crate::server::Fault;
use crate::{Clock, Network, Server, Value, pubsub};

/// A host and a port.
pub(crate) type Address = (String, u16);

/// A simulated sentinel. Clones are the same one.
///
/// Its commands, users and connections are those of a [`Server`] that is one: [`Sentinel::server`].
#[derive(Clone, Debug)]
pub struct Sentinel {
    server: Server,
    network: Network,
    address: Address,
}

impl Sentinel {
    /// Starts a sentinel that watches nothing yet. It needs a runtime, with which it ends.
    pub fn start(network: &Network, clock: Clock, seed: u64, host: &str, port: u16) -> Self {
        let server = Server::new(clock, seed);
        server.set_address(host, port);
        {
            let mut inner = server.lock();
            let core = inner.core();
            let state = State::new(core.random.run_id());
            core.sentinel = Some(Box::new(state));
        }
        network.listen(host, port, &server);
        let address = (host.to_owned(), port);
        Self {
            server,
            network: network.clone(),
            address,
        }
    }

    /// Returns the server that clients of this sentinel talk to: it can be killed, be stalled, and have users.
    pub const fn server(&self) -> &Server {
        &self.server
    }

    /// Executes a command as an administrator.
    pub fn call(&self, request: &[&str]) -> Value {
        let request: Vec<&[u8]> = request.iter().map(|word| word.as_bytes()).collect();
        self.server.call(&request)
    }

    /// Has the sentinel report another address and epoch of every master than it believes in, or ends that.
    pub fn claim(&self, claim: Option<(&str, u16, u64)>) {
        let claim = claim.map(|(host, port, epoch)| ((host.to_owned(), port), epoch));
        self.with(|state| state.claim = claim);
    }

    /// Has the sentinel publish nothing, or ends that. Messages of that time are lost.
    pub fn set_silent(&self, is_silent: bool) {
        self.with(|state| state.is_silent = is_silent);
    }

    /// Sets how long the sentinel takes to answer `HELLO`.
    pub fn set_greeting_delay(&self, delay: Duration) {
        self.with(|state| state.delay = delay);
    }

    /// Returns the address that the sentinel believes a master to have.
    pub fn master(&self, name: &str) -> Option<(String, u16)> {
        self.with(|state| Some(state.masters.get(name)?.address().clone()))
    }

    /// Returns whether the sentinel misses no server and replaces no master.
    pub fn is_calm(&self) -> bool {
        self.with(|state| state.is_calm())
    }

    /// Returns the number of other sentinels that this one knows.
    pub(crate) fn peers(&self, name: &str) -> usize {
        self.with(|state| {
            state
                .masters
                .get(name)
                .map_or(0, |master| master.peers.len())
        })
    }

    /// Watches for as long as the runtime runs, or until it is aborted.
    pub(crate) fn watch(&self) -> AbortHandle {
        let sentinel = self.clone();
        let task = tokio::spawn(async move {
            let phase = sentinel.server.lock().core().random.below(100);
            sleep(Duration::from_millis(phase)).await;
            loop {
                let is_calm = sentinel.is_calm();
                sleep(if is_calm { CALM } else { TICK }).await;
                sentinel.tick();
            }
        });
        task.abort_handle()
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let mut inner = self.server.lock();
        let state = inner.core().sentinel.as_mut();
        act(state.expect("this server is a sentinel"))
    }

    /// Polls all servers and sentinels once, and acts on the results.
    fn tick(&self) {
        let now = Instant::now();
        let (addresses, questions) = {
            let mut inner = self.server.lock();
            let is_alive = inner.is_alive;
            let core = inner.core();
            if !is_alive || core.stalled_until.is_some_and(|until| until > now) {
                return;
            }
            let state = core.sentinel.as_mut().expect("this server is a sentinel");
            if now - state.ticked > STOPPED {
                state.forgive(now);
            }
            state.ticked = now;
            (state.addresses(), state.questions())
        };
        let seen = addresses.into_iter();
        let seen = seen.filter_map(|address| Some((address.clone(), self.observe(&address)?)));
        let seen: BTreeMap<Address, ServerState> = seen.collect();
        let peers: Vec<(Address, Answer)> = questions
            .iter()
            .filter_map(|(address, question)| {
                let peer = self
                    .network
                    .reach(&self.address.0, (&address.0, address.1))?;
                let answer = peer.if_running(|core| {
                    let Core {
                        sentinel, random, ..
                    } = core;
                    Some(sentinel.as_mut()?.answer(question, random))
                })??;
                Some((address.clone(), answer))
            })
            .collect();
        let mut inner = self.server.lock();
        let core = inner.core();
        let mut state = core.sentinel.take().expect("this server is a sentinel");
        let orders = state.advance(&self.address, &seen, &peers, &mut core.random);
        core.sentinel = Some(state);
        self.publish(core);
        drop(inner);
        for order in orders {
            self.carry_out(order);
        }
    }

    fn publish(&self, core: &mut Core) {
        let Some(state) = &mut core.sentinel else {
            return;
        };
        let (events, is_silent) = (std::mem::take(&mut state.events), state.is_silent);
        for (channel, message) in events.iter().filter(|_| !is_silent) {
            pubsub::publish(core, channel.as_bytes(), message.as_bytes());
        }
    }

    /// Polls one server, and returns its state if it answers.
    fn observe(&self, (host, port): &Address) -> Option<ServerState> {
        let server = self.network.reach(&self.address.0, (host, *port))?;
        server.if_running(|core| {
            core.catch_up();
            ServerState {
                run_id: core.run_id.clone(),
                of: core
                    .master
                    .as_ref()
                    .map(|link| (link.master.clone(), link.is_up())),
                offset: core.offset,
                replicas: core
                    .replicas
                    .iter()
                    .filter(|link| link.is_up())
                    .map(|link| link.replica.clone())
                    .collect(),
                greetings: core.greetings.values().cloned().collect(),
            }
        })
    }

    fn carry_out(&self, order: Order) {
        let reach =
            |address: &Address| self.network.reach(&self.address.0, (&address.0, address.1));
        match order {
            Order::Greet(address, greeting) => {
                let server = reach(&address);
                server.and_then(|server| {
                    server.if_running(|core| core.greetings.insert(greeting.key(), greeting))
                });
            }
            Order::Promote(address) => {
                let server = reach(&address);
                server.and_then(|server| {
                    server.if_running(|core| {
                        core.promote();
                        core.drop_clients();
                    })
                });
            }
            Order::Follow(address, master) => {
                let Some(server) = reach(&address) else {
                    return;
                };
                let master = self.network.reach(&address.0, (&master.0, master.1));
                let Some(master) = master.filter(Server::is_alive) else {
                    return;
                };
                if server.if_running(|core| core.drop_clients()).is_some() {
                    let lag = server.lock().core().lag;
                    server.follow(&master, lag);
                }
            }
        }
    }
}

impl Server {
    /// Acts on a server that is alive and answers.
    fn if_running<T>(&self, act: impl FnOnce(&mut Core) -> T) -> Option<T> {
        let mut inner = self.lock();
        let is_alive = inner.is_alive;
        let core = inner.core();
        let is_stalled = core
            .stalled_until
            .is_some_and(|until| until > Instant::now());
        let answers = is_alive && !is_stalled && core.fault != Some(Fault::Busy);
        answers.then(|| act(core))
    }
}

impl Core {
    /// Closes the connections of all clients, as a sentinel makes every server do whose role it changes.
    fn drop_clients(&mut self) {
        for client in self.clients.values() {
            client.outbox.close();
        }
    }
}

/// The state of a sentinel.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) id: String,
    epoch: u64,
    pub(crate) masters: BTreeMap<String, Master>,
    /// The address and the epoch that it reports instead of those it believes in.
    pub(crate) claim: Option<(Address, u64)>,
    is_silent: bool,
    pub(crate) delay: Duration,
    ticked: Instant,
    /// The messages to publish, each with its channel.
    events: Vec<(&'static str, String)>,
}

/// A master that a sentinel watches, with its replicas and the other sentinels.
#[derive(Debug)]
pub(crate) struct Master {
    name: String,
    configured: Address,
    pub(crate) epoch: u64,
    pub(crate) quorum: usize,
    pub(crate) down_after: Duration,
    pub(crate) failover_timeout: Duration,
    /// The master and its replicas.
    pub(crate) servers: BTreeMap<Address, Instance>,
    /// The other sentinels, by their ids.
    pub(crate) peers: BTreeMap<String, (Address, Instance)>,
    /// The epoch of the last vote, and the sentinel that received it.
    vote: (u64, String),
    pub(crate) is_down: bool,
    pub(crate) failover: Option<Failover>,
    /// The moment before which no failover is begun.
    not_before: Instant,
    greets_at: Instant,
}

/// A server or a sentinel, as another sentinel knows it.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    pub(crate) run_id: String,
    /// The time of its last answer.
    pub(crate) heard: Instant,
    pub(crate) is_down: bool,
    /// The master that it reports to follow, and whether that link is up.
    pub(crate) of: Option<(Address, bool)>,
    /// The moment since which it has reported that master, or to be one.
    pub(crate) since: Instant,
    /// The last time that its link was up.
    linked: Instant,
    pub(crate) offset: u64,
}

/// A failover under way.
#[derive(Clone, Debug)]
pub(crate) struct Failover {
    epoch: u64,
    begun: Instant,
    phase: Phase,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// Votes are counted.
    Election,
    /// An operator has ordered it, or the election is won.
    Selection,
    /// A replica was promoted; from this moment on it is asked whether it is a master.
    Promotion(Address, Instant),
    /// The other replicas are to follow the new master.
    Reconfiguration(Address),
}

/// The state of a server when it was polled.
struct ServerState {
    run_id: String,
    of: Option<(Address, bool)>,
    offset: u64,
    replicas: Vec<Address>,
    greetings: Vec<Greeting>,
}

/// A sentinel's message to the others, through a server that they watch too.
#[derive(Clone, Debug)]
pub(crate) struct Greeting {
    id: String,
    sentinel: Address,
    epoch: u64,
    name: String,
    master: Address,
    master_epoch: u64,
}

impl Greeting {
    fn key(&self) -> String {
        format!("{} {}", self.id, self.name)
    }
}

/// `SENTINEL IS-MASTER-DOWN-BY-ADDR`: the master, the epoch, and the candidate, if any.
#[derive(Clone, Debug)]
struct Question {
    name: String,
    master: Address,
    epoch: u64,
    candidate: Option<String>,
}

#[derive(Clone, Debug)]
struct Answer {
    name: String,
    is_down: bool,
    vote: (u64, String),
}

enum Order {
    Greet(Address, Greeting),
    Promote(Address),
    Follow(Address, Address),
}

impl State {
    fn new(id: String) -> Self {
        Self {
            id,
            epoch: 0,
            masters: BTreeMap::new(),
            claim: None,
            is_silent: false,
            delay: Duration::ZERO,
            ticked: Instant::now(),
            events: Vec::new(),
        }
    }

    /// Returns the masters' names.
    pub(crate) fn names(&self) -> impl Iterator<Item = &String> {
        self.masters.keys()
    }

    /// Begins to watch a master.
    pub(crate) fn monitor(&mut self, name: &str, master: Address, quorum: usize) {
        let now = Instant::now();
        let watched = Master {
            name: name.to_owned(),
            servers: BTreeMap::from([(master.clone(), Instance::new(now, None))]),
            configured: master,
            epoch: 0,
            quorum,
            down_after: Duration::from_secs(30),
            failover_timeout: Duration::from_secs(180),
            peers: BTreeMap::new(),
            vote: (0, String::new()),
            is_down: false,
            failover: None,
            not_before: now,
            greets_at: now,
        };
        self.masters.insert(name.to_owned(), watched);
    }

    /// Begins a failover by an operator's order.
    pub(crate) fn fail_over(&mut self, name: &str) -> Result<(), &'static str> {
        let now = Instant::now();
        let master = self
            .masters
            .get_mut(name)
            .ok_or("ERR No such master with that name")?;
        if master.failover.is_some() {
            return Err("INPROG Failover already in progress");
        }
        if master.best_replica(now).is_none() {
            return Err("NOGOODSLAVE No suitable replica to promote");
        }
        self.epoch += 1;
        master.failover = Some(Failover {
            epoch: self.epoch,
            begun: now,
            phase: Phase::Selection,
        });
        Ok(())
    }

    fn is_calm(&self) -> bool {
        self.masters.values().all(|master| {
            let is_up = |instance: &Instance| !instance.is_down && instance.heard == self.ticked;
            let servers = master.servers.values();
            master.failover.is_none() && servers.clone().all(is_up)
        })
    }

    /// Disregards the time in which this sentinel was stalled: silence in that time says nothing about others.
    fn forgive(&mut self, now: Instant) {
        for master in self.masters.values_mut() {
            let peers = master.peers.values_mut().map(|(_, peer)| peer);
            for instance in master.servers.values_mut().chain(peers) {
                instance.heard = now;
            }
        }
    }

    fn addresses(&self) -> BTreeSet<Address> {
        let masters = self.masters.values();
        masters
            .flat_map(|master| master.servers.keys().cloned())
            .collect()
    }

    fn questions(&self) -> Vec<(Address, Question)> {
        let mut questions = Vec::new();
        for master in self.masters.values() {
            let election = master
                .failover
                .as_ref()
                .filter(|failover| failover.phase == Phase::Election);
            let question = Question {
                name: master.name.clone(),
                master: master.configured.clone(),
                epoch: self.epoch,
                candidate: election.map(|_| self.id.clone()),
            };
            let peers = master.peers.values();
            questions.extend(peers.map(|(address, _)| (address.clone(), question.clone())));
        }
        questions
    }

    /// Answers another sentinel, which may want a vote.
    fn answer(&mut self, question: &Question, random: &mut Random) -> Answer {
        let Question {
            name,
            master: address,
            epoch,
            candidate,
        } = question;
        let none = Answer {
            name: name.clone(),
            is_down: false,
            vote: (0, String::new()),
        };
        let Some(master) = self
            .masters
            .get_mut(name)
            .filter(|master| master.configured == *address)
        else {
            return none;
        };
        if let Some(candidate) = candidate {
            self.epoch = self.epoch.max(*epoch);
            if master.vote.0 < *epoch && self.epoch == *epoch {
                master.vote = (*epoch, candidate.clone());
                master.put_off(random);
                self.events
                    .push(("+vote-for-leader", format!("{candidate} {epoch}")));
            }
        }
        Answer {
            is_down: master.is_subjectively_down(),
            vote: master.vote.clone(),
            ..none
        }
    }

    /// Draws the conclusions from the observations and answers.
    fn advance(
        &mut self,
        own: &Address,
        seen: &BTreeMap<Address, ServerState>,
        answers: &[(Address, Answer)],
        random: &mut Random,
    ) -> Vec<Order> {
        let mut orders = Vec::new();
        let Self {
            id,
            epoch,
            masters,
            events,
            ..
        } = self;
        for master in masters.values_mut() {
            let mut step = Step {
                id,
                own,
                epoch,
                master,
                events,
                random,
                orders: &mut orders,
                now: Instant::now(),
            };
            step.notice(seen, answers);
            step.hear(seen);
            step.judge(answers);
            step.fail_over(seen, answers);
            step.repair(seen);
            step.greet(seen);
        }
        orders
    }

    /// Returns the fields of `INFO`'s section about sentinels.
    pub(crate) fn info(&self) -> Vec<(String, String)> {
        let mut fields = vec![
            (
                "sentinel_masters".to_owned(),
                self.masters.len().to_string(),
            ),
            ("sentinel_tilt".to_owned(), "0".to_owned()),
        ];
        for (number, master) in self.masters.values().enumerate() {
            let status = if master.is_down {
                "odown"
            } else if master.is_subjectively_down() {
                "sdown"
            } else {
                "ok"
            };
            let (host, port) = master.address();
            let text = format!(
                "name={},status={status},address={host}:{port},slaves={},sentinels={}",
                master.name,
                master.servers.len() - 1,
                master.peers.len() + 1
            );
            fields.push((format!("master{number}"), text));
        }
        fields
    }
}

impl Instance {
    fn new(now: Instant, of: Option<Address>) -> Self {
        Self {
            run_id: String::new(),
            heard: now,
            is_down: false,
            of: of.map(|master| (master, false)),
            since: now,
            linked: now,
            offset: 0,
        }
    }
}

impl Master {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the address that clients are sent to: that of the promoted replica as soon as it is a master.
    pub(crate) fn address(&self) -> &Address {
        match &self.failover {
            Some(Failover {
                phase: Phase::Reconfiguration(promoted),
                ..
            }) => promoted,
            _ => &self.configured,
        }
    }

    fn is_subjectively_down(&self) -> bool {
        self.servers
            .get(&self.configured)
            .is_some_and(|master| master.is_down)
    }

    /// Returns the replicas, by their addresses.
    pub(crate) fn replicas(&self) -> impl Iterator<Item = (&Address, &Instance)> {
        let servers = self.servers.iter();
        servers.filter(|(address, _)| **address != self.configured)
    }

    /// Puts off the next failover by twice its time, since another sentinel has one of its own.
    fn put_off(&mut self, random: &mut Random) {
        let desync = Duration::from_millis(random.below(1000));
        self.not_before = Instant::now() + desync + 2 * self.failover_timeout;
    }

    /// Returns the replica with the most data, among those that follow the master and have answered lately.
    fn best_replica(&self, now: Instant) -> Option<Address> {
        let down_for = self
            .servers
            .get(&self.configured)
            .map_or(Duration::ZERO, |master| now - master.heard);
        let is_fit = |replica: &Instance| {
            let is_near = now - replica.linked <= down_for + 10 * self.down_after;
            !replica.is_down && replica.of.is_some() && now - replica.heard < FRESH && is_near
        };
        let fit = self.replicas().filter(|(_, replica)| is_fit(replica));
        let best = fit.max_by_key(|(_, replica)| (replica.offset, Reverse(replica.run_id.clone())));
        best.map(|(address, _)| address.clone())
    }

    /// Accepts another master; the old one becomes one of its replicas.
    fn switch_to(&mut self, new: &Address, now: Instant) {
        self.servers
            .entry(new.clone())
            .or_insert_with(|| Instance::new(now, None));
        for (address, instance) in &mut self.servers {
            let of = (address != new).then(|| new.clone());
            let run_id = std::mem::take(&mut instance.run_id);
            *instance = Instance {
                run_id,
                ..Instance::new(now, of)
            };
        }
        self.configured = new.clone();
        self.is_down = false;
        self.failover = None;
    }
}

/// One poll of a sentinel for one of its masters.
struct Step<'a> {
    id: &'a str,
    own: &'a Address,
    epoch: &'a mut u64,
    master: &'a mut Master,
    events: &'a mut Vec<(&'static str, String)>,
    random: &'a mut Random,
    orders: &'a mut Vec<Order>,
    now: Instant,
}

impl Step<'_> {
    /// Publishes an event about the master, or about one of its servers.
    fn event(&mut self, channel: &'static str, about: Option<&Address>) {
        let (host, port) = &self.master.configured;
        let master = format!("{} {host} {port}", self.master.name);
        let message = match about.filter(|address| **address != self.master.configured) {
            Some((host, port)) => format!("slave {host}:{port} {host} {port} @ {master}"),
            None => format!("master {master}"),
        };
        self.events.push((channel, message));
    }

    /// Records which servers and sentinels have answered.
    fn notice(&mut self, seen: &BTreeMap<Address, ServerState>, answers: &[(Address, Answer)]) {
        let now = self.now;
        let master = &mut *self.master;
        let replicas = seen.get(&master.configured).into_iter();
        for replica in replicas.flat_map(|seen| &seen.replicas) {
            let of = master.configured.clone();
            let replica = master.servers.entry(replica.clone());
            replica.or_insert_with(|| Instance::new(now, Some(of)));
        }
        let mut events = Vec::new();
        for (address, instance) in &mut master.servers {
            if let Some(seen) = seen.get(address) {
                let of =
                    |of: &Option<(Address, bool)>| of.as_ref().map(|(master, _)| master.clone());
                if of(&instance.of) != of(&seen.of) {
                    instance.since = now;
                }
                let is_up = seen.of.as_ref().is_some_and(|(_, is_up)| *is_up);
                *instance = Instance {
                    run_id: seen.run_id.clone(),
                    heard: now,
                    is_down: instance.is_down,
                    of: seen.of.clone(),
                    since: instance.since,
                    linked: if is_up { now } else { instance.linked },
                    offset: seen.offset,
                };
            }
            let is_wrong = *address == master.configured
                && instance.of.is_some()
                && now - instance.since > master.down_after + FRESH;
            let is_down = now - instance.heard > master.down_after || is_wrong;
            if is_down != instance.is_down {
                instance.is_down = is_down;
                events.push((if is_down { "+sdown" } else { "-sdown" }, address.clone()));
            }
        }
        for (address, peer) in master.peers.values_mut() {
            if answers.iter().any(|(answering, _)| answering == address) {
                peer.heard = now;
            }
            peer.is_down = now - peer.heard > master.down_after;
        }
        for (channel, address) in events {
            self.event(channel, Some(&address));
        }
    }

    /// Learns from the messages of other sentinels at the servers that both watch.
    fn hear(&mut self, seen: &BTreeMap<Address, ServerState>) {
        let (id, name) = (self.id, self.master.name.clone());
        let servers: Vec<Address> = self.master.servers.keys().cloned().collect();
        let greetings = servers
            .iter()
            .filter_map(|server| seen.get(server))
            .flat_map(|seen| &seen.greetings);
        for greeting in greetings.filter(|greeting| greeting.name == name && greeting.id != id) {
            let now = self.now;
            let peer = self.master.peers.entry(greeting.id.clone());
            peer.or_insert_with(|| (greeting.sentinel.clone(), Instance::new(now, None)));
            *self.epoch = greeting.epoch.max(*self.epoch);
            if greeting.master_epoch > self.master.epoch {
                self.master.epoch = greeting.master_epoch;
                if greeting.master != self.master.configured {
                    let (host, port) = &greeting.sentinel;
                    let from = format!("sentinel {} {host} {port} @ {name}", greeting.id);
                    self.events.push(("+config-update-from", from));
                    self.switch_to(&greeting.master);
                }
            }
        }
    }

    fn switch_to(&mut self, new: &Address) {
        let (old_host, old_port) = &self.master.configured;
        let (host, port) = new;
        let message = format!("{} {old_host} {old_port} {host} {port}", self.master.name);
        self.events.push(("+switch-master", message));
        self.master.switch_to(new, self.now);
    }

    /// Calls the master down if a quorum does.
    fn judge(&mut self, answers: &[(Address, Answer)]) {
        let others = answers
            .iter()
            .filter(|(_, answer)| answer.name == self.master.name && answer.is_down);
        let is_down =
            self.master.is_subjectively_down() && others.count() + 1 >= self.master.quorum;
        if is_down != self.master.is_down {
            self.master.is_down = is_down;
            self.event(if is_down { "+odown" } else { "-odown" }, None);
        }
        if is_down && self.master.failover.is_none() && self.now >= self.master.not_before {
            *self.epoch += 1;
            self.master.failover = Some(Failover {
                epoch: *self.epoch,
                begun: self.now,
                phase: Phase::Election,
            });
            self.master.put_off(self.random);
            self.event("+try-failover", None);
        }
    }

    fn fail_over(&mut self, seen: &BTreeMap<Address, ServerState>, answers: &[(Address, Answer)]) {
        let Some(mut failover) = self.master.failover.take() else {
            return;
        };
        let age = self.now - failover.begun;
        let timeout = self.master.failover_timeout;
        if failover.phase == Phase::Election {
            if self.is_elected(failover.epoch, answers) {
                self.event("+elected-leader", None);
                failover.phase = Phase::Selection;
            } else if age > timeout.min(ELECTION) {
                return self.event("-failover-abort-not-elected", None);
            }
        }
        match failover.phase.clone() {
            Phase::Election => {}
            Phase::Selection => {
                let Some(replica) = self.master.best_replica(self.now) else {
                    return self.event("-failover-abort-no-good-slave", None);
                };
                self.event("+selected-slave", Some(&replica));
                self.orders.push(Order::Promote(replica.clone()));
                // The sentinel asks it for its role once a second.
                let asked = self.now + Duration::from_millis(self.random.below(1000));
                failover.phase = Phase::Promotion(replica, asked);
            }
            Phase::Promotion(replica, asked) => {
                if self.now >= asked && seen.get(&replica).is_some_and(|seen| seen.of.is_none()) {
                    self.master.epoch = failover.epoch;
                    self.event("+promoted-slave", Some(&replica));
                    self.master.greets_at = self.now;
                    let others = self
                        .master
                        .replicas()
                        .filter(|(address, _)| **address != replica);
                    let others =
                        others.map(|(address, _)| Order::Follow(address.clone(), replica.clone()));
                    self.orders.extend(others);
                    failover.phase = Phase::Reconfiguration(replica);
                } else if age > timeout {
                    return self.event("-failover-abort-slave-timeout", None);
                }
            }
            Phase::Reconfiguration(replica) => {
                let follows =
                    |of: &Option<(Address, bool)>| of.as_ref() == Some(&(replica.clone(), true));
                let is_done = |(address, other): (&Address, &Instance)| {
                    *address == replica || other.is_down || follows(&other.of)
                };
                if age > timeout || self.master.replicas().all(is_done) {
                    self.event("+failover-end", None);
                    return self.switch_to(&replica);
                }
            }
        }
        self.master.failover = Some(failover);
    }

    /// Returns whether most sentinels, and a quorum of them, have voted for this one.
    fn is_elected(&mut self, epoch: u64, answers: &[(Address, Answer)]) -> bool {
        if self.master.vote.0 < epoch {
            self.master.vote = (epoch, self.id.to_owned());
        }
        let own = self.master.vote.clone();
        let others = answers
            .iter()
            .filter(|(_, answer)| answer.name == self.master.name);
        let votes = others.map(|(_, answer)| &answer.vote).chain([&own]);
        let votes = votes
            .filter(|(of, candidate)| *of == epoch && candidate == self.id)
            .count();
        let majority = self.master.peers.len().div_ceil(2) + 1;
        votes >= majority.max(self.master.quorum)
    }

    /// Has servers that follow no master, or another one, follow the master.
    fn repair(&mut self, seen: &BTreeMap<Address, ServerState>) {
        let configured = self.master.configured.clone();
        let is_sane = seen
            .get(&configured)
            .is_some_and(|master| master.of.is_none());
        if self.master.failover.is_some() || !is_sane {
            return;
        }
        let now = self.now;
        let stray = self.master.replicas().filter(|(address, replica)| {
            let follows = replica.of.as_ref().is_some_and(|(of, _)| *of == configured);
            !follows && seen.contains_key(*address) && now - replica.since > 4 * GREETING
        });
        let stray: Vec<(Address, bool)> = stray
            .map(|(address, replica)| (address.clone(), replica.of.is_none()))
            .collect();
        for (address, is_master) in stray {
            self.event(
                if is_master {
                    "+convert-to-slave"
                } else {
                    "+fix-slave-config"
                },
                Some(&address),
            );
            self.orders.push(Order::Follow(address, configured.clone()));
        }
    }

    /// Greets the others, at every server that both may reach.
    fn greet(&mut self, seen: &BTreeMap<Address, ServerState>) {
        if self.now < self.master.greets_at {
            return;
        }
        self.master.greets_at = self.now + GREETING;
        let greeting = Greeting {
            id: self.id.to_owned(),
            sentinel: self.own.clone(),
            epoch: *self.epoch,
            name: self.master.name.clone(),
            master: self.master.address().clone(),
            master_epoch: self.master.epoch,
        };
        let servers = self
            .master
            .servers
            .keys()
            .filter(|server| seen.contains_key(*server));
        self.orders
            .extend(servers.map(|server| Order::Greet(server.clone(), greeting.clone())));
    }
}

/// The interval of a sentinel's polls while something is wrong; `CALM` is the interval otherwise.
const TICK: Duration = Duration::from_millis(100);
const CALM: Duration = Duration::from_millis(500);
/// A sentinel that has not polled for this long was stopped.
const STOPPED: Duration = Duration::from_secs(2);
/// The interval between greetings.
const GREETING: Duration = Duration::from_secs(2);
/// The longest duration of an election.
const ELECTION: Duration = Duration::from_secs(10);
/// The greatest age of a server's last answer for it to be promoted.
const FRESH: Duration = Duration::from_secs(5);
