//! One story played over one broken network, and what must be true after every step of it.

use std::collections::BTreeMap;
use std::rc::Rc;

use distlock::{Error, Guard, Lock, Owner};
use tokio::time::timeout;

use super::PATIENCE;
use super::rules::{DeliveryTime, Rule};
use super::server::{TestServer, client_behind, everything_arrives};
use super::stories::{Moment, Repeated, Story};
use super::story_steps::run_story;
use super::tokens::Tokens;
use crate::support::batch::apart;
use crate::support::command::{Command, last_acquire};
use crate::support::{
    ChaosProxy, Family, Fault, Opposite, Player, Script, Words, args, eventually,
};

pub(crate) struct Case<F: Family> {
    pub(crate) server: Rc<TestServer<F>>,
    pub(crate) proxy: ChaosProxy,
    pub(crate) client: Player<F>,
    pub(crate) name: String,
    pub(crate) owner: Owner,
    /// The live guards, oldest first.
    pub(crate) guards: Vec<Guard<F::Kind>>,
    pub(crate) scripts: bool,
    pub(crate) tokens: Tokens,
    pub(crate) story: &'static Story,
    /// The moment to lose, and how it is lost; `None` to record the moments that can be lost.
    loss: Option<(Moment, &'static Rule)>,
    deliver_held: bool,
    verdict: Verdict,
}

/// The result of a case in which nothing was wrong.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Verdict {
    /// The number of calls that returned an acceptable error.
    pub(crate) errors: usize,
    /// Whether the request was executed long after its call had been given up and cleaned up.
    pub(crate) late: bool,
}

impl<F: Family> Case<F> {
    /// Plays a story in which something is lost.
    pub(crate) async fn run_story(
        server: Rc<TestServer<F>>,
        story: &'static Story,
        rule: &'static Rule,
        moment: Moment,
    ) -> Verdict {
        let scripts = matches!(moment, Moment::Request(_));
        let mut case = Self::begin(server, story, scripts).await;
        case.proxy
            .rule(moment.select(story, &case.name), rule.fault);
        case.loss = Some((moment, rule));
        // Two drops may share a request: then the next run of the story has another one.
        for _ in 0..5 {
            if case.target().is_none() {
                run_story(&mut case).await;
            }
        }
        case.end().await;
        case.verdict
    }

    /// Plays a story without scripts, and without a loss, to see which commands there are to lose.
    pub(crate) async fn commands(server: Rc<TestServer<F>>, story: &'static Story) -> Vec<Command> {
        let mut case = Self::begin(server, story, false).await;
        run_story(&mut case).await;
        let mut commands = Command::all(&case.proxy.requests(), &case.name);
        commands.retain(|command| story.in_parts.contains(&command.request));
        // A request that a story breaks itself is not to be lost in another way as well.
        let broken = case.proxy.injected();
        let is_broken = |word: &str| {
            broken
                .iter()
                .any(|fault| fault.contains(&format!(": {word} ")))
        };
        commands.retain(|command| !is_broken(&command.word));
        commands
    }

    async fn begin(server: Rc<TestServer<F>>, story: &'static Story, scripts: bool) -> Self {
        let proxy = server.proxy();
        let without = if scripts { "" } else { "scripts=off" };
        let client: Player<F> = client_behind(&proxy, without).await;
        Self {
            // Each case has a proxy of its own.
            name: format!("case-{}", proxy.addr().port()),
            owner: client.new_owner(),
            guards: Vec::new(),
            tokens: Tokens::default(),
            loss: None,
            deliver_held: false,
            verdict: Verdict::default(),
            server,
            proxy,
            client,
            scripts,
            story,
        }
    }

    pub(crate) fn lock(&self) -> Lock<F::Kind> {
        let lock = self.client.lock(self.name.as_str());
        if F::AGAIN {
            lock.with_owner(&self.owner)
        } else {
            lock
        }
    }

    /// Acquires, one way or another, and returns whether it was granted the lock. A refusal must have a good reason.
    pub(crate) async fn acquire<T: Into<Option<Guard<F::Kind>>>>(
        &mut self,
        acquiring: impl Future<Output = Result<T, Error>>,
    ) -> bool {
        let acquired = timeout(PATIENCE, acquiring).await;
        let got = match acquired.expect("an acquire comes to an end") {
            Ok(guard) => {
                let guard = guard.into().expect("nobody else holds it");
                self.tokens.seen::<F>(&guard);
                self.guards.push(guard);
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

    /// Accepts an error that says that the store has not answered; "lost" would be false.
    pub(crate) fn tolerate(&mut self, error: &Error) -> bool {
        let silent = matches!(error, Error::Timeout { .. } | Error::Unavailable { .. });
        assert!(silent, "nobody but us had the lock, but: {error}");
        self.verdict.errors += 1;
        false
    }

    /// Checks that Redis has the holds that the guards report: at once if the last call was `answered` and nothing was lost before it, else
    /// as soon as the client has cleaned up.
    pub(crate) async fn check(&mut self, answered: bool) {
        let said = self.said_by_guards();
        let expected = self.server.counted(said.clone());
        let rule = self.loss.as_ref().map(|(_, rule)| *rule);
        let harmless = rule.is_none_or(|rule| rule.harmless);
        if answered && (harmless || self.target().is_none()) {
            assert_eq!(self.server.holds(&self.name).await, expected);
        } else {
            self.becomes(&expected).await;
        }
        self.are_held();
        for guard in &self.guards {
            assert_eq!(guard.hold_count(), said[&guard.owner()]);
        }
        if F::FENCED {
            let last = self.server.last_token(&self.name);
            self.tokens.given::<F>(last, self.guards.last());
        }
        if let Some(rule) = rule
            && rule.deliver_held == Some(DeliveryTime::AfterCleanup)
            && let Some((fault, call)) = self.target()
            && !self.deliver_held
        {
            if self.scripts {
                self.cleaned_up(&call, rule).await;
            } else {
                self.taken_back(&fault).await;
                // A command that was executed a moment ago may still have to be undone.
                self.becomes(&expected).await;
            }
            self.deliver_held(rule).await;
            assert_eq!(self.server.holds(&self.name).await, expected);
        }
    }

    /// Ends the story, in which everything was released.
    async fn end(&mut self) {
        assert!(
            self.guards.is_empty(),
            "the story releases what it acquires"
        );
        eventually(PATIENCE, "the network does wrong", async || {
            self.target().is_some()
        })
        .await;
        let (_, rule) = self.loss.clone().expect("it is told to lose something");
        self.check(false).await;
        // Closing waits until everything is cleaned up.
        let closed = self.client.close().await;
        closed.expect("the network is whole again");
        let free = BTreeMap::new();
        match rule.deliver_held {
            Some(DeliveryTime::WhenFree) => {
                self.deliver_held(rule).await;
                assert_eq!(self.server.holds(&self.name).await, free, "a ghost");
            }
            Some(DeliveryTime::WhenTaken) => {
                let guard = self.taken_by_another().await;
                self.deliver_held(rule).await;
                let taken = self.server.counted(BTreeMap::from([(guard.owner(), 1)]));
                assert_eq!(self.server.holds(&self.name).await, taken);
                assert!(guard.is_held());
                guard.release().await.expect("it is still the other's");
            }
            Some(DeliveryTime::AfterCleanup) => assert!(self.deliver_held),
            None => {}
        }
        everything_arrives(&self.proxy).await;
        assert_eq!(self.server.holds(&self.name).await, free, "a ghost");
        assert_eq!(self.server.queue(&self.name), [""; 0], "a ghost");
        let guard = self.taken_by_another().await;
        guard.release().await.expect("it is the other's");
        self.server.nothing_is_left(&self.name);
    }

    async fn taken_by_another(&mut self) -> Guard<Opposite<F>> {
        let lock = self.server.other.against(self.name.as_str());
        let guard = lock.acquire_timeout(PATIENCE).await;
        let guard = guard.expect("its network is fine").expect("it is free");
        self.tokens.seen::<F::Against>(&guard);
        guard
    }

    /// Returns the fault that the network has injected, and the request that it hit; `None` before.
    pub(crate) fn target(&self) -> Option<(String, Words)> {
        let (moment, _) = self.loss.as_ref()?;
        let injected = self.proxy.injected().into_iter();
        let mut calls = injected.flat_map(|fault| {
            let (_, request) = fault.split_once(": ").expect("a fault and a request");
            let words = request.split(' ').map(ToOwned::to_owned).collect();
            let calls = apart(words).into_iter();
            calls
                .map(move |call| (fault.clone(), call))
                .collect::<Vec<_>>()
        });
        calls.find(|(_, call)| moment.is_one(self.story, &self.name, call))
    }

    /// Waits until the client has undone the target, whose call was given up, or has retried it.
    async fn cleaned_up(&self, call: &[String], rule: &Rule) {
        let witness = &self.server.witness;
        let repeats = |words: &[String]| {
            words == call || releases_no_less(words, call) || renews_the_same(words, call)
        };
        let repeated = || witness.count(&self.name, repeats);
        let undone = |owner: &str, attempt: &str| {
            let undo =
                |words: &[String]| Script::Undo.runs(words) && args(words)[..2] == [owner, attempt];
            witness.count(&self.name, undo)
        };
        let again = match self.story.repeated {
            Repeated::Always => true,
            Repeated::Never => false,
            Repeated::WhileHeld => !self.guards.is_empty(),
        };
        let args = args(call);
        // In the store's queue an owner sends its request again, and may have been granted the lock meanwhile: the request is undone once
        // the owner has left.
        let is_its = |guard: &Guard<F::Kind>| guard.owner() == args[0];
        let asked_again = F::IN_ORDER && args[1] == "1" && self.guards.iter().any(is_its);
        // If only the reply was held back, the first execution counts as well.
        let times = usize::from(rule.fault == Fault::HoldReply) + 1;
        eventually(PATIENCE, "the client cleans up", async || {
            match self.story.script {
                Script::Acquire => asked_again || undone(&args[0], &args[1]) > 0,
                Script::Pass => undone(&args[1], "1") > 0,
                Script::Undo => !again || undone(&args[0], &args[1]) >= times,
                Script::Release | Script::Renew => !again || repeated() >= times,
            }
        })
        .await;
    }

    /// The same without scripts: waits until a partly lost acquire is undone, if the target was one. All other cleanup shows in the holders
    /// of the lock.
    async fn taken_back(&self, fault: &str) {
        let sent = self.proxy.beside(fault);
        let Some(acquire) = last_acquire(&sent) else {
            return;
        };
        let (owner, attempt) = acquire.split_once('#').expect("an owner and an attempt");
        let takes = |words: &[String]| words[0].ends_with("SET") && words[2] == owner;
        let marks = format!("distlock_undone:{{{}}}", self.name);
        eventually(PATIENCE, "the client cleans up", async || {
            // An acquire from zero that was executed needs no tombstone: its hold is gone.
            let carried_out = self.server.witness.count(&self.name, takes) > 0;
            let mark: Option<u64> = self.server.redis.query(&["ZRANK", &marks, acquire]);
            attempt == "1" && carried_out || mark.is_some()
        })
        .await;
    }

    /// Delivers the target, or its reply, and waits until it has arrived.
    async fn deliver_held(&mut self, rule: &Rule) {
        let late = rule.fault == Fault::HoldRequest;
        assert!(!late || self.proxy.unanswered() > 0, "it is held back");
        self.proxy.deliver_held();
        self.deliver_held = true;
        if late {
            everything_arrives(&self.proxy).await;
            self.verdict.late = true;
        }
    }

    async fn becomes(&self, expected: &BTreeMap<String, u32>) {
        let what = format!("redis has {expected:?} for `{}`", self.name);
        eventually(PATIENCE, &what, async || {
            self.server.holds(&self.name).await == *expected
        })
        .await;
    }

    /// Checks that no guard has lost its hold.
    pub(crate) fn are_held(&self) {
        for guard in &self.guards {
            assert!(guard.is_held(), "{guard:?}");
        }
    }

    fn said_by_guards(&self) -> BTreeMap<String, u32> {
        let mut said = BTreeMap::new();
        for guard in &self.guards {
            *said.entry(guard.owner()).or_default() += 1;
        }
        said
    }
}

/// Returns whether both calls renew one owner's hold. Arguments that are not text are not recorded exactly.
fn renews_the_same(one: &[String], other: &[String]) -> bool {
    let both = [one, other];
    both.iter().all(|call| Script::Renew.runs(call)) && args(one)[0] == args(other)[0]
}

/// Returns whether one call releases what the other does, or more of it: the count that is left may have changed by then.
fn releases_no_less(one: &[String], other: &[String]) -> bool {
    let both = [one, other];
    if !both.iter().all(|call| Script::Release.runs(call)) {
        return false;
    }
    let [one, other] = both.map(args);
    let [Ok(left), Ok(no_less)] = [one, other].map(|args| args[1].parse::<u32>()) else {
        return false;
    };
    one[0] == other[0] && left <= no_less
}
