//! The options of the clients of one storm.

use std::time::Duration;

use distlock::{Client, ClientBuilder, Durability, Lease};

/// The options, which are the same for all clients.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Settings {
    pub(crate) lease: Duration,
    /// Whether there is a delay, as long as the lease.
    pub(crate) delay: bool,
    /// The number of replicas that a grant waits for; 0 for none.
    pub(crate) acks: u32,
}

impl Settings {
    /// Returns the options of a client with default settings.
    pub(crate) const fn none() -> Self {
        Self {
            lease: Duration::from_secs(10),
            delay: false,
            acks: 0,
        }
    }

    /// Returns a delay that is as long as every lease, and acknowledgements by this many replicas.
    pub(crate) const fn all(lease: Duration, acks: u32) -> Self {
        Self {
            lease,
            delay: true,
            acks,
        }
    }

    /// Returns a delay without acknowledgements: enough if a master that is replaced is dead.
    pub(crate) const fn delay_alone(lease: Duration) -> Self {
        Self::all(lease, 0)
    }

    pub(crate) fn builder(&self, url: &str) -> ClientBuilder {
        let mut builder = Client::builder(url).default_lease(Lease::KeepAlive(self.lease));
        if self.delay {
            builder = builder.failover_delay(self.lease);
        }
        if self.acks > 0 {
            builder = builder.durability(Durability::Replicas {
                acks: self.acks,
                timeout: ACKNOWLEDGED_WITHIN,
            });
        }
        builder
    }

    /// Returns how long a server that has been promoted grants nothing.
    pub(crate) const fn waits(&self) -> Duration {
        if self.delay {
            self.lease
        } else {
            Duration::ZERO
        }
    }

    pub(crate) fn describe(&self) -> &'static str {
        match (self.delay, self.acks) {
            (true, 0) => "delay alone",
            (true, _) => "delay and acks",
            (false, 0) => "neither",
            (false, _) => "acks alone",
        }
    }

    /// Returns the text that a worker receives; see [`parse`](Self::parse).
    pub(crate) fn to_line(self) -> String {
        format!("{},{},{}", self.lease.as_millis(), self.delay, self.acks)
    }

    pub(crate) fn parse(word: &str) -> Self {
        let mut parts = word.split(',');
        let mut part = || parts.next().expect("there are three");
        Self {
            lease: Duration::from_millis(part().parse().expect("milliseconds")),
            delay: part().parse().expect("yes or no"),
            acks: part().parse().expect("a number"),
        }
    }
}

const ACKNOWLEDGED_WITHIN: Duration = Duration::from_millis(500);
