//! A batch of every sort of call over a network with faults, with callers that keep waiting, time out or are dropped: afterwards each
//! caller has its own reply and the store has the holds that the guards report.

use std::collections::BTreeMap;
use std::time::Duration;

use distlock::{Error, Guard, Lease, Lock};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::fixture::{Call, becomes, begun, is_silence};
use super::{LEASE, PATIENCE};
use crate::lost_replies::COMMAND_TIMEOUT;
use crate::lost_replies::rules::{DeliveryTime, RULES, Rule};
use crate::lost_replies::tokens::Tokens;
use crate::support::batch::{apart, is_batch};
use crate::support::{ChaosProxy, Family, Fault, Fenced, Match, Plain, Player, RedisServer};
use crate::support::{Script, Simple, builder, simulated};

mod any_fault_of_a_mixed_batch_leaves_no_orphaned_hold_and_all_callers_get_a_turn {
    use super::*;

    #[test]
    fn of_plain_locks() {
        simulated(async || sweep::<Plain>(&[TAKES, GIVES, EVERYTHING]).await);
    }

    /// The batch script of simple locks differs.
    #[test]
    fn of_simple_locks() {
        simulated(async || sweep::<Simple>(&[EVERYTHING]).await);
    }

    #[test]
    fn of_fenced_locks() {
        simulated(async || sweep::<Fenced>(&[EVERYTHING]).await);
    }
}

async fn sweep<F: Family>(mixes: &[&'static [Kind]]) {
    let world = World::<F>::start().await;
    let mut cases = 0;
    for kinds in mixes {
        // A shared connection does not lose one reply and deliver the next ones.
        for rule in RULES
            .iter()
            .filter(|rule| rule.fault != Fault::SwallowReply)
        {
            for manner in MANNERS {
                cases += 1;
                eprintln!("case {cases}: {kinds:?}, {}, {manner:?}", rule.name);
                Case::tell(&world, cases, kinds, rule, manner).await;
            }
        }
    }
    assert!(cases >= 80 * mixes.len(), "only {cases} cases");
}

/// The behaviour of the callers while their batch is under way.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum CallerBehaviour {
    /// All callers are dropped once the network has done wrong.
    GoneAfter,
    /// All callers are dropped before a request has reached the server.
    GoneBefore,
    /// One caller is dropped before a request has reached the server, one once the network has done wrong, one keeps waiting; and so forth.
    OneByOne,
    /// The callers' time-outs end before a request has reached the server.
    TimeOut,
    /// The callers wait, and retry after an error.
    WaitOn,
}

const MANNERS: [CallerBehaviour; 5] = [
    CallerBehaviour::GoneAfter,
    CallerBehaviour::GoneBefore,
    CallerBehaviour::OneByOne,
    CallerBehaviour::TimeOut,
    CallerBehaviour::WaitOn,
];

/// The request for one lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    /// Acquires once more a lock that is held.
    Again,
    /// Acquires a lock that another client holds.
    Busy,
    /// Acquires a free lock.
    Free,
    /// Releases one of two holds.
    InPart,
    /// Releases a lock for which others of the same client wait: the store grants it to the next.
    ReleaseToWaiter,
    /// Releases a lock that is held.
    Release,
}

use Kind::{Again, Busy, Free, InPart, Release, ReleaseToWaiter};

impl Kind {
    /// Returns the script that executes the call.
    const fn script(self) -> Script {
        match self {
            Again | Busy | Free => Script::Acquire,
            InPart | Release => Script::Release,
            ReleaseToWaiter => Script::Pass,
        }
    }

    const fn takes(self) -> bool {
        matches!(self, Again | Busy | Free)
    }
}

/// A lock that has been held for long is released instead of handed off: the calls of kind `ReleaseToWaiter` come last.
const TAKES: &[Kind] = &[Free, Busy, Free, Again, Busy, Free];
const GIVES: &[Kind] = &[Release, Release, InPart, ReleaseToWaiter, ReleaseToWaiter];
const EVERYTHING: &[Kind] = &[
    Free,
    Busy,
    Release,
    Again,
    InPart,
    Release,
    Busy,
    Free,
    ReleaseToWaiter,
    ReleaseToWaiter,
];

struct World<F> {
    server: RedisServer,
    /// Another client, whose network is fine.
    other: Player<F>,
}

impl<F: Family> World<F> {
    async fn start() -> Self {
        let server = RedisServer::start();
        Script::load_all(&server);
        let other = client::<F>(&server.url(), PATIENCE).await;
        Self { server, other }
    }

    /// Returns the holders of a lock in Redis, and how often each holds it.
    fn holds(&self, name: &str) -> BTreeMap<String, u32> {
        if F::COUNTS {
            return self.server.query(&["HGETALL", name]);
        }
        let owner: Option<String> = self.server.query(&["GET", name]);
        owner.map(|owner| (owner, 1)).into_iter().collect()
    }

    /// Checks that nothing is stored of a lock except tombstones, which expire, and the last token.
    fn nothing_is_left(&self, name: &str) {
        let [marks, token] =
            ["distlock_undone", "redisson_lock_token"].map(|key| format!("{key}:{{{name}}}"));
        let tag = format!("{{{name}}}");
        for key in self.server.keys() {
            let about = key == name || key.contains(&tag);
            assert!(!about || [&marks, &token].contains(&&key), "{key} is left");
        }
        let ttl = self.server.pttl(&marks);
        assert!(
            ttl == -2 || (0..=300_000).contains(&ttl),
            "{marks}: {ttl} ms"
        );
    }
}

async fn client<F: Family>(url: &str, time_out: Duration) -> Player<F> {
    let client = builder(url)
        .default_lease(Lease::KeepAlive(LEASE))
        .command_timeout(time_out)
        // The next waiter in the queue is granted the lock through the store.
        .handoff_limit(0);
    Player::new(client.connect().await.expect("the network is whole"))
}

/// One lock of a batch, with the guards and callers that belong to it.
struct Item<F: Family> {
    kind: Kind,
    name: String,
    lock: Lock<F::Kind>,
    /// Our live guards.
    guards: Vec<Guard<F::Kind>>,
    /// The other client's guard.
    theirs: Option<Guard<F::Kind>>,
    /// A waiter of this client that the lock is to be handed to.
    in_line: Option<Call<Result<Guard<F::Kind>, Error>>>,
    tokens: Tokens,
}

/// The result of a call: a guard for an acquire, none for a release or a time-out.
type Ended<K> = Result<Option<Guard<K>>, Error>;

impl<F: Family> Item<F> {
    /// Prepares the lock for the call, over a network that is still whole.
    async fn new(world: &World<F>, client: &Player<F>, kind: Kind, name: String) -> Self {
        let lock = match kind {
            Again | InPart => client.one_owners(&name),
            Busy | Free | ReleaseToWaiter | Release => client.lock(name.as_str()),
        };
        let mut guards = Vec::new();
        let held = match kind {
            Busy | Free => 0,
            Again | ReleaseToWaiter | Release => 1,
            InPart => 2,
        };
        for _ in 0..held {
            guards.push(acquired(&lock).await);
        }
        let mut theirs = None;
        if kind == Busy {
            theirs = Some(acquired(&world.other.lock(name.as_str())).await);
        }
        let waits = || begun(Box::pin(lock.acquire()));
        Self {
            in_line: (kind == ReleaseToWaiter).then(waits),
            tokens: Tokens::default(),
            kind,
            guards,
            theirs,
            name,
            lock,
        }
    }

    /// Returns the call itself, not yet polled.
    fn call(&mut self, patience: Duration) -> Call<Ended<F::Kind>> {
        if self.kind.takes() {
            return Box::pin(self.lock.acquire_timeout(patience));
        }
        let releasing = self.guards.pop().expect("it is held").release();
        Box::pin(async move {
            let released = timeout(patience, releasing).await;
            released.unwrap_or(Ok(())).map(|()| None)
        })
    }

    /// Returns the holders of the lock that the guards report.
    fn said(&self) -> BTreeMap<String, u32> {
        let mut said = BTreeMap::new();
        for guard in self.guards.iter().chain(&self.theirs) {
            let count = said.entry(guard.owner()).or_default();
            *count = if F::COUNTS { *count + 1 } else { 1 };
        }
        said
    }
}

/// One batch over one broken network.
struct Case<'a, F: Family> {
    world: &'a World<F>,
    proxy: ChaosProxy,
    client: Player<F>,
    rule: &'a Rule,
    manner: CallerBehaviour,
    items: Vec<Item<F>>,
}

impl<'a, F: Family> Case<'a, F> {
    async fn tell(
        world: &'a World<F>,
        number: usize,
        kinds: &'static [Kind],
        rule: &'a Rule,
        manner: CallerBehaviour,
    ) {
        let proxy = ChaosProxy::start(world.server.addr());
        let client = client(&proxy.url(), COMMAND_TIMEOUT).await;
        let mut items = Vec::new();
        for (index, kind) in kinds.iter().enumerate() {
            let name = format!("{number}-{index}");
            items.push(Item::new(world, &client, *kind, name).await);
        }
        let whole = Match::words(move |words| carries_all(words, kinds));
        proxy.rule(whole.nth(1), rule.fault);
        let mut case = Self {
            world,
            proxy,
            client,
            rule,
            manner,
            items,
        };
        case.travel(kinds).await;
        case.end().await;
    }

    /// Starts all calls while another is under way, and waits for their results.
    async fn travel(&mut self, kinds: &[Kind]) {
        let manner = self.manner;
        // No request reaches the server until the partition ends, but the proxy sees them.
        self.proxy.partition(true);
        let first = Box::pin(self.client.lock("first").try_acquire());
        let first = tokio::spawn(begun(first));
        let patience = match manner {
            CallerBehaviour::TimeOut => COMMAND_TIMEOUT / 2,
            _ => PATIENCE,
        };
        let calls = self.items.iter_mut().map(|item| item.call(patience));
        let calls: Vec<_> = calls.map(|call| tokio::spawn(begun(call))).collect();
        becomes("they travel together", || {
            let sent = self.proxy.requests();
            sent.iter().any(|words| carries_all(words, kinds))
        })
        .await;
        match manner {
            CallerBehaviour::GoneBefore => calls.iter().for_each(JoinHandle::abort),
            CallerBehaviour::OneByOne => calls.iter().step_by(3).for_each(JoinHandle::abort),
            CallerBehaviour::TimeOut => {
                becomes("their time is over", || {
                    calls.iter().all(JoinHandle::is_finished)
                })
                .await;
            }
            CallerBehaviour::GoneAfter | CallerBehaviour::WaitOn => {}
        }
        self.proxy.partition(false);
        becomes("the network does wrong", || {
            !self.proxy.injected().is_empty()
        })
        .await;
        match manner {
            CallerBehaviour::GoneAfter => calls.iter().for_each(JoinHandle::abort),
            CallerBehaviour::OneByOne => {
                calls.iter().skip(1).step_by(3).for_each(JoinHandle::abort)
            }
            CallerBehaviour::GoneBefore | CallerBehaviour::TimeOut | CallerBehaviour::WaitOn => {}
        }
        drop(first.await);
        self.see_through(calls).await;
    }

    /// Waits for every caller, and for the waiter behind each. No caller acquires a lock that another client holds.
    async fn see_through(&mut self, calls: Vec<JoinHandle<Ended<F::Kind>>>) {
        for item in &mut self.items {
            if let Some(theirs) = item.theirs.take() {
                let held = BTreeMap::from([(theirs.owner(), 1)]);
                assert_eq!(self.world.holds(&item.name), held, "two holders");
                assert!(theirs.is_held());
                theirs.release().await.expect("it is theirs");
            }
        }
        // An error is acceptable if it says that the store has not answered, and that is true.
        let harmless = self.rule.harmless && self.manner == CallerBehaviour::WaitOn;
        let tolerate = |error: &Error, kind: Kind| {
            assert!(
                is_silence(error),
                "no other client had it: {kind:?}: {error}"
            );
            assert!(!harmless, "that did harm: {kind:?}: {error}");
        };
        for (index, call) in calls.into_iter().enumerate() {
            let ended = timeout(2 * PATIENCE, call).await;
            let ended = ended.expect("a call comes to an end");
            let item = &mut self.items[index];
            match ended {
                Ok(Ok(Some(guard))) => {
                    assert_eq!(guard.name(), item.name);
                    item.guards.push(guard);
                }
                Ok(Ok(None)) => {
                    let is_patient = self.manner != CallerBehaviour::TimeOut;
                    assert!(!item.kind.takes() || !is_patient, "{:?}", item.kind);
                }
                Ok(Err(error)) => {
                    tolerate(&error, item.kind);
                    if item.kind.takes() && self.manner != CallerBehaviour::TimeOut {
                        item.guards.push(acquired(&item.lock).await);
                    }
                }
                Err(gone) => assert!(gone.is_cancelled(), "{gone}"),
            }
            if let Some(waiting) = item.in_line.take() {
                let got = timeout(PATIENCE, waiting).await;
                match got.expect("every waiter gets its turn") {
                    Ok(guard) => item.guards.push(guard),
                    Err(error) => {
                        tolerate(&error, item.kind);
                        item.guards.push(acquired(&item.lock).await);
                    }
                }
            }
        }
        self.check().await;
    }

    /// Checks that the store eventually has the holds that the guards report.
    async fn check(&mut self) {
        for item in &mut self.items {
            let said = item.said();
            becomes(&format!("{said:?} hold `{}`", item.name), || {
                self.world.holds(&item.name) == said
            })
            .await;
            for guard in &item.guards {
                assert!(guard.is_held(), "{guard:?}");
                item.tokens.seen::<F>(guard);
                let count = item.guards.iter().filter(|it| it.owner() == guard.owner());
                assert_eq!(guard.hold_count() as usize, count.count(), "{guard:?}");
            }
            if F::FENCED {
                let counter = format!("redisson_lock_token:{{{}}}", item.name);
                let last = self.world.server.query(&["GET", &counter]);
                item.tokens.given::<F>(last, item.guards.last());
            }
        }
    }

    async fn end(&mut self) {
        if self.rule.deliver_held == Some(DeliveryTime::AfterCleanup) {
            // This is far longer than any cleanup.
            tokio::time::sleep(LEASE / 6).await;
            self.deliver_held().await;
        }
        for item in &mut self.items {
            for guard in item.guards.drain(..) {
                let released = timeout(PATIENCE, guard.release()).await;
                if let Err(error) = released.expect("a release comes to an end") {
                    assert!(is_silence(&error), "{error}");
                }
            }
        }
        self.check().await;
        // Closing waits until everything is cleaned up.
        let closed = self.client.close().await;
        closed.expect("the network is whole again");
        if self.rule.deliver_held == Some(DeliveryTime::WhenTaken) {
            for item in &mut self.items {
                item.theirs = Some(acquired(&self.world.other.lock(item.name.as_str())).await);
            }
        }
        self.deliver_held().await;
        for item in &mut self.items {
            let theirs = match item.theirs.take() {
                Some(theirs) => theirs,
                None => acquired(&self.world.other.lock(item.name.as_str())).await,
            };
            theirs.release().await.expect("it is theirs");
            self.world.nothing_is_left(&item.name);
        }
    }

    /// Delivers the batch, or its reply. Once every request that the client ever sent is executed, nothing has changed.
    async fn deliver_held(&self) {
        let is_late = self.rule.fault == Fault::HoldRequest && self.rule.deliver_held.is_some();
        self.proxy.deliver_held();
        becomes("all arrives", || self.proxy.unanswered() == 0).await;
        for item in &self.items {
            let held = self.world.holds(&item.name);
            assert_eq!(held, item.said(), "a ghost in `{}`, {is_late}", item.name);
        }
    }
}

/// Returns whether a request is a batch with a call for each of these, and no others of their sorts.
fn carries_all(words: &[impl AsRef<[u8]>], kinds: &[Kind]) -> bool {
    if !is_batch(words) {
        return false;
    }
    let text = |word: &_| String::from_utf8_lossy(AsRef::<[u8]>::as_ref(word)).into_owned();
    let calls = apart(words.iter().map(text).collect());
    [Script::Acquire, Script::Pass, Script::Release]
        .into_iter()
        .all(|script| {
            let carried = calls.iter().filter(|call| script.runs(call)).count();
            carried == kinds.iter().filter(|kind| kind.script() == script).count()
        })
}

/// Acquires the lock, which is free or becomes free soon; a time-out may come first.
async fn acquired<K>(lock: &Lock<K>) -> Guard<K> {
    for _ in 0..10 {
        match lock.acquire_timeout(PATIENCE).await {
            Ok(guard) => return guard.expect("it becomes free"),
            Err(error) => assert!(is_silence(&error), "no other client has it: {error}"),
        }
    }
    panic!("the store does not answer");
}
