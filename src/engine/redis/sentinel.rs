//! Watches the master through its sentinels: they are queried at first, report a change at once, and are polled now and
//! then in case a message was lost.
//!
//! One task keeps a connection to each sentinel, on the driver's own runtime, and both subscribes and queries on it. So
//! no sentinel has to be chosen, and a sentinel that dies takes no notification with it. The master that the task
//! chooses ([`choose_master`](master_choice::choose_master)) is used by every new connection, and ends every connection
//! that was made to another master ([`MasterTerm`]).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};

mod client;
mod master_choice;
mod watcher;

use self::client::SentinelClient;
pub(crate) use self::client::SentinelDetails;
use self::watcher::SentinelWatcher;
use super::connector::Address;
use super::node_addr::NodeAddr;
use super::settings::RedisSettings;
use crate::engine::tag_simulated_process;
use crate::engine::{StoreError, StoreErrorKind};

/// Maximum time for the reply of one sentinel: the others must not wait for it.
const MAX_QUERY_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum time to connect to one sentinel, however long the connect timeout is: an attempt that hangs is repeated.
const MAX_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A master's name, and the sentinels that know its address.
#[derive(Clone)]
pub struct Sentinels {
    /// The master's name in the configuration of the sentinels.
    pub name: String,
    /// The addresses of some sentinels, which report the others.
    pub hosts: Vec<(String, u16)>,
    /// The ACL user on the sentinels.
    pub user: Option<String>,
    /// The password of the sentinels, which is not the servers'.
    pub password: Option<String>,
}

/// The current view of the master, shared by all connections of one client.
#[derive(Clone)]
pub(crate) struct WatchedMaster {
    topology: watch::Receiver<SentinelTopology>,
    /// Changes when another master is chosen, and at the interval at which a retry is worthwhile.
    retry_signals: watch::Receiver<()>,
    commands: mpsc::UnboundedSender<SentinelWatcherCommand>,
    client: Arc<SentinelClient>,
    configured: Arc<[NodeAddr]>,
}

/// The state that the task publishes.
#[derive(Clone, Debug, Default)]
struct SentinelTopology {
    /// The address of the master, once it is known.
    master: Option<NodeAddr>,
    /// Counts the masters: a connection of an earlier term is of no use, even if it leads to the current master's
    /// address.
    term: u64,
    /// The reason why no master is known.
    last_error: Option<StoreError>,
    /// Number of refreshes that found no master.
    failed_refreshes: u64,
}

/// A message to the task.
#[derive(Debug)]
enum SentinelWatcherCommand {
    /// The server at this address is the master, as reported.
    Accepted(NodeAddr),
    /// The current master may have failed.
    Refresh,
    /// A replica was found at this address in place of the master.
    FoundReplica(NodeAddr),
    /// A sentinel reports another master.
    Switched,
}

/// The period in which a connection leads to the right server.
#[derive(Clone, Debug, Default)]
pub(crate) struct MasterTerm(Option<(watch::Receiver<SentinelTopology>, u64)>);

/// Aborts, when dropped, the task that waits for the end of a [`MasterTerm`].
#[derive(Debug)]
pub(crate) struct AbortOnDrop(tokio::task::AbortHandle);

impl WatchedMaster {
    /// Starts the task on `runtime`. It ends when the last clone of this is dropped.
    pub(super) fn watch(
        address: &Address,
        sentinels: &Sentinels,
        settings: &RedisSettings,
        runtime: &Handle,
    ) -> Self {
        let (commands, inbox) = mpsc::unbounded_channel();
        let (topology_tx, topology) = watch::channel(SentinelTopology::default());
        let (retry_signal_tx, retry_signals) = watch::channel(());
        let client = Arc::new(SentinelClient {
            address: Address {
                database: 0,
                user: sentinels.user.clone(),
                password: sentinels.password.clone(),
                ..address.clone()
            },
            settings: settings.clone(),
            name: sentinels.name.clone(),
            // The attempt reports its failure before the connect timeout of the caller ends.
            connect_timeout: (settings.connect_timeout / 8 * 7).min(MAX_CONNECT_TIMEOUT),
            limit: (settings.connect_timeout / 2).min(MAX_QUERY_TIMEOUT),
            commands: commands.downgrade(),
        });
        let configured: Arc<[NodeAddr]> = NodeAddr::from_hosts(&sentinels.hosts).into();
        let task = SentinelWatcher::new(
            client.clone(),
            configured.clone(),
            inbox,
            topology_tx,
            retry_signal_tx,
        );
        #[expect(clippy::disallowed_methods, reason = "the engine owns this task")]
        runtime.spawn(tag_simulated_process(task.run()));
        Self {
            topology,
            retry_signals,
            commands,
            client,
            configured,
        }
    }

    /// Returns the master's address and term. Waits for the sentinels if they have not reported it yet.
    pub(super) async fn addr(&self) -> Result<(NodeAddr, MasterTerm), StoreError> {
        let mut topology = self.topology.clone();
        let failed_refreshes = topology.borrow().failed_refreshes;
        if topology.borrow().master.is_none() {
            self.refresh();
        }
        let known = topology.wait_for(|topology| {
            topology.master.is_some() || topology.failed_refreshes > failed_refreshes
        });
        let known = known.await.map(|known| known.clone());
        let task_ended = |_| {
            StoreError::new(
                StoreErrorKind::Unreachable,
                "the background thread of the client has ended",
            )
        };
        let SentinelTopology {
            master,
            term,
            last_error,
            ..
        } = known.map_err(task_ended)?;
        match master {
            Some(addr) => Ok((addr, MasterTerm(Some((topology, term))))),
            None => Err(last_error.unwrap_or_else(|| {
                let why = "no sentinel has reported the address of the master";
                StoreError::new(StoreErrorKind::Unreachable, why)
            })),
        }
    }

    /// Returns the master's name.
    pub(super) fn name(&self) -> &str {
        &self.client.name
    }

    /// Requests a refresh soon, because the master does not reply as a master does.
    pub(super) fn refresh(&self) {
        // A closed channel means that the client's thread has gone.
        let _ = self.commands.send(SentinelWatcherCommand::Refresh);
    }

    /// Reports to the task whether the server at this address is the master.
    pub(super) fn found(&self, addr: NodeAddr, is_master: bool) {
        let command = if is_master {
            SentinelWatcherCommand::Accepted(addr)
        } else {
            SentinelWatcherCommand::FoundReplica(addr)
        };
        let _ = self.commands.send(command);
    }

    /// Requests a refresh, and resolves when the sentinels may have reported something, or after a moment. Returns
    /// whether the task still runs.
    pub(super) async fn refreshed(&self) -> bool {
        // Subscribe before the request, so that its result is not missed.
        let mut retry_signals = self.retry_signals.clone();
        retry_signals.mark_unchanged();
        self.refresh();
        retry_signals.changed().await.is_ok()
    }

    /// Queries each of the sentinels in the address for the details that an operator wants to know.
    pub(super) async fn details(&self) -> Vec<(NodeAddr, Result<SentinelDetails, StoreError>)> {
        let mut all = Vec::new();
        for addr in &*self.configured {
            all.push((addr.clone(), self.client.details(addr).await));
        }
        all
    }
}

impl MasterTerm {
    /// Resolves when the sentinels name another master; never for a server with a fixed address.
    pub(crate) async fn changed(&mut self) {
        let over = match &mut self.0 {
            Some((topology, term)) => {
                let term = *term;
                topology.wait_for(|now| now.term != term).await.is_ok()
            }
            None => false,
        };
        if !over {
            std::future::pending::<()>().await;
        }
    }

    /// Runs `then` when the term ends, unless the returned handle is dropped before. Needs a running runtime.
    pub(crate) fn on_change(&self, then: impl FnOnce() + Send + 'static) -> Option<AbortOnDrop> {
        self.0.as_ref()?;
        let mut master_term = self.clone();
        #[expect(
            clippy::disallowed_methods,
            reason = "the task ends with its connection"
        )]
        let following = tokio::spawn(async move {
            master_term.changed().await;
            then();
        });
        Some(AbortOnDrop(following.abort_handle()))
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Writes the sentinels and the master's name: the same text for all clients that mean the same master.
impl fmt::Display for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", NodeAddr::join_sorted(&self.hosts), self.name)
    }
}

/// Omits the password.
impl fmt::Debug for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sentinels({self})")
    }
}

impl fmt::Debug for WatchedMaster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let topology = self.topology.borrow();
        f.debug_struct("WatchedMaster")
            .field("name", &self.name())
            .field("master", &topology.master)
            .finish_non_exhaustive()
    }
}
