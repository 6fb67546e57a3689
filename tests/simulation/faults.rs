//! The faults of one seed: an ordered list, generated before the world starts, that can be printed and shortened.

use std::fmt;
use std::time::Duration;

use distlock_sim::{MessageFault, Random};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::world::World;

/// The faults of one seed, in the order of their times.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Schedule(pub(crate) Vec<Event>);

/// One fault, and when it begins, counted from the beginning of the scenario.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Event {
    pub(crate) at: Duration,
    pub(crate) fault: Fault,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Fault {
    /// The next message on a link suffers this.
    Message {
        from: String,
        to: String,
        fault: MessageFault,
    },
    /// Nothing arrives on a link for this long.
    Partition {
        from: String,
        to: String,
        lasts: Duration,
    },
    /// The connection attempts of a host are refused for this long.
    Refuse { from: String, lasts: Duration },
    /// The server is down for this long, and keeps its data.
    Down { lasts: Duration },
    /// The server executes nothing for this long.
    Stall { lasts: Duration },
    /// The server restarts without its data, which no lock survives: only for sabotage.
    Forget,
}

/// A kind of fault. Each seed has some of them, since faults hide one another.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum FaultKind {
    Cut,
    CutAfter,
    Late,
    BlackHole,
    Partition,
    Refuse,
    Down,
    Stall,
}

impl FaultKind {
    pub(crate) const ALL: [Self; 8] = [
        Self::Cut,
        Self::CutAfter,
        Self::Late,
        Self::BlackHole,
        Self::Partition,
        Self::Refuse,
        Self::Down,
        Self::Stall,
    ];

    /// The longest mean time between two faults of this kind, in seconds.
    const fn rarest(self) -> u64 {
        match self {
            Self::Cut | Self::CutAfter | Self::Late => 10,
            Self::BlackHole | Self::Partition | Self::Refuse => 20,
            Self::Down | Self::Stall => 30,
        }
    }

    fn draw(self, random: &mut Random, clients: &[String], server: &str) -> Fault {
        let index = usize::try_from(random.below(clients.len() as u64)).expect("it is small");
        let client = clients[index].clone();
        let (from, to) = match random.percent(50) {
            true => (client.clone(), server.to_owned()),
            false => (server.to_owned(), client.clone()),
        };
        let message = |fault| Fault::Message {
            from: from.clone(),
            to: to.clone(),
            fault,
        };
        let seconds = Duration::from_secs;
        match self {
            Self::Cut => message(MessageFault::Cut),
            Self::CutAfter => message(MessageFault::CutAfter),
            Self::Late => message(MessageFault::Stall(random.up_to(seconds(10)))),
            Self::BlackHole => message(MessageFault::BlackHole),
            Self::Partition => Fault::Partition {
                from,
                to,
                lasts: random.up_to(seconds(8)),
            },
            Self::Refuse => Fault::Refuse {
                from: client,
                lasts: random.up_to(seconds(4)),
            },
            Self::Down => Fault::Down {
                lasts: random.up_to(seconds(2)),
            },
            Self::Stall => Fault::Stall {
                lasts: random.up_to(seconds(6)),
            },
        }
    }
}

impl Schedule {
    /// Draws faults for this long: each kind in about half of all seeds, and at a rate that differs from seed to seed.
    pub(crate) fn generate(random: &mut Random, longest: Duration, clients: &[String]) -> Self {
        let mut events = Vec::new();
        for kind in FaultKind::ALL {
            if random.percent(50) {
                continue;
            }
            let mean = 200 + random.below(kind.rarest() * 1000);
            let mut at = Duration::ZERO;
            loop {
                at += random.up_to(Duration::from_millis(2 * mean));
                if at >= longest {
                    break;
                }
                let fault = kind.draw(random, clients, crate::world::HOST);
                events.push(Event { at, fault });
            }
        }
        events.sort_by_key(|event| event.at);
        Self(events)
    }

    /// Lets the faults happen, until it is dropped.
    pub(crate) async fn run(self, world: World) {
        let begun = Instant::now();
        let mut faults = JoinSet::new();
        for Event { at, fault } in self.0 {
            sleep_until(begun + at).await;
            faults.spawn(fault.happen(world.clone()));
            while faults.try_join_next().is_some() {}
        }
        while faults.join_next().await.is_some() {}
    }
}

impl Fault {
    async fn happen(self, world: World) {
        match self {
            Self::Message { from, to, fault } => world.network.fault_next(&from, &to, fault),
            Self::Partition { from, to, lasts } => {
                world.network.block(&from, &to);
                sleep(lasts).await;
                world.network.unblock(&from, &to);
            }
            Self::Refuse { from, lasts } => {
                world.network.refuse(&from);
                sleep(lasts).await;
                world.network.accept(&from);
            }
            Self::Down { lasts } => {
                world.server.kill();
                sleep(lasts).await;
                world.server.revive();
            }
            Self::Stall { lasts } => world.server.stall(lasts),
            Self::Forget => world.server.restart(false),
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
        write!(f, "{:>9.3?}: ", self.at)?;
        match &self.fault {
            Fault::Message { from, to, fault } => {
                write!(f, "next message {from} -> {to}: {fault:?}")
            }
            Fault::Partition { from, to, lasts } => {
                write!(f, "{from} -> {to} blocked for {lasts:?}")
            }
            Fault::Refuse { from, lasts } => {
                write!(f, "connections of {from} refused for {lasts:?}")
            }
            Fault::Down { lasts } => write!(f, "server down for {lasts:?}"),
            Fault::Stall { lasts } => write!(f, "server executes nothing for {lasts:?}"),
            Fault::Forget => write!(f, "server restarts without its data"),
        }
    }
}
