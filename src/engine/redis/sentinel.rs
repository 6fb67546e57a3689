//! Where the master is, as its sentinels say: asked at first, heard of at once when it changes, and asked now and then in
//! case nobody was heard.
//!
//! One task keeps a connection to each sentinel, on the driver's own runtime. It subscribes there and asks there, so that
//! no sentinel has to be chosen, and none that dies takes the news with it. What it comes to believe ([`believe`]) is read
//! by everybody who connects, and ends every connection that was made to another master ([`Stay`]).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};

mod ask;
mod believe;
mod task;

pub(crate) use self::ask::Details;
use self::ask::Inquiry;
use self::task::Task;
use super::door::Address;
use super::settings::Settings;
use super::site::Site;
use crate::engine::in_process;
use crate::engine::{Cause, Failure};

/// How long one sentinel may take to answer: the others are not to wait for it.
const LONGEST_ANSWER: Duration = Duration::from_secs(1);
/// How long connecting to one may take, however long it may: who hangs is tried anew.
const LONGEST_GREETING: Duration = Duration::from_secs(10);

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
pub(crate) struct Master {
    belief: watch::Receiver<Belief>,
    /// Goes on when another master is believed in, and in the pace in which it is worth trying again.
    beats: watch::Receiver<()>,
    words: mpsc::UnboundedSender<Word>,
    inquiry: Arc<Inquiry>,
    configured: Arc<[Site]>,
}

/// What the task makes known.
#[derive(Clone, Debug, Default)]
struct Belief {
    /// Where the master is, once that is known.
    master: Option<Site>,
    /// Counts the masters: a connection to an earlier one is of no use, even if it is where the master is now.
    term: u64,
    /// Why nothing is known.
    trouble: Option<Failure>,
    /// How often that was found.
    looks: u64,
}

/// What the task is told.
#[derive(Debug)]
enum Word {
    /// The master was found where it should be.
    Accepted(Site),
    /// Something is wrong with the master that is believed in.
    Look,
    /// A replica was found in its place.
    Refused(Site),
    /// A sentinel says that there is another.
    Switched,
}

/// Until when a connection leads to the right server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stay(Option<(watch::Receiver<Belief>, u64)>);

/// Waits for the end of a [`Stay`], until it is dropped.
#[derive(Debug)]
pub(crate) struct Follower(tokio::task::AbortHandle);

impl Master {
    /// Starts the task on `runtime`. It ends with the last of these.
    pub(super) fn watch(
        address: &Address,
        sentinels: &Sentinels,
        settings: &Settings,
        runtime: &Handle,
    ) -> Self {
        let (words, inbox) = mpsc::unbounded_channel();
        let (telling, belief) = watch::channel(Belief::default());
        let (beating, beats) = watch::channel(());
        let inquiry = Arc::new(Inquiry {
            address: Address {
                database: 0,
                user: sentinels.user.clone(),
                password: sentinels.password.clone(),
                ..address.clone()
            },
            settings: settings.clone(),
            name: sentinels.name.clone(),
            // It is told what was in the way before all time is over.
            greeting: (settings.connect_timeout / 8 * 7).min(LONGEST_GREETING),
            limit: (settings.connect_timeout / 2).min(LONGEST_ANSWER),
            words: words.downgrade(),
        });
        let configured: Arc<[Site]> = Site::all(&sentinels.hosts).into();
        let task = Task::new(inquiry.clone(), configured.clone(), inbox, telling, beating);
        #[expect(clippy::disallowed_methods, reason = "an engine's own task")]
        runtime.spawn(in_process(task.run()));
        Self {
            belief,
            beats,
            words,
            inquiry,
            configured,
        }
    }

    /// Where it is, and until when. Waits for the sentinels if they have not said it yet.
    pub(super) async fn site(&self) -> Result<(Site, Stay), Failure> {
        let mut belief = self.belief.clone();
        let looks = belief.borrow().looks;
        if belief.borrow().master.is_none() {
            self.look();
        }
        let known = belief.wait_for(|belief| belief.master.is_some() || belief.looks > looks);
        let known = known.await.map(|known| known.clone());
        let gone = |_| Failure::new(Cause::Unreachable, "the client's thread has gone");
        let Belief {
            master,
            term,
            trouble,
            ..
        } = known.map_err(gone)?;
        match master {
            Some(site) => Ok((site, Stay(Some((belief, term))))),
            None => Err(trouble.unwrap_or_else(|| {
                let why = "no sentinel has said where the master is";
                Failure::new(Cause::Unreachable, why)
            })),
        }
    }

    /// What it is called.
    pub(super) fn name(&self) -> &str {
        &self.inquiry.name
    }

    /// Has the sentinels asked soon, because the master does not answer as one does.
    pub(super) fn look(&self) {
        // Nobody left to be told means that the client's thread has gone.
        let _ = self.words.send(Word::Look);
    }

    /// Says what was found where the sentinels said.
    pub(super) fn found(&self, site: Site, is_master: bool) {
        let word = if is_master {
            Word::Accepted(site)
        } else {
            Word::Refused(site)
        };
        let _ = self.words.send(word);
    }

    /// Has them asked soon, and resolves when they may have said something; or after a moment. Says whether there is
    /// somebody to ask them.
    pub(super) async fn looked(&self) -> bool {
        // Before they are asked, so that what they say is not missed.
        let mut beats = self.beats.clone();
        beats.mark_unchanged();
        self.look();
        beats.changed().await.is_ok()
    }

    /// Asks each of those that the address names what an operator wants to know.
    pub(super) async fn details(&self) -> Vec<(Site, Result<Details, Failure>)> {
        let mut all = Vec::new();
        for site in &*self.configured {
            all.push((site.clone(), self.inquiry.details(site).await));
        }
        all
    }
}

impl Stay {
    /// Resolves when the sentinels name another master; never where the server has a place of its own.
    pub(crate) async fn over(&mut self) {
        let over = match &mut self.0 {
            Some((belief, term)) => {
                let term = *term;
                belief.wait_for(|now| now.term != term).await.is_ok()
            }
            None => false,
        };
        if !over {
            std::future::pending::<()>().await;
        }
    }

    /// Does something when it is over, unless what this returns is dropped before. Needs a running runtime.
    pub(crate) fn follow(&self, then: impl FnOnce() + Send + 'static) -> Option<Follower> {
        self.0.as_ref()?;
        let mut stay = self.clone();
        #[expect(clippy::disallowed_methods, reason = "it ends with its connection")]
        let following = tokio::spawn(async move {
            stay.over().await;
            then();
        });
        Some(Follower(following.abort_handle()))
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What the sentinels are called together: the same text for everybody who means the same.
impl fmt::Display for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Site::together(&self.hosts), self.name)
    }
}

/// Never the password.
impl fmt::Debug for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sentinels({self})")
    }
}

impl fmt::Debug for Master {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let belief = self.belief.borrow();
        f.debug_struct("Master")
            .field("name", &self.name())
            .field("site", &belief.master)
            .finish_non_exhaustive()
    }
}
