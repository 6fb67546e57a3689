//! The task that listens to all sentinels, asks them, and says what follows.

#![expect(
    clippy::disallowed_methods,
    reason = "an engine's own task keeps its own time"
)]

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::Level;

use super::ask::{Heard, Inquiry};
use super::believe::{Named, Testimony, Verdict, believe};
use super::{Belief, Word};
use crate::engine::redis::pace::at_random;
use crate::engine::redis::site::Site;
use crate::engine::supervise::{Restarts, caught};
use crate::engine::{Cause, Failure};

/// How often they are asked though nobody has said anything: a message may be lost.
const NOW_AND_THEN: Duration = Duration::from_secs(3);
/// How long those wait who try again, while nobody says anything.
const PAUSE: Duration = Duration::from_millis(100);
/// How often at most, where something is wrong with the master.
const SOON: Duration = Duration::from_millis(250);

pub(super) struct Task {
    inquiry: Arc<Inquiry>,
    configured: Arc<[Site]>,
    /// Those that the others have told of.
    learned: Vec<Site>,
    inbox: mpsc::UnboundedReceiver<Word>,
    telling: watch::Sender<Belief>,
    beating: watch::Sender<()>,
    /// When those are told who want to try again.
    beat: Option<Instant>,
    believed: Option<Named>,
    /// Where a replica was found.
    refused: Option<Site>,
    lines: HashMap<Site, MultiplexedConnection>,
    /// What each said last, or why it did not.
    heard: HashMap<Site, Result<Heard, Failure>>,
    /// Who has been asked and has not answered: those who have are not to wait for it.
    asked: HashSet<Site>,
    /// When what was heard has to do, though some were not heard: connecting may take far longer than an answer.
    enough: Option<Instant>,
    under_way: JoinSet<Done>,
    /// When they were asked last, and when they are asked next.
    last: Instant,
    next: Instant,
}

type Done = (Site, Result<(Heard, MultiplexedConnection), Failure>);

impl Task {
    pub(super) fn new(
        inquiry: Arc<Inquiry>,
        configured: Arc<[Site]>,
        inbox: mpsc::UnboundedReceiver<Word>,
        telling: watch::Sender<Belief>,
        beating: watch::Sender<()>,
    ) -> Self {
        let now = Instant::now();
        Self {
            inquiry,
            configured,
            learned: Vec::new(),
            inbox,
            telling,
            beating,
            beat: None,
            believed: None,
            refused: None,
            lines: HashMap::new(),
            heard: HashMap::new(),
            asked: HashSet::new(),
            enough: None,
            under_way: JoinSet::new(),
            last: now,
            next: now,
        }
    }

    pub(super) async fn run(mut self) {
        let events = self.inquiry.settings.events.clone();
        let mut restarts = Restarts::of("sentinels", &events);
        while let Err(panicked) = caught(self.work()).await {
            restarts.after(panicked).await;
            self.under_way = JoinSet::new();
            self.asked.clear();
            self.next = Instant::now() + at_random(SOON);
        }
    }

    async fn work(&mut self) {
        loop {
            let next = tokio::time::sleep_until(self.next);
            let beat = tokio::time::sleep_until(self.beat.unwrap_or(self.next));
            let enough = tokio::time::sleep_until(self.enough.unwrap_or(self.next));
            tokio::select! {
                // Whoever was stopped for a while hears all who have answered meanwhile, before it makes do with some; and
                // however many complain, those who may help are asked.
                biased;
                Some(done) = self.under_way.join_next() => {
                    if let Ok((site, answer)) = done {
                        self.hear(site, answer);
                    }
                }
                () = enough, if self.enough.is_some() => {
                    self.enough = None;
                    self.conclude(true);
                }
                () = beat, if self.beat.is_some() => self.beat(),
                () = next => self.ask_all(),
                word = self.inbox.recv() => match word {
                    Some(word) => self.obey(word),
                    None => return,
                },
            }
        }
    }

    fn obey(&mut self, word: Word) {
        match word {
            Word::Accepted(site) => {
                if self.refused == Some(site) {
                    self.refused = None;
                }
            }
            Word::Look => {
                self.soon();
                self.beat
                    .get_or_insert_with(|| Instant::now() + at_random(PAUSE));
            }
            Word::Refused(site) => {
                self.refused = Some(site);
                self.soon();
            }
            // Who is being asked may have answered before it knew.
            Word::Switched => {
                self.under_way = JoinSet::new();
                self.asked.clear();
                self.ask_all();
            }
        }
    }

    fn beat(&mut self) {
        self.beat = None;
        self.beating.send_replace(());
    }

    fn soon(&mut self) {
        self.next = self.next.min(self.last + at_random(SOON));
    }

    fn ask_all(&mut self) {
        self.last = Instant::now();
        self.next = self.last + at_random(NOW_AND_THEN);
        for site in self.configured.iter().chain(&self.learned) {
            if !self.asked.insert(site.clone()) {
                continue;
            }
            let (inquiry, site) = (self.inquiry.clone(), site.clone());
            let line = self.lines.get(&site).cloned();
            self.under_way.spawn(async move {
                let answer = inquiry.ask(&site, line).await;
                (site, answer)
            });
        }
    }

    fn hear(&mut self, site: Site, answer: Result<(Heard, MultiplexedConnection), Failure>) {
        self.asked.remove(&site);
        let heard = match answer {
            Ok((heard, line)) => {
                self.lines.insert(site.clone(), line);
                Ok(heard)
            }
            Err(failure) => {
                let (sentinel, why) = (site.clone(), failure.detail.clone());
                self.inquiry.settings.events.emit(Level::DEBUG, move || {
                    tracing::debug!(%sentinel, why, "no answer");
                });
                self.lines.remove(&site);
                Err(failure)
            }
        };
        let speaks = |heard: &_| matches!(heard, Ok(Heard::Said { .. }));
        let is_new = speaks(&heard) && !self.heard.get(&site).is_some_and(speaks);
        self.heard.insert(site, heard);
        self.learn();
        if !self.are_all_heard() {
            self.wait_for_others(is_new);
        }
        self.conclude(false);
    }

    /// Whether nobody is left who may say something else.
    fn are_all_heard(&self) -> bool {
        let is_heard = |site: &Site| match self.heard.get(site) {
            Some(Ok(_)) => true,
            // What was in its way may be gone by now.
            Some(Err(_)) => self.believed.is_some() || !self.asked.contains(site),
            None => false,
        };
        self.configured.iter().all(is_heard)
    }

    /// For as long as an answer may take; and whoever speaks for the first time is not believed alone while the others are about to.
    fn wait_for_others(&mut self, is_new: bool) {
        let soon = Instant::now() + SOON;
        let longest = soon.max(self.last + self.inquiry.limit);
        let enough = self.enough.get_or_insert(longest);
        if is_new {
            *enough = soon.max(*enough);
        }
    }

    /// Takes note of the sentinels that the others tell of, and of those they tell of no more; while nobody tells
    /// anything, of nothing.
    fn learn(&mut self) {
        let mut told = None;
        for heard in self.heard.values() {
            if let Ok(Heard::Said { others, .. }) = heard {
                told.get_or_insert_with(BTreeSet::new).extend(others);
            }
        }
        let Some(told) = told else {
            return;
        };
        let new = told
            .into_iter()
            .filter(|site| !self.configured.contains(site));
        self.learned = new.take(MOST).cloned().collect();
        let (configured, learned) = (&self.configured, &self.learned);
        let is_known = |site: &Site| configured.contains(site) || learned.contains(site);
        self.heard.retain(|site, _| is_known(site));
        self.lines.retain(|site, _| is_known(site));
    }

    /// Says what follows from what was heard, where all were, or that has to be `enough`.
    fn conclude(&mut self, enough: bool) {
        let said: Vec<Testimony> = self
            .heard
            .values()
            .filter_map(|heard| match heard {
                Ok(Heard::Said { said, .. }) => Some(said.clone()),
                Ok(Heard::NoSuchMaster) | Err(_) => None,
            })
            .collect();
        let all = self.are_all_heard();
        let (current, refused) = (self.believed.as_ref(), self.refused.as_ref());
        match believe(&said, self.configured.len(), current, refused) {
            Verdict::Certainly(master) => self.announce(master),
            Verdict::Perhaps(master) if all || enough => self.announce(master),
            Verdict::Perhaps(_) | Verdict::Stay => {
                let hopeless = all || enough && self.is_refused();
                if hopeless && self.believed.is_none() {
                    self.despair();
                }
            }
        }
    }

    /// Whether half of them, or more, have said what will not pass by itself.
    fn is_refused(&self) -> bool {
        let refuses = |site: &&Site| match self.heard.get(*site) {
            Some(Ok(Heard::NoSuchMaster)) => true,
            Some(Err(failure)) => !failure.is_passing(),
            Some(Ok(Heard::Said { .. })) | None => false,
        };
        let refusals = self.configured.iter().filter(refuses).count();
        refusals * 2 >= self.configured.len()
    }

    fn announce(&mut self, master: Named) {
        let site = master.site.clone();
        let again = self.believed.as_ref().is_some_and(|old| old.site != site);
        if again || self.believed.is_none() {
            let (name, site, epoch) = (self.inquiry.name.clone(), site.clone(), master.epoch);
            self.inquiry.settings.events.emit(Level::INFO, move || {
                tracing::info!(name, master = %site, epoch, again, "the sentinels name the master");
            });
        }
        // Also of one that is where it was: it was made master anew, after a time in which it was none.
        self.telling.send_modify(|belief| {
            belief.master = Some(site);
            belief.term += 1;
            belief.trouble = None;
        });
        self.believed = Some(master);
        self.beat();
    }

    /// Nobody who was asked could say where the master is.
    fn despair(&mut self) {
        let trouble = trouble(&self.inquiry.name, &self.configured, &self.heard);
        self.telling.send_modify(|belief| {
            belief.trouble = Some(trouble);
            belief.looks += 1;
        });
    }
}

/// Sentinels come and go by other addresses; more than these nobody runs.
const MOST: usize = 16;

/// Why nobody could say where the master is: which were asked, and what each said.
fn trouble(
    name: &str,
    configured: &[Site],
    heard: &HashMap<Site, Result<Heard, Failure>>,
) -> Failure {
    let mut causes = Vec::new();
    let mut each = Vec::new();
    for site in configured {
        match heard.get(site) {
            Some(Ok(_)) => {
                causes.push(Cause::Unusable);
                each.push(format!("{site}: no such master"));
            }
            Some(Err(failure)) => {
                causes.push(failure.cause);
                each.push(format!("{site}: {}", failure.detail));
            }
            None => each.push(format!("{site}: not heard yet")),
        }
    }
    // What does not pass by itself says most.
    let lasting = |cause: &&Cause| !Failure::new(**cause, "").is_passing();
    let cause = if causes.contains(&Cause::Unusable) {
        Cause::Unusable
    } else {
        let lasting = causes.iter().find(lasting);
        lasting.copied().unwrap_or(Cause::Unreachable)
    };
    let each = each.join("; ");
    let why = match cause {
        Cause::Unusable => format!("no master named `{name}` is known to the sentinels ({each})"),
        _ => format!("no sentinel says where `{name}` is ({each})"),
    };
    Failure::new(cause, why)
}
