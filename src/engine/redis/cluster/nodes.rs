//! The servers of a cluster, and what is believed of who has which slot.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};

use super::ask::Inquiry;
use super::chart::{Chart, View};
use super::task::{State, Task};
use crate::engine::process::Process;
use crate::engine::redis::Redis;
use crate::engine::redis::door::Address;
use crate::engine::redis::keys::Keys;
use crate::engine::redis::manner::Manner;
use crate::engine::redis::settings::Settings;
use crate::engine::redis::site::Site;
use crate::engine::redis::slot::Slot;
use crate::engine::{Cause, Failure};

/// What the task makes known.
#[derive(Clone, Debug, Default)]
pub(super) struct Belief {
    /// Once anybody has said it.
    pub(super) chart: Option<Arc<Chart>>,
    /// How often slots have changed hands.
    pub(super) moves: u64,
    /// Why nothing is known.
    pub(super) trouble: Option<Failure>,
    /// How often that was found.
    pub(super) looks: u64,
}

/// What the task is told.
#[derive(Debug)]
pub(super) enum Word {
    /// Somebody was sent elsewhere, or found nobody.
    Look,
}

/// All servers of one cluster that were ever called, for one client.
pub(super) struct Nodes {
    pub(super) keys: Keys,
    inquiry: Arc<Inquiry>,
    process: Process,
    /// How messages are sent, where the address says it.
    manner: Option<Manner>,
    /// Where what nobody waits for runs.
    apart: Handle,
    known: Mutex<HashMap<Site, Arc<Redis>>>,
    belief: watch::Receiver<Belief>,
    /// Goes on when something is new, and in the pace in which it is worth trying again.
    beats: watch::Receiver<()>,
    words: mpsc::UnboundedSender<Word>,
    /// Of how many moves of slots those have been told who hold something.
    told: AtomicU64,
}

impl Nodes {
    /// Starts the task on `apart`. It ends with this.
    pub(super) fn watch(
        address: Address,
        seeds: &[(String, u16)],
        manner: Option<Manner>,
        settings: Settings,
        apart: &Handle,
    ) -> Arc<Self> {
        let (words, inbox) = mpsc::unbounded_channel();
        let (telling, belief) = watch::channel(Belief::default());
        let (beating, beats) = watch::channel(());
        let inquiry = Arc::new(Inquiry { address, settings });
        let keys = Keys::new(inquiry.settings.prefix.clone(), Manner::default());
        let nodes = Arc::new(Self {
            keys,
            process: Process::current(),
            inquiry: inquiry.clone(),
            manner,
            apart: apart.clone(),
            known: Mutex::default(),
            belief,
            beats,
            words,
            told: AtomicU64::new(0),
        });
        let seeds = Site::all(seeds).into();
        let weak = Arc::downgrade(&nodes);
        #[expect(clippy::disallowed_methods, reason = "an engine's own task")]
        apart.spawn(async move {
            let task = Task {
                inquiry,
                seeds,
                nodes: weak,
                inbox,
                telling,
                beating,
                state: State::new(),
            };
            task.run().await;
        });
        nodes
    }

    /// Who has which slot. Waits for somebody to say it, if nobody has.
    pub(super) async fn chart(&self) -> Result<Arc<Chart>, Failure> {
        let mut belief = self.belief.clone();
        let looks = belief.borrow().looks;
        if belief.borrow().chart.is_none() {
            self.look();
        }
        let known = belief.wait_for(|belief| belief.chart.is_some() || belief.looks > looks);
        let known = known.await.map(|known| known.clone());
        let gone = |_| Failure::new(Cause::Unreachable, "the client's thread has gone");
        let Belief { chart, trouble, .. } = known.map_err(gone)?;
        chart.ok_or_else(|| {
            trouble.unwrap_or_else(|| {
                let why = "no server has said who has which slot";
                Failure::new(Cause::Unreachable, why)
            })
        })
    }

    /// The same, if anybody has said it.
    pub(super) fn known_chart(&self) -> Option<Arc<Chart>> {
        self.belief.borrow().chart.clone()
    }

    /// Where the server is that has a slot.
    pub(super) async fn owner(&self, slot: Slot) -> Result<Site, Failure> {
        let chart = self.chart().await?;
        let Some(site) = chart.owner(slot) else {
            let why = format!("no server of the cluster has slot {}", slot.number());
            return Err(Failure::new(Cause::Unready, why));
        };
        Ok(site.clone())
    }

    /// All that have any.
    pub(super) async fn all(&self) -> Result<Vec<(Site, Arc<Redis>)>, Failure> {
        let chart = self.chart().await?;
        let sites = chart.sites().iter();
        sites
            .map(|site| Ok((site.clone(), self.at(site)?)))
            .collect()
    }

    /// The server that is there.
    pub(super) fn at(&self, site: &Site) -> Result<Arc<Redis>, Failure> {
        let mut known = self.lock();
        if let Some(node) = known.get(site) {
            return Ok(node.clone());
        }
        let Inquiry {
            address, settings, ..
        } = &*self.inquiry;
        let settings = Settings {
            shard: Some(self.manner()),
            ..settings.clone()
        };
        let node = Redis::new(&address.at(&site.host, site.port), &settings, &self.apart)?;
        let node = Arc::new(node);
        known.insert(site.clone(), node.clone());
        Ok(node)
    }

    /// How messages are sent: as Redisson decides it, if nobody else has.
    pub(super) fn manner(&self) -> Manner {
        let sharded = self.known_chart().is_some_and(|chart| chart.sharded);
        self.manner.unwrap_or(if sharded {
            Manner::Sharded
        } else {
            Manner::Plain
        })
    }

    /// Has them asked soon, because something was not where it should be.
    pub(super) fn look(&self) {
        // Nobody left to be told means that the client's thread has gone.
        let _ = self.words.send(Word::Look);
    }

    /// Has them asked soon, and resolves when they may have said something new; or after a moment. Says whether there is
    /// somebody to ask them.
    pub(super) async fn looked(&self) -> bool {
        // Before they are asked, so that what they say is not missed.
        let mut beats = self.beats.clone();
        beats.mark_unchanged();
        self.look();
        beats.changed().await.is_ok()
    }

    /// Resolves when slots have changed hands since somebody was told; they are told now.
    pub(super) async fn moved(&self) {
        let told = self.told.load(Ordering::Relaxed);
        let mut belief = self.belief.clone();
        let moves = belief.wait_for(|now| now.moves != told).await;
        match moves.map(|now| now.moves) {
            Ok(moves) => self.told.store(moves, Ordering::Relaxed),
            Err(_) => std::future::pending().await,
        }
    }

    /// Resolves when the servers are others than these.
    pub(super) async fn others_than(&self, sites: &[Site]) {
        let mut belief = self.belief.clone();
        let others = |now: &Belief| now.chart.as_ref().is_some_and(|now| now.sites() != sites);
        if belief.wait_for(others).await.is_err() {
            std::future::pending().await
        }
    }

    /// A forked child may find locks taken by threads it does not have.
    pub(super) fn not_forked(&self) -> Result<(), Failure> {
        if self.process.has_forked() {
            return Err(Failure::new(Cause::Unreachable, "this process was forked"));
        }
        Ok(())
    }

    /// What one of them says of all, to an operator.
    pub(super) async fn view(&self, site: &Site) -> Result<View, Failure> {
        let limit = self.settings().command_timeout / 4;
        let view = self.inquiry.ask(site, None, limit).await;
        view.map(|(view, _)| view)
    }

    /// Whoever listens where nothing is said any more begins anew elsewhere; who has no slot is left.
    pub(super) fn follow(&self, chart: &Arc<Chart>) {
        let mut known = self.lock();
        for (site, node) in &*known {
            let (site, chart) = (site.clone(), chart.clone());
            node.pubsub
                .keep(move |channel| chart.owner(Slot::of(channel)) == Some(&site));
        }
        known.retain(|site, _| chart.sites().binary_search(site).is_ok());
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.inquiry.settings
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Site, Arc<Redis>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Never the password.
impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chart = self.known_chart();
        f.debug_struct("Nodes")
            .field("sites", &chart.as_ref().map(|chart| chart.sites()))
            .finish_non_exhaustive()
    }
}
