//! Some names, what is asked of them at once, and whether the answers can be compared at all.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use distlock::internals::engine::{Answer, Before, Cause, Engine, Failure, Listener};
use distlock::internals::protocol::{Action, Moment, Reply, Request};

use super::company::{Company, Move};
use super::compare::{Coverage, Divergence, Heard, Tokens, agree, tell};
use super::keyspace::Keyspace;
use super::listening::who_heard;
use super::pair::all;
use super::sequence::{Asked, Fate, GRAIN, PATIENCE, mark_of};
use super::support::SeededRng;

type Answers = Vec<Result<Reply, Failure>>;

/// What is sent to both.
#[derive(Clone, Debug)]
pub(crate) enum Question {
    Asks(Move),
    Looks(Vec<Request>),
}

impl Question {
    pub(crate) fn ask(&self, engine: &Arc<dyn Engine>) -> Answer<Answers> {
        match self {
            Self::Asks(Move::All(requests, before)) => engine
                .call_all(requests.clone(), *before)
                .expect("it can take several"),
            Self::Asks(Move::One(request)) => {
                let answer = engine.call(request.clone());
                Box::pin(async move { vec![answer.await] })
            }
            Self::Looks(requests) => {
                let answers = requests.iter().map(|request| engine.call(request.clone()));
                Box::pin(all(answers.collect()))
            }
        }
    }

    /// When what came of it is over, as far as it has an end.
    fn ends(&self, answers: &Answers, sent: Moment) -> Vec<Moment> {
        let all = answers.len() == self.requests().len() && answers.iter().all(is_grant);
        if matches!(self, Self::Asks(Move::All(_, Before::RolledBack))) && !all {
            return Vec::new();
        }
        let answered = self.requests().iter().zip(answers);
        let times = answered.filter_map(|(request, answer)| match (&request.action, answer) {
            (Action::Acquire { lease, .. }, Ok(Reply::Granted { .. })) => Some(*lease),
            (Action::Acquire { waits, .. }, _) => *waits,
            (Action::Renew { lease, .. }, Ok(Reply::Renewed)) => Some(*lease),
            _ => None,
        });
        times.map(|time| sent + time).collect()
    }

    fn requests(&self) -> &[Request] {
        match self {
            Self::Asks(Move::All(requests, _)) | Self::Looks(requests) => requests,
            Self::Asks(Move::One(request)) => std::slice::from_ref(request),
        }
    }
}

fn is_grant(answer: &Result<Reply, Failure>) -> bool {
    matches!(answer, Ok(Reply::Granted { .. }))
}

/// One sequence.
pub(crate) struct Group {
    name: String,
    pub(crate) company: Company,
    rng: SeededRng,
    listeners: Vec<(Listener, Listener)>,
    lines: Vec<Line>,
    ends: Vec<Moment>,
    /// Until when those are believed to wait who do, by name and owner.
    waiting: BTreeMap<(Arc<str>, String), Moment>,
    slack: Duration,
    tokens: BTreeMap<Arc<str>, Tokens>,
    fate: Fate,
}

struct Line {
    sent: Moment,
    question: Question,
    memory: Answers,
    store: Answers,
    heard: Heard,
}

impl Group {
    pub(crate) fn new(
        name: String,
        company: Company,
        rng: SeededRng,
        listeners: Vec<(Listener, Listener)>,
    ) -> Self {
        Self {
            name,
            company,
            rng,
            listeners,
            lines: Vec::new(),
            ends: Vec::new(),
            waiting: BTreeMap::new(),
            slack: Duration::ZERO,
            tokens: BTreeMap::new(),
            fate: Fate::Same,
        }
    }

    /// What happens next, if anything.
    pub(crate) fn next(&mut self, period: Duration, now: Moment) -> Option<Move> {
        let next = self.company.next(period, &mut self.rng)?;
        // Whether somebody who waits no longer still stands in the line is each store's own, as in `seen`: it does not leave.
        match &next {
            Move::One(Request {
                subject,
                action: Action::Release { owner, .. } | Action::Undo { owner, .. },
            }) => {
                let place = (subject.name.clone(), owner.to_string());
                let gone = self.waiting.get(&place).is_some_and(|until| *until <= now);
                (!gone).then_some(next)
            }
            Move::All(..) | Move::One(_) => Some(next),
        }
    }

    pub(crate) fn record(
        &mut self,
        question: Question,
        asked: Asked,
        memory: Answers,
        store: Answers,
    ) -> Option<Divergence> {
        if self.fate != Fate::Same {
            return None;
        }
        if !asked.is_clear_of(&self.ends, self.slack) || asked.latency > PATIENCE {
            self.fate = Fate::Unclear;
            return None;
        }
        self.slack = self.slack.max(asked.latency);
        // What is over on both is over for good.
        self.ends.retain(|until| asked.sent < *until);
        self.ends.extend(question.ends(&memory, asked.sent));
        for request in question.requests() {
            if let Action::Acquire {
                owner,
                waits: Some(waits),
                ..
            } = &request.action
            {
                let place = (request.subject.name.clone(), owner.to_string());
                self.waiting.insert(place, asked.sent + *waits);
            }
        }
        let mut same = memory.len() == store.len();
        let answers = memory.iter().zip(&store);
        for (request, (memory, store)) in question.requests().iter().zip(answers) {
            let tokens = self.tokens.entry(request.subject.name.clone()).or_default();
            let fit = tokens.fit(memory, store);
            let [memory, store] = [memory, store].map(|reply| self.seen(request, reply, asked));
            same &= fit && agree(&memory, &store, self.slack + GRAIN);
        }
        let looked = matches!(question, Question::Looks(_));
        if same && looked {
            return None;
        }
        self.lines.push(Line {
            sent: asked.sent,
            question,
            memory,
            store,
            heard: Heard::default(),
        });
        if same {
            return None;
        }
        self.diverged(match looked {
            false => "the replies differ in the last line",
            true => "what is left differs",
        })
    }

    /// What an answer says, but for those who wait no longer: whoever asks next takes them out of the line, and a call that
    /// fails has asked on one store, and not on another, which has taken back that, too.
    fn seen(
        &self,
        request: &Request,
        reply: &Result<Reply, Failure>,
        asked: Asked,
    ) -> Result<Reply, Failure> {
        let mut reply = reply.clone();
        if let Ok(Reply::Inspected(Some(holding))) = &mut reply {
            holding.waiting.retain(|owner| {
                let place = (request.subject.name.clone(), owner.clone());
                self.waiting
                    .get(&place)
                    .is_some_and(|until| asked.sent < *until)
            });
        }
        reply
    }

    /// Judges who has heard of anything.
    pub(crate) async fn listen(&mut self, patient: bool) -> Option<Divergence> {
        if self.fate != Fate::Same {
            return None;
        }
        let heard = who_heard(&self.listeners, patient).await;
        let same = heard.memory == heard.redis;
        if let Some(last) = self.lines.last_mut() {
            last.heard = heard;
        }
        if same {
            return None;
        }
        self.diverged("the news differs in the last line")
    }

    /// Judges what is left of each name.
    pub(crate) fn end(
        &mut self,
        names: &BTreeSet<Arc<str>>,
        keys: &Keyspace,
        asked: Asked,
    ) -> Option<Divergence> {
        let clear = asked.is_clear_of(&self.ends, self.slack);
        let mut found = None;
        for name in self.company.names() {
            let by_key = keys.locks.contains(&**name);
            let held = [names.contains(name), keys.listed.contains(&**name), by_key];
            if clear && held != [held[0]; 3] {
                found = Some(format!(
                    "`{name}` held in memory, by the list and by key: {held:?}"
                ));
            }
            let marked: BTreeSet<_> = self.marks(name).collect();
            let undone = keys.undone.get(&**name).cloned().unwrap_or_default();
            if undone != marked {
                found = Some(format!("remembered as undone of `{name}`: {undone:?}"));
            }
        }
        self.diverged(&found?)
    }

    fn marks(&self, name: &Arc<str>) -> impl Iterator<Item = String> {
        self.lines.iter().filter_map(move |line| {
            let Question::Asks(Move::One(request)) = &line.question else {
                return None;
            };
            let of_it = request.subject.name == *name;
            let mark = mark_of(request.subject.kind, &request.action, &line.memory[0]);
            mark.filter(|_| of_it)
        })
    }

    pub(crate) fn fate(&self) -> Fate {
        self.fate
    }

    /// Counts how each call for several has ended.
    pub(crate) fn count(&self, coverage: &mut Coverage) {
        for line in &self.lines {
            coverage.note(line.kind());
        }
    }

    fn diverged(&mut self, what: &str) -> Option<Divergence> {
        if self.fate != Fate::Same {
            return None;
        }
        self.fate = Fate::Diverged;
        Some(Divergence {
            name: self.name.clone(),
            what: what.to_owned(),
            lines: self.lines.iter().map(ToString::to_string).collect(),
        })
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.question {
            Question::Asks(Move::All(_, before)) => writeln!(f, "  {:?}  {before:?}", self.sent)?,
            Question::Asks(Move::One(_)) => writeln!(f, "  {:?}", self.sent)?,
            Question::Looks(_) => writeln!(f, "  {:?}  left", self.sent)?,
        }
        for (place, Request { subject, action }) in self.question.requests().iter().enumerate() {
            writeln!(f, "    {:?} `{}`  {action:?}", subject.kind, subject.name)?;
            match (self.memory.get(place), self.store.get(place)) {
                (Some(memory), Some(store)) => tell(f, memory, store)?,
                (None, None) => {}
                (memory, store) => writeln!(f, "    {memory:?}, but {store:?}")?,
            }
        }
        write!(f, "{}", self.heard)
    }
}

impl Line {
    /// How it was asked, and what came of it.
    fn kind(&self) -> (&'static str, &'static str) {
        let Question::Asks(Move::All(requests, before)) = &self.question else {
            return ("one", "something");
        };
        let how = match before {
            Before::Kept => KEPT,
            Before::RolledBack => ROLLED_BACK,
        };
        let first = self.memory.len() == 1;
        let end = match self.memory.last() {
            Some(Ok(Reply::Granted { .. })) if requests.len() == 1 => "the only one granted",
            Some(Ok(Reply::Granted { .. })) => "all granted",
            Some(Ok(Reply::Busy { .. })) if first => "the first busy",
            Some(Ok(Reply::Busy { .. })) => "a later one busy",
            Some(Ok(Reply::Undone)) if first => "the first undone",
            Some(Ok(Reply::Undone)) => "a later one undone",
            Some(Err(failure)) if failure.cause == Cause::WrongKind && first => "the first wrong",
            Some(Err(failure)) if failure.cause == Cause::WrongKind => "a later one wrong",
            other => panic!("{other:?} is no answer to an acquire"),
        };
        (how, end)
    }
}

/// Every way in which a call for several can end, each so often.
pub(crate) fn assert_every_end_was_seen(coverage: &Coverage, least: u64) {
    for how in [KEPT, ROLLED_BACK] {
        for end in ENDS {
            let times = coverage.of((how, end));
            assert!(times >= least, "{how}, {end}: seen {times} times only");
        }
    }
}

const KEPT: &str = "those before kept";
const ROLLED_BACK: &str = "rolled back";
const ENDS: [&str; 8] = [
    "all granted",
    "the only one granted",
    "the first busy",
    "a later one busy",
    "the first undone",
    "a later one undone",
    "the first wrong",
    "a later one wrong",
];
