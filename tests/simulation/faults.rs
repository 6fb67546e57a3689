//! The faults of one seed: an ordered list, generated before the world starts, that can be printed and shortened.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use distlock_sim::{Clock, MessageFault, Random, Server};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::world::{HOST, PORT, World};

/// The faults of one seed, in the order of their times.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Schedule(pub(crate) Vec<Event>);

/// One fault, and the time at which it begins, measured from the beginning of the scenario.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Event {
    pub(crate) at: Duration,
    pub(crate) kind: FaultKind,
    pub(crate) fault: Fault,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Fault {
    /// The next message on a link suffers this fault.
    Message {
        from: String,
        to: String,
        fault: MessageFault,
    },
    /// Nothing arrives on a link, or on both of a pair, for this long.
    Partition {
        from: String,
        to: String,
        both: bool,
        lasts: Duration,
    },
    /// The connection attempts of a host are refused for this long.
    Refuse { from: String, lasts: Duration },
    /// A server is down for this long, and keeps its data.
    Down { server: usize, lasts: Duration },
    /// A server executes nothing for this long.
    Stall { server: usize, lasts: Duration },
    /// A server refuses commands for this long.
    State {
        server: usize,
        state: distlock_sim::Fault,
        lasts: Duration,
    },
    /// The process of a client is stopped for this long.
    Stop { client: String, lasts: Duration },
    /// The wall clock of a server is set back.
    SetBack { server: usize, by: Duration },
    /// The wall clock of a server is set forward, which leases do not survive: only for sabotage.
    SetForward { server: usize, by: Duration },
    /// The server restarts without its data, which locks survive only with a `failover_delay`.
    Forget,
    /// The replica lags this far behind.
    Lag(Duration),
    /// The replica is cut off from its master for this long.
    Isolate { lasts: Duration },
    /// The master dies and the replica takes its place this much later, without what had not arrived.
    Promote { after: Duration },
}

/// A kind of fault. Each seed has some of them, since faults hide one another.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum FaultKind {
    Cut,
    CutAfter,
    Delay,
    Late,
    Duplicate,
    BlackHole,
    Partition,
    Refuse,
    Down,
    Stall,
    State,
    Stop,
    SetBack,
    SetForward,
    Forget,
    Lag,
    Isolate,
    Promote,
}

impl FaultKind {
    /// The faults that every lock has to survive.
    pub(crate) const USUAL: [Self; 13] = [
        Self::Cut,
        Self::CutAfter,
        Self::Delay,
        Self::Late,
        Self::Duplicate,
        Self::BlackHole,
        Self::Partition,
        Self::Refuse,
        Self::Down,
        Self::Stall,
        Self::State,
        Self::Stop,
        Self::SetBack,
    ];
    /// Returns the name that the command line has for it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Cut => "cut",
            Self::CutAfter => "cut-after",
            Self::Delay => "delay",
            Self::Late => "late",
            Self::Duplicate => "duplicate",
            Self::BlackHole => "black-hole",
            Self::Partition => "partition",
            Self::Refuse => "refuse",
            Self::Down => "down",
            Self::Stall => "stall",
            Self::State => "state",
            Self::Stop => "stop",
            Self::SetBack => "set-back",
            Self::SetForward => "set-forward",
            Self::Forget => "forget",
            Self::Lag => "lag",
            Self::Isolate => "isolate",
            Self::Promote => "promote",
        }
    }

    /// Returns the longest mean time between two faults of this kind, in seconds.
    const fn rarest(self) -> u64 {
        match self {
            Self::Cut | Self::CutAfter | Self::Delay | Self::Late | Self::Duplicate => 10,
            Self::BlackHole | Self::Partition | Self::Refuse | Self::Stop | Self::Lag => 20,
            _ => 30,
        }
    }

    fn draw(self, random: &mut Random, clients: &[String], servers: usize) -> Fault {
        let index = random.below(clients.len() as u64);
        let client = clients[usize::try_from(index).expect("it is small")].clone();
        let server = usize::try_from(random.below(servers as u64)).expect("it is small");
        let there = server_name(server);
        let (from, to) = match random.percent(50) {
            true => (client.clone(), there.clone()),
            false => (there.clone(), client.clone()),
        };
        let message = |fault| Fault::Message {
            from: from.clone(),
            to: to.clone(),
            fault,
        };
        let request = |fault| Fault::Message {
            from: client.clone(),
            to: there.clone(),
            fault,
        };
        let seconds = Duration::from_secs;
        match self {
            Self::Cut => message(MessageFault::Cut),
            Self::CutAfter => message(MessageFault::CutAfter),
            Self::Delay => message(MessageFault::Stall(random.up_to(seconds(10)))),
            Self::Late => {
                // Most requests are late by little, some by minutes.
                let longest = if random.percent(20) { 300 } else { 10 };
                request(MessageFault::Late(random.up_to(seconds(longest))))
            }
            Self::Duplicate => request(MessageFault::Duplicate(random.up_to(seconds(10)))),
            Self::BlackHole => message(MessageFault::BlackHole),
            Self::Partition => Fault::Partition {
                both: random.percent(30),
                lasts: random.up_to(seconds(8)),
                from,
                to,
            },
            Self::Refuse => Fault::Refuse {
                from: client,
                lasts: random.up_to(seconds(4)),
            },
            Self::Down => Fault::Down {
                server,
                lasts: random.up_to(seconds(2)),
            },
            Self::Stall => Fault::Stall {
                server,
                lasts: random.up_to(seconds(6)),
            },
            Self::State => Fault::State {
                server,
                state: match random.below(3) {
                    0 => distlock_sim::Fault::Loading,
                    1 => distlock_sim::Fault::Busy,
                    _ => distlock_sim::Fault::OutOfMemory,
                },
                lasts: random.up_to(seconds(3)),
            },
            Self::Stop => Fault::Stop {
                client,
                lasts: random.up_to(seconds(8)),
            },
            Self::SetBack => Fault::SetBack {
                server,
                by: random.up_to(seconds(2)),
            },
            Self::SetForward => Fault::SetForward {
                server,
                by: random.up_to(seconds(5)),
            },
            Self::Forget => Fault::Forget,
            Self::Lag => Fault::Lag(random.up_to(Duration::from_millis(800))),
            Self::Isolate => Fault::Isolate {
                lasts: random.up_to(seconds(6)),
            },
            Self::Promote => Fault::Promote {
                after: random.up_to(seconds(3)),
            },
        }
    }
}

/// Upper bound for the duration of a promotion.
const PROMOTION: Duration = Duration::from_secs(8);

/// Returns the host of the server with this number.
pub(crate) fn server_name(number: usize) -> String {
    match number {
        0 => HOST.to_owned(),
        number => format!("{HOST}-{number}"),
    }
}

impl Schedule {
    /// Draws the faults of this time: each kind in about half of all seeds, and at a rate that differs from seed to seed. Every tenth seed
    /// has none.
    pub(crate) fn generate(
        random: &mut Random,
        longest: Duration,
        kinds: &[FaultKind],
        clients: &[String],
        servers: usize,
    ) -> Self {
        let mut events = Vec::new();
        if random.percent(10) {
            return Self(events);
        }
        for &kind in kinds {
            if random.percent(50) {
                continue;
            }
            let mean = 200 + random.below(kind.rarest() * 1000);
            let mut at = Duration::ZERO;
            loop {
                at += random.up_to(Duration::from_millis(2 * mean));
                // Promotions do not overlap, and none is under way at the end.
                if kind == FaultKind::Promote {
                    at += PROMOTION;
                }
                let end = match kind {
                    FaultKind::Promote => longest.saturating_sub(PROMOTION),
                    _ => longest,
                };
                if at >= end {
                    break;
                }
                let fault = kind.draw(random, clients, servers);
                events.push(Event { at, kind, fault });
            }
        }
        events.sort_by_key(|event| event.at);
        Self(events)
    }

    /// Adds a few faults to the schedule that set the server's clock forward.
    pub(crate) fn set_forward_now_and_then(&mut self) {
        for second in [10, 25, 40] {
            let at = Duration::from_secs(second);
            let by = Duration::from_secs(5);
            let fault = Fault::SetForward { server: 0, by };
            let kind = FaultKind::SetForward;
            self.0.push(Event { at, kind, fault });
        }
        self.0.sort_by_key(|event| event.at);
    }

    /// Counts the faults of each kind.
    pub(crate) fn counts(&self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for event in &self.0 {
            *counts.entry(event.kind.name().to_owned()).or_default() += 1;
        }
        counts
    }

    /// Returns the total by which clocks of servers are set back.
    pub(crate) fn set_back(&self) -> Duration {
        let by = self.0.iter().map(|event| match event.fault {
            Fault::SetBack { by, .. } => by,
            _ => Duration::ZERO,
        });
        by.sum()
    }

    pub(crate) fn has(&self, kind: FaultKind) -> bool {
        self.0.iter().any(|event| event.kind == kind)
    }

    /// Lets the faults happen, until it is dropped.
    pub(crate) async fn run(self, world: World, servers: Servers) {
        let begun = Instant::now();
        let mut faults = JoinSet::new();
        for Event { at, fault, .. } in self.0 {
            sleep_until(begun + at).await;
            faults.spawn(fault.happen(world.clone(), servers.clone()));
            while faults.try_join_next().is_some() {}
        }
        while faults.join_next().await.is_some() {}
    }
}

/// The servers of a scenario: one; five of a quorum; or a master and, behind it, its replica.
#[derive(Clone, Debug)]
pub(crate) struct Servers(Arc<Mutex<Vec<(Server, Clock)>>>);

impl Servers {
    pub(crate) fn new(servers: Vec<(Server, Clock)>) -> Self {
        Self(Arc::new(Mutex::new(servers)))
    }

    pub(crate) fn all(&self) -> Vec<Server> {
        let servers = self.lock();
        servers.iter().map(|(server, _)| server.clone()).collect()
    }

    /// Ends every fault of the servers.
    pub(crate) fn heal(&self) {
        for server in self.all() {
            server.set_fault(None);
            server.revive();
            server.cut_replication(false);
            server.set_lag(Duration::ZERO);
        }
    }

    /// Sets the clock of the first server back.
    pub(crate) fn set_back(&self, by: Duration) {
        self.lock()[0].1.set_back(by);
    }

    pub(crate) fn first(&self) -> Server {
        self.at(0)
    }

    /// Puts another server in the place of the first.
    pub(crate) fn replace_first(&self, server: &Server) {
        self.lock()[0].0 = server.clone();
    }

    fn at(&self, number: usize) -> Server {
        self.lock()[number].0.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Server, Clock)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Fault {
    async fn happen(self, world: World, servers: Servers) {
        match self {
            Self::Message { from, to, fault } => world.network.fault_next(&from, &to, fault),
            Self::Partition {
                from,
                to,
                both,
                lasts,
            } => {
                world.network.block(&from, &to);
                if both {
                    world.network.block(&to, &from);
                }
                sleep(lasts).await;
                world.network.unblock(&from, &to);
                if both {
                    world.network.unblock(&to, &from);
                }
            }
            Self::Refuse { from, lasts } => {
                world.network.refuse(&from);
                sleep(lasts).await;
                world.network.accept(&from);
            }
            Self::Down { server, lasts } => {
                let server = servers.at(server);
                server.kill();
                sleep(lasts).await;
                server.revive();
            }
            Self::Stall { server, lasts } => servers.at(server).stall(lasts),
            Self::State {
                server,
                state,
                lasts,
            } => {
                let server = servers.at(server);
                server.set_fault(Some(state));
                sleep(lasts).await;
                server.set_fault(None);
            }
            Self::Stop { client, lasts } => {
                let machine = world.machine(&client);
                machine.stop();
                sleep(lasts).await;
                machine.go_on();
            }
            Self::SetBack { server, by } => servers.lock()[server].1.set_back(by),
            Self::SetForward { server, by } => servers.lock()[server].1.advance_wall(by),
            Self::Forget => servers.at(0).restart(false),
            Self::Lag(lag) => servers.at(1).set_lag(lag),
            Self::Isolate { lasts } => {
                let replica = servers.at(1);
                replica.cut_replication(true);
                sleep(lasts).await;
                replica.cut_replication(false);
            }
            Self::Promote { after } => {
                let (old, new) = (servers.at(0), servers.at(1));
                old.kill();
                sleep(after).await;
                new.promote();
                world.network.listen(HOST, PORT, &new);
                servers.lock().swap(0, 1);
                sleep(Duration::from_secs(1)).await;
                old.revive();
                old.follow(&new, Duration::from_millis(5));
            }
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|event| writeln!(f, "  {event}"))
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>10}: ", format!("{:?}", self.at))?;
        match &self.fault {
            Fault::Message { from, to, fault } => {
                write!(f, "next message {from} -> {to}: {fault:?}")
            }
            Fault::Partition {
                from,
                to,
                both,
                lasts,
            } => {
                let arrow = if *both { "<->" } else { "->" };
                write!(f, "{from} {arrow} {to} blocked for {lasts:?}")
            }
            Fault::Refuse { from, lasts } => {
                write!(f, "connections of {from} refused for {lasts:?}")
            }
            Fault::Stop { client, lasts } => write!(f, "{client} stopped for {lasts:?}"),
            fault => write!(f, "{fault:?}"),
        }
    }
}
