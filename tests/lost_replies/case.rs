//! One story told over one broken network, and what must be true after every step of it.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use distlock::{Client, Error, Guard, Lock, Owner};
use tokio::time::timeout;

use super::PATIENCE;
use super::rules::{LetGo, Rule};
use super::stories::{Repeated, Story};
use super::support::batch::apart;
use super::support::{ChaosProxy, Fault, Match, Script, Words, eventually};
use super::world::{World, client_behind};

pub(crate) struct Case {
    pub(crate) world: Rc<World>,
    pub(crate) proxy: ChaosProxy,
    pub(crate) client: Client,
    pub(crate) name: String,
    pub(crate) owner: Owner,
    /// The guards that are alive, oldest first.
    pub(crate) guards: Vec<Guard>,
    story: &'static Story,
    rule: &'static Rule,
    let_go: bool,
    verdict: Verdict,
}

/// What came of a case in which nothing was wrong.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Verdict {
    /// Calls that brought an error, one that may be.
    pub(crate) errors: usize,
    /// Whether the request was executed long after its call had been given up and cleaned up.
    pub(crate) late: bool,
}

impl Case {
    pub(crate) async fn tell(
        world: Rc<World>,
        story: &'static Story,
        rule: &'static Rule,
        nth: u64,
    ) -> Verdict {
        static CASES: AtomicU64 = AtomicU64::new(0);
        let proxy = ChaosProxy::start(world.server.addr());
        let client = client_behind(&proxy).await;
        let target = Match::words(|words| story.is_target(words)).nth(nth);
        proxy.rule(target, rule.fault);
        let mut case = Self {
            name: format!("case-{}", CASES.fetch_add(1, Ordering::Relaxed)),
            owner: client.new_owner(),
            guards: Vec::new(),
            let_go: false,
            verdict: Verdict::default(),
            world,
            proxy,
            client,
            story,
            rule,
        };
        // Told again for as long as a busy machine keeps the request from being sent.
        let give_up = Instant::now() + PATIENCE;
        while case.target().is_none() && Instant::now() < give_up {
            (story.tell)(&mut case).await;
        }
        case.end().await;
        case.verdict
    }

    pub(crate) fn lock(&self) -> Lock {
        self.client.lock(self.name.as_str()).with_owner(&self.owner)
    }

    /// Acquires, one way or another. Says whether it got the lock; if not, for a good reason.
    pub(crate) async fn acquire<T: Into<Option<Guard>>>(
        &mut self,
        acquiring: impl Future<Output = Result<T, Error>>,
    ) -> bool {
        let acquired = timeout(PATIENCE, acquiring).await;
        let got = match acquired.expect("an acquire comes to an end") {
            Ok(guard) => {
                let guard = guard.into();
                self.guards.push(guard.expect("nobody else holds it"));
                true
            }
            Err(error) => self.tolerate(&error),
        };
        self.check(got).await;
        got
    }

    /// Releases the guard that was acquired last.
    pub(crate) async fn release(&mut self) {
        let Some(guard) = self.guards.pop() else {
            return;
        };
        let releasing = timeout(PATIENCE, guard.release()).await;
        let released = match releasing.expect("a release comes to an end") {
            Ok(()) => true,
            Err(error) => self.tolerate(&error),
        };
        self.check(released).await;
    }

    pub(crate) async fn release_all(&mut self) {
        while !self.guards.is_empty() {
            self.release().await;
        }
    }

    /// Drops the guard that was acquired last.
    pub(crate) async fn abandon(&mut self) {
        drop(self.guards.pop());
        self.check(false).await;
    }

    /// Trouble is fine if it says that the store has not answered; "lost" would be false.
    pub(crate) fn tolerate(&mut self, error: &Error) -> bool {
        let silent = matches!(error, Error::Timeout { .. } | Error::Unavailable { .. });
        assert!(silent, "nobody but us had the lock, but: {error}");
        self.verdict.errors += 1;
        false
    }

    /// Redis has what the guards say: at once if the last call was `answered` and nothing was lost before
    /// it, else as soon as the client has cleaned up.
    pub(crate) async fn check(&mut self, answered: bool) {
        let expected = self.said_by_guards();
        if answered && (self.rule.harmless || self.target().is_none()) {
            assert_eq!(self.world.holds(&self.name).await, expected);
        } else {
            self.becomes(&expected).await;
        }
        for guard in &self.guards {
            assert!(guard.is_held(), "{guard:?}");
            assert_eq!(guard.hold_count(), expected[&guard.owner()]);
        }
        if self.rule.let_go == Some(LetGo::AfterCleanup)
            && let Some(call) = self.target()
            && !self.let_go
        {
            self.cleaned_up(&call).await;
            self.let_go(&call).await;
            assert_eq!(self.world.holds(&self.name).await, expected);
        }
    }

    /// The story is over and everything was given back.
    async fn end(&mut self) {
        assert!(
            self.guards.is_empty(),
            "the story releases what it acquires"
        );
        eventually(PATIENCE, "the network does wrong", async || {
            self.target().is_some()
        })
        .await;
        let call = self.target().expect("seen just now");
        self.check(false).await;
        // Waits until everything is cleaned up.
        let closed = self.client.close().await;
        closed.expect("the network is whole again");
        let free = BTreeMap::new();
        match self.rule.let_go {
            Some(LetGo::WhenFree) => {
                self.let_go(&call).await;
                assert_eq!(self.world.holds(&self.name).await, free, "a ghost");
            }
            Some(LetGo::WhenTaken) => {
                let guard = self.taken_by_another().await;
                self.let_go(&call).await;
                let taken = BTreeMap::from([(guard.owner(), 1)]);
                assert_eq!(self.world.holds(&self.name).await, taken);
                assert!(guard.is_held());
                guard.release().await.expect("it is still the other's");
            }
            Some(LetGo::AfterCleanup) => assert!(self.let_go),
            None => {}
        }
        self.everything_arrived().await;
        assert_eq!(self.world.holds(&self.name).await, free, "a ghost");
        let guard = self.taken_by_another().await;
        guard.release().await.expect("it is the other's");
        let marks = format!("distlock_undone:{{{}}}", self.name);
        let marks = self.world.pttl(&marks).await;
        assert_ne!(marks, -1, "a mark that stays for ever");
        assert!(marks <= 300_000, "a mark that stays for {marks} ms");
    }

    async fn taken_by_another(&self) -> Guard {
        let lock = self.world.other.lock(self.name.as_str());
        let guard = lock.acquire_timeout(PATIENCE / 4).await;
        guard.expect("its network is fine").expect("it is free")
    }

    /// The request that the network did wrong to, once it has.
    pub(crate) fn target(&self) -> Option<Words> {
        let mut calls = self.harmed("");
        calls.retain(|call| self.story.is_target(call));
        calls.into_iter().next()
    }

    /// The calls that faults of this sort fell on.
    fn harmed(&self, fault: &str) -> Vec<Words> {
        let injected = self.proxy.injected();
        let injected = injected.iter().filter(|text| text.starts_with(fault));
        let requests = injected.filter_map(|text| text.split_once(": "));
        let words = |(_, request): (_, &str)| request.split(' ').map(ToOwned::to_owned).collect();
        requests.map(words).flat_map(apart).collect()
    }

    /// Waits until the client has undone the target, whose call was given up, or done it again.
    async fn cleaned_up(&self, call: &[String]) {
        let witness = &self.world.witness;
        let repeated = || witness.count(&self.name, |words| words == call);
        let undone = |owner: &str, attempt: &str| {
            let undo = |words: &[String]| {
                Script::Undo.runs(words) && words[5] == owner && words[6] == attempt
            };
            witness.count(&self.name, undo)
        };
        let again = match self.story.repeated {
            Repeated::Always => true,
            Repeated::Never => false,
            Repeated::WhileHeld => !self.guards.is_empty(),
        };
        // The first time counts where only its reply was held back.
        let times = usize::from(self.rule.fault == Fault::HoldReply) + 1;
        eventually(PATIENCE, "the client cleans up", async || {
            match self.story.script {
                Script::Acquire => undone(&call[5], &call[6]) > 0,
                Script::Pass => undone(&call[6], "1") > 0,
                // How much it leaves may have changed by then.
                Script::Undo => !again || undone(&call[5], &call[6]) >= times,
                Script::Release | Script::Renew => !again || repeated() >= times,
            }
        })
        .await;
    }

    /// Lets the target, or its reply, go on its way, and waits until it has arrived.
    async fn let_go(&mut self, call: &[String]) {
        let before = self.world.witness.count(&self.name, |words| words == call);
        self.proxy.let_go();
        self.let_go = true;
        if self.rule.fault == Fault::HoldRequest {
            self.world.witness.executed(call, before).await;
            self.verdict.late = true;
        }
    }

    /// Waits until the server has executed whatever the client ever sent.
    async fn everything_arrived(&self) {
        let mut sent = self.proxy.requests();
        sent.retain(|words| words[0] == "EVALSHA");
        let sent: Vec<_> = sent.into_iter().flat_map(apart).collect();
        let (never, twice) = (self.harmed("CutBefore"), self.harmed("Duplicate"));
        let expected = sent.len() + twice.len() - never.len();
        eventually(PATIENCE, "all requests arrive", async || {
            let ours = |words: &[String]| sent.iter().any(|call| call == words);
            self.world.witness.count(&self.name, ours) == expected
        })
        .await;
    }

    async fn becomes(&self, expected: &BTreeMap<String, u32>) {
        let what = format!("redis has {expected:?} for `{}`", self.name);
        eventually(PATIENCE, &what, async || {
            self.world.holds(&self.name).await == *expected
        })
        .await;
    }

    fn said_by_guards(&self) -> BTreeMap<String, u32> {
        let mut said = BTreeMap::new();
        for guard in &self.guards {
            *said.entry(guard.owner()).or_default() += 1;
        }
        said
    }
}
