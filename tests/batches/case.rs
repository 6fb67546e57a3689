//! One batch over one broken network, and what must be true of every lock in it.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use distlock::Error;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::mix::{Ended, Item, Kind, Mix, acquired, begin};
use super::rules::{LetGo, Rule};
use super::support::batch::{apart, is_batch};
use super::support::{ChaosProxy, Family, Fault, Match, Player, Script, Words, args, eventually};
use super::world::{World, client_behind};
use super::{COMMAND_TIMEOUT, PATIENCE};

/// What the callers do while their batch is under way.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Manner {
    /// All are dropped once the network has done wrong.
    GoneAfter,
    /// All are dropped before the server has heard of anything.
    GoneBefore,
    /// One is dropped before the server has heard of anything, one once the network has done wrong, one
    /// waits on; and so forth.
    OneByOne,
    /// Their time is over before the server has heard of anything.
    TimeOut,
    /// They wait, and ask again if they are told of trouble.
    WaitOn,
}

pub(crate) const MANNERS: &[Manner] = &[
    Manner::GoneAfter,
    Manner::GoneBefore,
    Manner::OneByOne,
    Manner::TimeOut,
    Manner::WaitOn,
];

impl Manner {
    /// Whether nobody goes before the answer comes.
    pub(crate) fn is_patient(self) -> bool {
        self == Self::WaitOn
    }
}

/// What came of a case in which nothing was wrong.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Verdict {
    /// Calls that brought an error, one that may be.
    pub(crate) errors: usize,
    /// Whether the batch was executed long after its callers had been told or had gone.
    pub(crate) late: bool,
}

pub(crate) struct Case<F: Family> {
    world: Rc<World<F>>,
    proxy: ChaosProxy,
    client: Player<F>,
    mix: &'static Mix,
    rule: &'static Rule,
    manner: Manner,
    items: Vec<Item<F>>,
    verdict: Verdict,
}

impl<F: Family> Case<F> {
    pub(crate) async fn tell(
        world: Rc<World<F>>,
        mix: &'static Mix,
        rule: &'static Rule,
        manner: Manner,
    ) -> Verdict {
        let proxy = world.server.proxy();
        let client = client_behind(&proxy.url()).await;
        let whole = Match::words(|words| carries_all(words, mix));
        proxy.rule(whole.nth(1), rule.fault);
        let mut case = Self {
            items: Vec::new(),
            verdict: Verdict::default(),
            world,
            proxy,
            client,
            mix,
            rule,
            manner,
        };
        // Once more for as long as a busy machine keeps the calls from travelling together.
        let give_up = Instant::now() + 6 * PATIENCE;
        while !case.travel().await {
            assert!(Instant::now() < give_up, "they never travel together");
            case.give_back().await;
        }
        case.end().await;
        case.verdict
    }

    /// Sets all calls off while another is under way, and sees them through. Says whether the network
    /// did wrong to a batch of all of them.
    async fn travel(&mut self) -> bool {
        static NAMES: AtomicU64 = AtomicU64::new(0);
        let name = |what: &str| format!("{what}-{}", NAMES.fetch_add(1, Ordering::Relaxed));
        self.items.clear();
        for &kind in self.mix.kinds {
            let name = name(&format!("{kind:?}"));
            let item = Item::new(kind, name, &self.client, &self.world.other);
            self.items.push(item.await);
        }
        // Nothing reaches the server until this is over, but the proxy hears of it.
        self.proxy.partition(true);
        let mut first = Box::pin(self.client.lock(name("first")).acquire());
        assert!(begin(first.as_mut()), "nothing is answered now");
        let first = tokio::spawn(first);
        let patience = (self.manner == Manner::TimeOut).then_some(COMMAND_TIMEOUT / 2);
        let mut calls = Vec::new();
        for item in &mut self.items {
            let mut call = item.call(patience);
            assert!(begin(call.as_mut()), "nothing is answered now");
            calls.push(tokio::spawn(call));
        }
        let together = timeout(
            PATIENCE / 8,
            eventually(PATIENCE, "they travel together", async || {
                self.target().is_some()
                    || self
                        .proxy
                        .requests()
                        .iter()
                        .any(|words| carries_all(words, self.mix))
            }),
        );
        let together = together.await.is_ok();
        match self.manner {
            Manner::GoneBefore => calls.iter().for_each(JoinHandle::abort),
            Manner::OneByOne => calls.iter().step_by(3).for_each(JoinHandle::abort),
            Manner::TimeOut => {
                eventually(PATIENCE, "their time is over", async || {
                    calls.iter().all(JoinHandle::is_finished)
                })
                .await;
            }
            Manner::GoneAfter | Manner::WaitOn => {}
        }
        self.proxy.partition(false);
        if together {
            eventually(PATIENCE, "the network does wrong", async || {
                self.target().is_some()
            })
            .await;
        }
        match self.manner {
            Manner::GoneAfter => calls.iter().for_each(JoinHandle::abort),
            Manner::OneByOne => calls.iter().skip(1).step_by(3).for_each(JoinHandle::abort),
            Manner::GoneBefore | Manner::TimeOut | Manner::WaitOn => {}
        }
        // Whatever became of it, it was not about any of these.
        drop(first.await);
        self.see_through(calls).await;
        together
    }

    /// Waits for every caller, and for whoever waits behind one. Nobody gets what somebody else holds.
    async fn see_through(&mut self, calls: Vec<JoinHandle<Ended<F::Kind>>>) {
        for item in &mut self.items {
            if let Some(theirs) = item.theirs.take() {
                let held = BTreeMap::from([(theirs.owner(), 1)]);
                assert_eq!(self.world.holds(&item.name).await, held, "two holders");
                assert!(theirs.is_held());
                theirs.release().await.expect("it is theirs");
            }
        }
        for (index, call) in calls.into_iter().enumerate() {
            let ended = timeout(PATIENCE, call).await;
            let ended = match ended.expect("a call comes to an end") {
                Ok(ended) => ended,
                Err(error) => {
                    assert!(error.is_cancelled(), "{error}");
                    Ended::GaveUp
                }
            };
            let item = &mut self.items[index];
            let takes = item.kind.script() == Script::Acquire;
            match ended {
                Ended::Failed(error) => {
                    self.verdict.errors += 1;
                    tolerable(&error, item.kind);
                    if takes && self.manner != Manner::TimeOut {
                        item.guards.push(acquired(&item.lock).await);
                    }
                }
                Ended::GaveUp => {}
                Ended::Given => assert!(!takes, "{:?}", item.kind),
                Ended::Got(guard) => {
                    assert_eq!(guard.name(), item.name);
                    assert!(takes, "{:?}", item.kind);
                    item.guards.push(guard);
                }
            }
            if let Some(waiting) = item.in_line.take() {
                let got = timeout(PATIENCE, waiting).await;
                match got.expect("everyone in line gets his turn") {
                    Ok(guard) => item.guards.push(guard),
                    Err(error) => {
                        self.verdict.errors += 1;
                        tolerable(&error, item.kind);
                        item.guards.push(acquired(&item.lock).await);
                    }
                }
            }
        }
        self.check().await;
    }

    /// Sooner or later the store has what the guards say.
    async fn check(&mut self) {
        for item in &mut self.items {
            let said = item.said();
            let held = self.world.counted(said.clone());
            let what = format!("redis has {held:?} for `{}`", item.name);
            eventually(PATIENCE, &what, async || {
                self.world.holds(&item.name).await == held
            })
            .await;
            for guard in &item.guards {
                assert!(guard.is_held(), "{guard:?}");
                assert_eq!(guard.hold_count(), said[&guard.owner()], "{}", item.name);
                item.tokens.seen::<F>(guard);
            }
            if F::FENCED {
                let last = self.world.last_token(&item.name).await;
                item.tokens.given::<F>(last, item.guards.last());
            }
        }
    }

    async fn give_back(&mut self) {
        for item in &mut self.items {
            while let Some(guard) = item.guards.pop() {
                let released = timeout(PATIENCE, guard.release()).await;
                if let Err(error) = released.expect("a release comes to an end") {
                    tolerable(&error, item.kind);
                }
            }
        }
        self.check().await;
    }

    async fn end(&mut self) {
        let target = self.target().expect("the network did wrong");
        if self.rule.let_go == Some(LetGo::AfterCleanup) {
            self.cleaned_up(&target).await;
            self.let_go().await;
            self.nothing_changed().await;
        }
        self.give_back().await;
        // Waits until everything is cleaned up.
        let closed = self.client.close().await;
        closed.expect("the network is whole again");
        if self.rule.let_go == Some(LetGo::WhenTaken) {
            for item in &mut self.items {
                item.theirs = Some(acquired(&self.world.other.lock(item.name.as_str())).await);
            }
        }
        if matches!(self.rule.let_go, Some(LetGo::WhenFree | LetGo::WhenTaken)) {
            self.let_go().await;
            self.nothing_changed().await;
        }
        self.everything_arrived().await;
        self.nothing_changed().await;
        for item in &mut self.items {
            let theirs = match item.theirs.take() {
                Some(theirs) => theirs,
                None => acquired(&self.world.other.lock(item.name.as_str())).await,
            };
            theirs.release().await.expect("it is theirs");
            let left = self.world.leftovers(&item.name).await;
            assert_eq!(left, [""; 0], "nobody has it or waits for it");
            let marks = format!("distlock_undone:{{{}}}", item.name);
            let marks = self.world.pttl(&marks).await;
            assert_ne!(marks, -1, "a mark that stays for ever");
            assert!(marks <= 300_000, "a mark that stays for {marks} ms");
        }
    }

    /// What came late has made no difference.
    async fn nothing_changed(&self) {
        for item in &self.items {
            let said = self.world.counted(item.said());
            let held = self.world.holds(&item.name).await;
            assert_eq!(held, said, "a ghost in `{}`", item.name);
            let line = self.world.line(&item.name).await;
            assert_eq!(line, [""; 0], "a ghost in `{}`", item.name);
        }
    }

    /// The calls in the batch that the network did wrong to, once it has.
    fn target(&self) -> Option<Vec<Words>> {
        let injected = self.proxy.injected();
        let mut requests = injected.iter().filter_map(|text| words_of(text));
        requests
            .find(|words| carries_all(words, self.mix))
            .map(apart)
    }

    /// Waits until whatever was in the batch is undone, or done again.
    async fn cleaned_up(&self, target: &[Words]) {
        let witness = &self.world.witness;
        // The first time counts where only its reply was held back.
        let times = usize::from(self.rule.fault == Fault::HoldReply) + 1;
        for call in target {
            let name = &call[3];
            let undone = |owner: &str, attempt: &str| {
                let undo = |words: &[String]| {
                    Script::Undo.runs(words) && args(words)[..2] == [owner, attempt]
                };
                witness.count(name, undo) > 0
            };
            eventually(PATIENCE, &format!("cleaned up: {call:?}"), async || {
                if Script::Acquire.runs(call) {
                    undone(&args(call)[0], &args(call)[1])
                } else if Script::Pass.runs(call) {
                    undone(&args(call)[1], "1")
                } else {
                    witness.count(name, |words| words == call) >= times
                }
            })
            .await;
        }
    }

    /// Lets the batch, or its reply, go on its way, and waits until it has arrived.
    async fn let_go(&mut self) {
        let late = self.rule.fault == Fault::HoldRequest;
        assert!(!late || self.proxy.unanswered() > 0, "it is held back");
        self.proxy.let_go();
        if late {
            self.everything_arrived().await;
            self.verdict.late = true;
        }
    }

    /// Waits until the server has executed whatever the client ever sent.
    async fn everything_arrived(&self) {
        eventually(PATIENCE, "all requests arrive", async || {
            self.proxy.unanswered() == 0
        })
        .await;
    }
}

/// Whether a request is a batch with a call for each of a mix, and no others of these.
fn carries_all(words: &[impl AsRef<[u8]>], mix: &Mix) -> bool {
    if !is_batch(words) {
        return false;
    }
    let text = |word: &_| String::from_utf8_lossy(AsRef::<[u8]>::as_ref(word)).into_owned();
    let calls = apart(words.iter().map(text).collect());
    let carried = |script: Script| calls.iter().filter(|call| script.runs(call)).count();
    let wanted = |script| {
        mix.kinds
            .iter()
            .filter(|kind| kind.script() == script)
            .count()
    };
    [Script::Acquire, Script::Pass, Script::Release]
        .into_iter()
        .all(|script| carried(script) == wanted(script))
}

/// The request in the proxy's record of a fault.
fn words_of(record: &str) -> Option<Words> {
    let (_, request) = record.split_once(": ")?;
    Some(request.split(' ').map(ToOwned::to_owned).collect())
}

/// Trouble is fine if it says that the store has not answered.
fn tolerable(error: &Error, kind: Kind) {
    let silent = matches!(error, Error::Timeout { .. } | Error::Unavailable { .. });
    assert!(silent, "nobody but us had the lock, but {kind:?}: {error}");
}
