//! The processes of a hammer that are killed in the middle of it: a JVM, and a process of ours.

use std::process::Stdio;
use std::sync::Arc;

use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use super::{OVERTIME, connect, their_worker};
use crate::failure::{Outcome, ensure};
use crate::peer::Peer;
use crate::stage::Fleet;
use crate::worker::{Tally, Work};

/// The doomed processes, connected and waiting for their orders.
pub(super) struct ProcessesToKill {
    peer: Arc<Peer>,
    /// The folder of their logs, which may end in the middle of a line: these processes never come to the end of their time.
    torn: TempDir,
}

/// The doomed processes at work, until they are killed.
pub(super) struct AtWork {
    peer: Arc<Peer>,
    theirs: JoinHandle<Outcome<Tally>>,
    ours: Child,
    _torn: TempDir,
}

impl ProcessesToKill {
    /// Starts and connects both before the work begins: it takes a JVM a second.
    pub(super) async fn ready(fleet: &Fleet) -> Outcome<Self> {
        let peer = fleet.world.fresh_peer(fleet.peers[0].build()).await?;
        connect(fleet.servers(), &peer).await?;
        let torn = TempDir::with_prefix("distlock-doomed-")?;
        Ok(Self { peer, torn })
    }

    /// Starts their work as ordered, but for longer than either of them lives.
    pub(super) fn work(self, theirs: Work, ours: Work) -> Outcome<AtWork> {
        let order = |work: Work| Work {
            log: self.torn.path().join(&work.who),
            time: OVERTIME * 2,
            ..work
        };
        let (theirs, ours) = (order(theirs), order(ours));
        let theirs = tokio::spawn(their_worker(self.peer.clone(), theirs));
        let ours = Command::new(std::env::current_exe()?)
            .arg("worker")
            .arg(ours.to_json().to_string())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        Ok(AtWork {
            peer: self.peer,
            theirs,
            ours,
            _torn: self.torn,
        })
    }
}

impl AtWork {
    /// Kills both.
    pub(super) async fn die(mut self) -> Outcome {
        self.peer.kill_hard().await?;
        self.ours.start_kill()?;
        self.ours.wait().await?;
        let ended = self.theirs.await?;
        ensure!(ended.is_err(), "the dead one has ended in order");
        Ok(())
    }
}
