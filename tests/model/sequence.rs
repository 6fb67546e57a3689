//! One name, its requests, and the judgement whether the replies can be compared at all.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use distlock::internals::engine::{StoreError, Subscription};
use distlock::internals::protocol::{Action, CounterOp, Kind, Moment, Reply, Request, Subject};

use super::compare::{Divergence, Notified, StepRecord, Tokens, agree};
use super::generator::{NameOwners, Step};
use super::listening::who_heard;
use super::support::SeededRng;

/// The latency bound: a slower reply says too little about when the request was executed.
pub(crate) const PATIENCE: Duration = Duration::from_millis(150);
/// Redis counts whole milliseconds and reads its clock now and then.
pub(crate) const GRAIN: Duration = Duration::from_millis(5);

pub(crate) struct Sequence {
    pub(crate) name: Arc<str>,
    pub(crate) cast: NameOwners,
    pub(crate) rng: SeededRng,
    /// A pair for each listener: its subscriptions in memory and at the store.
    pub(crate) listeners: Vec<(Subscription, Subscription)>,
    lines: Vec<StepRecord>,
    /// When memory's hold ends. The store's ends no sooner, and later by no more than `slack`.
    until: Option<Moment>,
    /// The ends of everything else, with the same slack: of readers, and of waiters' entries.
    ends: Vec<Moment>,
    /// The slowest reply so far.
    slack: Duration,
    tokens: Tokens,
    fate: Agreement,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Agreement {
    /// The engines have given different replies.
    Diverged,
    /// The replies were the same all along.
    Same,
    /// The engines may have executed a request on different sides of a lease's end.
    Unclear,
}

/// The time at which a request was sent to both engines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) sent: Moment,
    pub(crate) latency: Duration,
}

impl Asked {
    /// Returns whether both engines must have executed the request on the same side of all these ends. They are the ends in
    /// memory; in the store they are later by no more than its slowest reply took.
    pub(crate) fn is_clear_of<'a>(
        self,
        ends: impl IntoIterator<Item = &'a Moment>,
        slack: Duration,
    ) -> bool {
        let Self { sent, latency } = self;
        ends.into_iter().all(|until| {
            if sent < *until {
                sent + latency + GRAIN < *until
            } else {
                *until + slack + GRAIN < sent
            }
        })
    }
}

/// Returns the tombstone of an undo that got this reply.
pub(crate) fn mark_of(
    kind: Kind,
    action: &Action,
    reply: &Result<Reply, StoreError>,
) -> Option<String> {
    match action {
        // Without owners there is no tombstone: the undo is remembered among the executed requests. Otherwise only a reply
        // `Released` proves that the acquire has arrived, and so cannot arrive any more; unless it is sent many times, as by
        // a waiter in the store's queue.
        Action::Undo { .. } if kind.is_ownerless() => None,
        Action::Undo { owner, entry } => {
            let released = matches!(reply, Ok(Reply::Released { .. }));
            (!released || kind.has_server_queue()).then(|| format!("{owner}#{}", entry.attempt()))
        }
        _ => None,
    }
}

impl Sequence {
    pub(crate) fn new(
        name: String,
        cast: NameOwners,
        rng: SeededRng,
        listeners: Vec<(Subscription, Subscription)>,
    ) -> Self {
        Self {
            name: name.into(),
            cast,
            rng,
            listeners,
            lines: Vec::new(),
            until: None,
            ends: Vec::new(),
            slack: Duration::ZERO,
            tokens: Tokens::default(),
            fate: Agreement::Same,
        }
    }

    /// Judges a step. `until` is when memory's hold ends after it, if there is one.
    pub(crate) fn record(
        &mut self,
        step: Step,
        asked: Asked,
        memory: Result<Reply, StoreError>,
        redis: Result<Reply, StoreError>,
        until: Option<Moment>,
    ) -> Option<Divergence> {
        if !self.is_clear(asked) || asked.latency > PATIENCE {
            self.fate = Agreement::Unclear;
            return None;
        }
        self.slack = self.slack.max(asked.latency);
        self.until = until;
        if let Action::Acquire {
            waiter_ttl: Some(waiter_ttl),
            ..
        }
        | Action::CounterOp {
            change:
                CounterOp::Take {
                    waiter_ttl: Some(waiter_ttl),
                    ..
                },
            ..
        } = step.action
        {
            self.ends.push(asked.sent + waiter_ttl);
        }
        if let Action::Acquire { lease, .. } | Action::Renew { lease, .. } = step.action
            && !step.kind.is_exclusive()
        {
            self.ends.push(asked.sent + lease);
        }
        let fit = self.tokens.fit(&memory, &redis);
        let same = agree(&memory, &redis, self.slack + GRAIN);
        self.lines.push(StepRecord {
            sent: asked.sent,
            step,
            memory,
            redis,
            heard: Notified::default(),
        });
        if same && fit {
            return None;
        }
        self.diverged("the replies differ in the last line")
    }

    /// Judges which listeners were notified of the last step.
    pub(crate) async fn listen(&mut self, patient: bool) -> Option<Divergence> {
        let heard = who_heard(&self.listeners, patient).await;
        let same = heard.memory == heard.redis;
        self.lines.last_mut()?.heard = heard;
        if same {
            return None;
        }
        self.diverged("the news differs in the last line")
    }

    /// Judges whether the name is locked: in memory, by the engine's own list and by its key. A lease that ended just then
    /// is not judged.
    pub(crate) fn find(&mut self, held: [bool; 3], asked: Asked) -> Option<Divergence> {
        if !self.is_clear(asked) || held == [held[0]; 3] {
            return None;
        }
        let what = format!("held in memory, by SCAN and by key: {held:?}");
        self.diverged(&what)
    }

    /// Judges which undone acquires the store remembers.
    pub(crate) fn remember(&mut self, undone: Option<&BTreeSet<String>>) -> Option<Divergence> {
        let lines = self.lines.iter();
        let marked =
            lines.filter_map(|line| mark_of(line.step.kind, &line.step.action, &line.memory));
        let marked: BTreeSet<_> = marked.collect();
        if undone.cloned().unwrap_or_default() == marked {
            return None;
        }
        self.diverged(&format!("Redis remembers as undone: {undone:?}"))
    }

    pub(crate) fn fate(&self) -> Agreement {
        self.fate
    }

    pub(crate) fn lines(&self) -> &[StepRecord] {
        &self.lines
    }

    pub(crate) fn request(&self, step: &Step) -> Request {
        Subject::new(step.kind, self.name.clone()).request(step.action.clone())
    }

    /// Returns whether both engines must have executed the request on the same side of all ends.
    fn is_clear(&self, asked: Asked) -> bool {
        let ends = self.until.iter().chain(&self.ends);
        asked.is_clear_of(ends, self.slack)
    }

    fn diverged(&mut self, what: &str) -> Option<Divergence> {
        if self.fate != Agreement::Same {
            return None;
        }
        self.fate = Agreement::Diverged;
        Some(Divergence {
            name: self.name.to_string(),
            what: what.to_owned(),
            lines: self.lines.iter().map(ToString::to_string).collect(),
        })
    }
}
