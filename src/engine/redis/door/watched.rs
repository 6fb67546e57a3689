//! The way to wherever the master is.

#![expect(
    clippy::disallowed_methods,
    reason = "engines may read the clock and wait"
)]

use std::time::Duration;

use redis::{AsyncConnectionConfig, Value};
use tokio::runtime::{self, Handle};
use tokio::time::{Instant, timeout};

use super::{Address, Opened, Road};
use crate::engine::redis::failure;
use crate::engine::redis::sentinel::{Details, Master, Sentinels};
use crate::engine::redis::settings::Settings;
use crate::engine::redis::site::Site;
use crate::engine::{Cause, Failure};

const MOVED: &str = "the sentinels name another master";

/// When a call began, and on which runtime.
pub(crate) struct Begun {
    at: Instant,
    runtime: Option<runtime::Id>,
}

impl Begun {
    pub(crate) fn now() -> Self {
        Self {
            at: Instant::now(),
            runtime: here(),
        }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.at.elapsed()
    }

    /// Whether it is still polled there. Who has let go of it has it heard out, and not tried again: that would make the
    /// callers' next connection on the driver's runtime.
    pub(crate) fn is_at_home(&self) -> bool {
        self.runtime.is_some() && self.runtime == here()
    }
}

fn here() -> Option<runtime::Id> {
    Handle::try_current().ok().map(|runtime| runtime.id())
}

pub(super) struct Watched {
    master: Master,
    /// As whom one goes there, and how.
    address: Address,
    settings: Settings,
}

impl Watched {
    pub(super) fn new(
        address: &Address,
        sentinels: &Sentinels,
        settings: &Settings,
        runtime: &Handle,
    ) -> Self {
        Self {
            master: Master::watch(address, sentinels, settings, runtime),
            address: address.clone(),
            settings: settings.clone(),
        }
    }

    /// Makes a connection there, for as long as that may take.
    pub(super) async fn open(
        &self,
        config: AsyncConnectionConfig,
        limit: Duration,
    ) -> Result<Opened, Failure> {
        let opened = timeout(limit, self.go(config, limit)).await;
        opened.unwrap_or_else(|_| {
            self.master.look();
            let why = format!("no connection within {limit:?}");
            Err(Failure::new(Cause::Unreachable, why))
        })
    }

    /// Goes where the master is said to be, and sees that it is one: what a sentinel says may be old.
    async fn go(&self, config: AsyncConnectionConfig, limit: Duration) -> Result<Opened, Failure> {
        let (site, mut stay) = self.master.site().await?;
        let road = Road::new(&self.address.at(&site.host, site.port), &self.settings)?;
        let made = async {
            let mut connection = road.open(config, limit).await?;
            let role = redis::cmd("ROLE");
            let is_master = match role.query_async(&mut connection).await {
                Ok(role) => is_master(&role),
                // Who may not ask goes by what the sentinels say.
                Err(error) if failure::of_calling(&error).cause == Cause::Denied => true,
                Err(error) => return Err(failure::of_connecting(&error)),
            };
            Ok((connection, is_master))
        };
        let made = tokio::select! {
            biased;
            made = made => made,
            () = stay.over() => return Err(Failure::new(Cause::Unreachable, MOVED)),
        };
        let of_site = |failure: Failure| {
            let why = format!("`{}` at {site}: {}", self.master.name(), failure.detail);
            Failure::new(failure.cause, why)
        };
        match made {
            Ok((connection, true)) => {
                self.master.found(site, true);
                Ok(Opened { connection, stay })
            }
            Ok((_, false)) => {
                let why = "a replica, though a sentinel says that it is the master";
                let refused = of_site(Failure::new(Cause::Unready, why));
                self.master.found(site, false);
                Err(refused)
            }
            Err(failure) => {
                self.master.look();
                Err(of_site(failure))
            }
        }
    }

    /// Whether a call is worth another try, once the master may have moved.
    pub(super) async fn may_try_again(
        &self,
        failure: &Failure,
        begun: &Begun,
        give_up: Duration,
    ) -> bool {
        if !failure::is_of_a_failover(failure) || begun.at.elapsed() >= give_up {
            return false;
        }
        // No timer of this runtime's: a call that is heard out elsewhere may outlive it.
        self.master.looked().await && begun.is_at_home()
    }

    /// Has the sentinels asked soon.
    pub(super) fn look(&self) {
        self.master.look();
    }

    pub(super) fn name(&self) -> &str {
        self.master.name()
    }

    pub(super) async fn details(&self) -> Vec<(Site, Result<Details, Failure>)> {
        self.master.details().await
    }
}

/// What was under way when its server was left: it may have been carried out there.
pub(crate) fn left() -> Failure {
    Failure::new(Cause::Interrupted, MOVED)
}

fn is_master(role: &Value) -> bool {
    let word = match role {
        Value::Array(role) => role.first(),
        _ => None,
    };
    matches!(word, Some(Value::BulkString(word)) if word == b"master")
}
