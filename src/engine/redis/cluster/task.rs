//! The task that asks who has which slot: when somebody was sent elsewhere or found nobody, and now and then.

#![expect(
    clippy::disallowed_methods,
    reason = "an engine's own task keeps its own time"
)]

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::Level;

use super::ask::Inquiry;
use super::chart::{Chart, View};
use super::nodes::{Belief, Nodes, Word};
use crate::engine::redis::pace::at_random;
use crate::engine::redis::site::Site;
use crate::engine::supervise::{Restarts, caught};
use crate::engine::{Cause, Failure};

/// How long one server may take to say who has what, once that is known: the next time is not to wait for it.
const LONGEST_ANSWER: Duration = Duration::from_secs(1);
/// The same where connecting is a part of it, however long that may take: who hangs is tried anew.
const LONGEST_GREETING: Duration = Duration::from_secs(10);
/// How often they are asked though nobody has complained.
const NOW_AND_THEN: Duration = Duration::from_secs(3);
/// How long those wait who try again, while nothing is new.
const PAUSE: Duration = Duration::from_millis(100);
/// How often at most, where somebody has complained.
const SOON: Duration = Duration::from_millis(250);

pub(super) struct Task {
    pub(super) inquiry: Arc<Inquiry>,
    /// Those that the address names.
    pub(super) seeds: Arc<[Site]>,
    pub(super) nodes: Weak<Nodes>,
    pub(super) inbox: mpsc::UnboundedReceiver<Word>,
    pub(super) telling: watch::Sender<Belief>,
    pub(super) beating: watch::Sender<()>,
    pub(super) state: State,
}

/// What the task keeps to itself.
pub(super) struct State {
    /// When those are told who want to try again.
    beat: Option<Instant>,
    lines: HashMap<Site, MultiplexedConnection>,
    /// This round's answers.
    views: HashMap<Site, Result<View, Failure>>,
    /// Who has been asked, in this round, and has not answered.
    under_way: JoinSet<Done>,
    /// Whether it was known who has what when they were asked, and when the first has answered then.
    was_known: bool,
    told: Option<Instant>,
    /// When they were asked last, and when they are asked next.
    last: Instant,
    next: Instant,
}

type Done = (Site, Result<(View, MultiplexedConnection), Failure>);

impl State {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self {
            beat: None,
            lines: HashMap::new(),
            views: HashMap::new(),
            under_way: JoinSet::new(),
            was_known: false,
            told: None,
            last: now,
            next: now,
        }
    }
}

impl Task {
    pub(super) async fn run(mut self) {
        let events = self.inquiry.settings.events.clone();
        let mut restarts = Restarts::of("cluster", &events);
        while let Err(panicked) = caught(self.work()).await {
            restarts.after(panicked).await;
            self.state.under_way = JoinSet::new();
            self.state.next = Instant::now() + at_random(SOON);
        }
    }

    async fn work(&mut self) {
        loop {
            let state = &mut self.state;
            let next = tokio::time::sleep_until(state.next);
            let beat = tokio::time::sleep_until(state.beat.unwrap_or(state.next));
            let enough =
                tokio::time::sleep_until(state.told.unwrap_or(state.next) + LONGEST_ANSWER);
            tokio::select! {
                word = self.inbox.recv() => match word {
                    Some(Word::Look) => self.soon(),
                    None => return,
                },
                Some(done) = state.under_way.join_next() => {
                    if let Ok((site, answer)) = done {
                        self.hear(site, answer);
                    }
                }
                () = beat, if state.beat.is_some() => self.beat(),
                // The next round is not to wait for those to whom connecting takes long.
                () = enough, if state.told.is_some() => {
                    state.told = None;
                    state.under_way = JoinSet::new();
                }
                () = next, if state.under_way.is_empty() => self.ask_all(),
            }
        }
    }

    fn soon(&mut self) {
        let state = &mut self.state;
        state.next = state.next.min(state.last + at_random(SOON));
        state
            .beat
            .get_or_insert_with(|| Instant::now() + at_random(PAUSE));
    }

    fn beat(&mut self) {
        self.state.beat = None;
        self.beating.send_replace(());
    }

    /// All that are known, and those that the address names: whoever is cut off knows least.
    fn ask_all(&mut self) {
        let state = &mut self.state;
        state.last = Instant::now();
        state.next = state.last + at_random(NOW_AND_THEN);
        state.views.clear();
        state.told = None;
        let known = self.telling.borrow().chart.clone();
        state.was_known = known.is_some();
        let longest = self.inquiry.settings.connect_timeout;
        // Where nobody is connected to, connecting may take far longer than an answer.
        let limit = match known {
            Some(_) if !state.lines.is_empty() => longest.min(LONGEST_ANSWER),
            Some(_) => longest.min(LONGEST_GREETING),
            None => longest,
        };
        let known = known.iter().flat_map(|chart| chart.sites());
        let all: BTreeSet<&Site> = self.seeds.iter().chain(known).collect();
        state.lines.retain(|site, _| all.contains(site));
        for site in all {
            let (inquiry, site) = (self.inquiry.clone(), site.clone());
            let line = state.lines.get(&site).cloned();
            state.under_way.spawn(async move {
                let answer = inquiry.ask(&site, line, limit).await;
                (site, answer)
            });
        }
    }

    fn hear(&mut self, site: Site, answer: Result<(View, MultiplexedConnection), Failure>) {
        let state = &mut self.state;
        let view = match answer {
            Ok((view, line)) => {
                if state.was_known {
                    state.told.get_or_insert_with(Instant::now);
                }
                state.lines.insert(site.clone(), line);
                Ok(view)
            }
            Err(failure) => {
                let (server, why) = (site.clone(), failure.detail.clone());
                self.inquiry.settings.events.emit(Level::DEBUG, move || {
                    tracing::debug!(%server, why, "no answer");
                });
                state.lines.remove(&site);
                Err(failure)
            }
        };
        state.views.insert(site, view);
        self.conclude();
    }

    fn conclude(&mut self) {
        let state = &self.state;
        let over = state.under_way.is_empty();
        let views = state.views.values().filter_map(|view| view.as_ref().ok());
        let views: Vec<View> = views.cloned().collect();
        if views.iter().all(|view| view.claims.is_empty()) {
            if over {
                self.despair();
            }
            return;
        }
        let all = over && views.len() == state.views.len();
        let before = self.telling.borrow().chart.clone();
        let chart = Chart::of(&views, before.as_deref(), all);
        if before.as_deref() == Some(&chart) {
            return;
        }
        let servers = chart.sites().len();
        let missing = chart.missing();
        self.inquiry.settings.events.emit(Level::INFO, move || {
            tracing::info!(servers, missing, "the slots of the cluster");
        });
        let chart = Arc::new(chart);
        let moved = before.is_some_and(|before| chart.has_moved_from(&before));
        self.telling.send_modify(|belief| {
            belief.chart = Some(chart.clone());
            belief.moves += u64::from(moved);
            belief.trouble = None;
        });
        if let Some(nodes) = self.nodes.upgrade() {
            nodes.follow(&chart);
        }
        self.beat();
    }

    /// Nobody who was asked could say anything.
    fn despair(&mut self) {
        let failures = self.state.views.iter();
        let failures = failures.filter_map(|(site, view)| Some((site, view.as_ref().err()?)));
        let mut failures: Vec<(&Site, &Failure)> = failures.collect();
        failures.sort_by_key(|(site, _)| *site);
        // What does not pass by itself says most.
        let lasting = failures.iter().find(|(_, failure)| !failure.is_passing());
        let cause = lasting.map_or(Cause::Unreachable, |(_, failure)| failure.cause);
        let each = failures.iter();
        let each: Vec<String> = each
            .map(|(site, failure)| format!("{site}: {}", failure.detail))
            .collect();
        let why = match &*each {
            [] => "no server of the cluster has any slots yet".to_owned(),
            each => each.join("; "),
        };
        self.telling.send_modify(|belief| {
            belief.trouble = Some(Failure::new(cause, why));
            belief.looks += 1;
        });
    }
}
