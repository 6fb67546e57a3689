//! Where the master is, as its sentinels say: asked at first, heard of at once when it changes, and asked now and then in
//! case nobody was heard.
//!
//! One task keeps a connection to each sentinel, on the driver's own runtime. It subscribes there and asks there, so that
//! no sentinel has to be chosen, and none that dies takes the news with it. What it comes to believe ([`choose_master`]) is read
//! by everybody who connects, and ends every connection that was made to another master ([`MasterEpoch`]).

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
use crate::engine::in_process;
use crate::engine::{StoreError, StoreErrorKind};

/// How long one sentinel may take to answer: the others are not to wait for it.
const MAX_QUERY_TIMEOUT: Duration = Duration::from_secs(1);
/// How long connecting to one may take, however long it may: who hangs is tried anew.
const MAX_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A master by its name, and those who know where it is.
#[derive(Clone)]
pub struct Sentinels {
    /// What they call it.
    pub name: String,
    /// Where some of them are; they tell of the others.
    pub hosts: Vec<(String, u16)>,
    /// The ACL user they know us by.
    pub user: Option<String>,
    /// Their own password, which is not the servers'.
    pub password: Option<String>,
}

/// What is believed of the master, by everybody of one client.
#[derive(Clone)]
pub(crate) struct WatchedMaster {
    topology: watch::Receiver<SentinelTopology>,
    /// Goes on when another master is believed in, and in the pace in which it is worth trying again.
    retry_ticks: watch::Receiver<()>,
    commands: mpsc::UnboundedSender<SentinelWatcherCommand>,
    client: Arc<SentinelClient>,
    configured: Arc<[NodeAddr]>,
}

/// What the task makes known.
#[derive(Clone, Debug, Default)]
struct SentinelTopology {
    /// Where the master is, once that is known.
    master: Option<NodeAddr>,
    /// Counts the masters: a connection to an earlier one is of no use, even if it is where the master is now.
    term: u64,
    /// Why nothing is known.
    last_error: Option<StoreError>,
    /// How often that was found.
    failed_refreshes: u64,
}

/// What the task is told.
#[derive(Debug)]
enum SentinelWatcherCommand {
    /// The master was found where it should be.
    Accepted(NodeAddr),
    /// Something is wrong with the master that is believed in.
    Refresh,
    /// A replica was found in its place.
    Refused(NodeAddr),
    /// A sentinel says that there is another.
    Switched,
}

/// Until when a connection leads to the right server.
#[derive(Clone, Debug, Default)]
pub(crate) struct MasterEpoch(Option<(watch::Receiver<SentinelTopology>, u64)>);

/// Waits for the end of a [`MasterEpoch`], until it is dropped.
#[derive(Debug)]
pub(crate) struct AbortOnDrop(tokio::task::AbortHandle);

impl WatchedMaster {
    /// Starts the task on `runtime`. It ends with the last of these.
    pub(super) fn watch(
        address: &Address,
        sentinels: &Sentinels,
        settings: &RedisSettings,
        runtime: &Handle,
    ) -> Self {
        let (commands, inbox) = mpsc::unbounded_channel();
        let (topology_tx, topology) = watch::channel(SentinelTopology::default());
        let (retry_tick_tx, retry_ticks) = watch::channel(());
        let client = Arc::new(SentinelClient {
            address: Address {
                database: 0,
                user: sentinels.user.clone(),
                password: sentinels.password.clone(),
                ..address.clone()
            },
            settings: settings.clone(),
            name: sentinels.name.clone(),
            // It is told what was in the way before all time is over.
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
            retry_tick_tx,
        );
        #[expect(clippy::disallowed_methods, reason = "an engine's own task")]
        runtime.spawn(in_process(task.run()));
        Self {
            topology,
            retry_ticks,
            commands,
            client,
            configured,
        }
    }

    /// Where it is, and until when. Waits for the sentinels if they have not said it yet.
    pub(super) async fn addr(&self) -> Result<(NodeAddr, MasterEpoch), StoreError> {
        let mut topology = self.topology.clone();
        let failed_refreshes = topology.borrow().failed_refreshes;
        if topology.borrow().master.is_none() {
            self.refresh();
        }
        let known = topology.wait_for(|topology| {
            topology.master.is_some() || topology.failed_refreshes > failed_refreshes
        });
        let known = known.await.map(|known| known.clone());
        let gone = |_| StoreError::new(StoreErrorKind::Unreachable, "the client's thread has gone");
        let SentinelTopology {
            master,
            term,
            last_error,
            ..
        } = known.map_err(gone)?;
        match master {
            Some(addr) => Ok((addr, MasterEpoch(Some((topology, term))))),
            None => Err(last_error.unwrap_or_else(|| {
                let why = "no sentinel has said where the master is";
                StoreError::new(StoreErrorKind::Unreachable, why)
            })),
        }
    }

    /// What it is called.
    pub(super) fn name(&self) -> &str {
        &self.client.name
    }

    /// Has the sentinels asked soon, because the master does not answer as one does.
    pub(super) fn refresh(&self) {
        // Nobody left to be told means that the client's thread has gone.
        let _ = self.commands.send(SentinelWatcherCommand::Refresh);
    }

    /// Says what was found where the sentinels said.
    pub(super) fn found(&self, addr: NodeAddr, is_master: bool) {
        let command = if is_master {
            SentinelWatcherCommand::Accepted(addr)
        } else {
            SentinelWatcherCommand::Refused(addr)
        };
        let _ = self.commands.send(command);
    }

    /// Has them asked soon, and resolves when they may have said something; or after a moment. Says whether there is
    /// somebody to ask them.
    pub(super) async fn refreshed(&self) -> bool {
        // Before they are asked, so that what they say is not missed.
        let mut retry_ticks = self.retry_ticks.clone();
        retry_ticks.mark_unchanged();
        self.refresh();
        retry_ticks.changed().await.is_ok()
    }

    /// Asks each of those that the address names what an operator wants to know.
    pub(super) async fn details(&self) -> Vec<(NodeAddr, Result<SentinelDetails, StoreError>)> {
        let mut all = Vec::new();
        for addr in &*self.configured {
            all.push((addr.clone(), self.client.details(addr).await));
        }
        all
    }
}

impl MasterEpoch {
    /// Resolves when the sentinels name another master; never where the server has a place of its own.
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

    /// Does something when it is over, unless what this returns is dropped before. Needs a running runtime.
    pub(crate) fn on_change(&self, then: impl FnOnce() + Send + 'static) -> Option<AbortOnDrop> {
        self.0.as_ref()?;
        let mut master_epoch = self.clone();
        #[expect(clippy::disallowed_methods, reason = "it ends with its connection")]
        let following = tokio::spawn(async move {
            master_epoch.changed().await;
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

/// What the sentinels are called together: the same text for everybody who means the same.
impl fmt::Display for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", NodeAddr::join_sorted(&self.hosts), self.name)
    }
}

/// Never the password.
impl fmt::Debug for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sentinels({self})")
    }
}

impl fmt::Debug for WatchedMaster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let topology = self.topology.borrow();
        f.debug_struct("Master")
            .field("name", &self.name())
            .field("site", &topology.master)
            .finish_non_exhaustive()
    }
}
