//! The workloads: the locks that clients contend for, and how a task acquires, holds and releases one.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use distlock::{
    Backoff, Client, Error, FencingToken, Guard, Held, Lease, Lock, Lost, MultiGuard, MultiHeld,
    MultiLock, Owner, QuorumGuard, QuorumHeld, QuorumLock, Wait,
};
use distlock_sim::Random;
use tokio::time::{Instant, sleep, timeout};

use crate::judge::{Claim, Judge, Ledger};
use crate::setup::Setup;
use crate::store::Store;

/// The name of the lock. The names of several locks end in a number.
pub(crate) const NAME: &str = "stock";
pub(crate) const NAMES: [&str; 3] = ["stock-0", "stock-1", "stock-2"];

pub(crate) type Pending<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The limit of a wait.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    TryOnce,
    Timeout(Duration),
    Forever,
}

/// A lock of any kind, as one client sees it.
pub(crate) trait Subject: Send + Sync {
    fn acquire(&self, limit: Limit) -> Pending<Result<Option<Box<dyn Grant>>, Error>>;
}

/// A guard of any kind.
pub(crate) trait Grant: Send + Sync {
    fn view(&self) -> Arc<dyn View>;
    fn release(self: Box<Self>) -> Pending<Result<(), Error>>;
}

/// The state that a guard reports, also after it has gone.
pub(crate) trait View: Send + Sync {
    fn is_held(&self) -> bool;
    fn remaining(&self) -> Duration;
    /// Returns the guard's locks, each with its owner.
    fn locks(&self) -> Vec<(String, String)>;
    fn lost(&self) -> Pending<Option<Lost>>;
    fn hold_count(&self) -> u32 {
        1
    }
    fn token(&self) -> Option<FencingToken> {
        None
    }
    /// Returns the guard's permits, as the store knows them.
    fn permit_ids(&self) -> Vec<Vec<u8>> {
        Vec::new()
    }
}

/// The kind of primitive that the clients contend for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Plain,
    Fair,
    Simple,
    Fenced,
    Read,
    Write,
    ReadWrite,
    Permits,
    Counting,
    Latch,
    Multi,
    Quorum,
}

impl Kind {
    /// Returns whether the key may stay in the store when no client holds anything.
    pub(crate) fn may_stay(self, key: &str) -> bool {
        match self {
            Self::Fenced => key.contains("token"),
            Self::Permits | Self::Counting => key == NAME,
            _ => false,
        }
    }

    /// Returns the keys whose presence means that a lock is held.
    pub(crate) const fn names(self) -> &'static [&'static str] {
        match self {
            Self::Multi => &NAMES,
            _ => &[NAME],
        }
    }

    pub(crate) const fn has_guards(self) -> bool {
        !matches!(self, Self::Counting | Self::Latch)
    }
}

/// The clients of one process: one, or one for each server of a quorum.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) name: String,
    pub(crate) clients: Vec<Client>,
}

/// Returns a lock of this process, and how a guard of it may share the lock with others.
fn subject(
    setup: &Setup,
    process: &Process,
    owner: Option<&Owner>,
    lease: Lease,
    random: &mut Random,
) -> (Box<dyn Subject>, Claim) {
    let client = &process.clients[0];
    let wait = match setup.polls {
        true => Wait::Poll(Backoff::new(
            Duration::from_millis(20),
            Duration::from_millis(500),
        )),
        false => Wait::Notify,
    };
    fn with<K: Send + Sync + 'static>(
        lock: Lock<K>,
        owner: Option<&Owner>,
        lease: Lease,
        wait: Wait,
    ) -> Box<dyn Subject>
    where
        Held<K>: View,
    {
        let lock = lock.with_lease(lease).with_wait(wait);
        Box::new(match owner {
            Some(owner) => lock.with_owner(owner),
            None => lock,
        })
    }
    let alone = |subject| (subject, Claim::Alone);
    match setup.kind {
        Kind::Plain => alone(with(client.lock(NAME), owner, lease, wait)),
        Kind::Fair => alone(with(client.fair_lock(NAME), owner, lease, wait)),
        Kind::Simple => alone(with(client.simple_lock(NAME), owner, lease, wait)),
        Kind::Fenced => alone(with(client.fenced_lock(NAME), owner, lease, wait)),
        Kind::ReadWrite if random.percent(60) => {
            let lock = client.rw_lock(NAME).read();
            (with(lock, None, lease, wait), Claim::Shared)
        }
        Kind::Read => {
            let lock = client.rw_lock(NAME).read();
            (with(lock, owner, lease, wait), Claim::Shared)
        }
        Kind::Write => alone(with(client.rw_lock(NAME).write(), owner, lease, wait)),
        Kind::ReadWrite => alone(with(client.rw_lock(NAME).write(), None, lease, wait)),
        Kind::Permits => {
            let total = setup.total;
            let count = 1 + u32::try_from(random.below(total.into())).expect("it is small");
            let lock = client.semaphore(NAME).permits(count);
            let claim = Claim::Permits { count, total };
            (with(lock, None, lease, wait), claim)
        }
        Kind::Multi => {
            let mut members: Vec<distlock::Member> = Vec::new();
            let all = 1 + random.below(7);
            if all & 1 != 0 {
                members.push(client.lock(NAMES[0]).into());
            }
            if all & 2 != 0 {
                members.push(client.fair_lock(NAMES[1]).into());
            }
            if all & 4 != 0 {
                members.push(client.rw_lock(NAMES[2]).write().into());
            }
            alone(Box::new(MultiLock::new(members).with_lease(lease)))
        }
        Kind::Quorum => {
            let members = process.clients.iter();
            let members = members.map(|client| client.lock(NAME).into());
            alone(Box::new(QuorumLock::new(members).with_lease(lease)))
        }
        Kind::Counting | Kind::Latch => unreachable!("they have no guards"),
    }
}

macro_rules! subjects {
    ($($kind:ty, $lock:ty, $guard:ty, [$($where:tt)*];)*) => {$(
        impl<$($where)*> Subject for $lock
        where
            $kind: View,
        {
            fn acquire(&self, limit: Limit) -> Pending<Result<Option<Box<dyn Grant>>, Error>> {
                let lock = self.clone();
                Box::pin(async move {
                    let guard = match limit {
                        Limit::TryOnce => lock.try_acquire().await?,
                        Limit::Timeout(longest) => lock.acquire_timeout(longest).await?,
                        Limit::Forever => Some(lock.acquire().await?),
                    };
                    Ok(guard.map(|guard| Box::new(guard) as Box<dyn Grant>))
                })
            }
        }

        impl<$($where)*> Grant for $guard
        where
            $kind: View,
        {
            fn view(&self) -> Arc<dyn View> {
                Arc::new(self.held())
            }

            fn release(self: Box<Self>) -> Pending<Result<(), Error>> {
                Box::pin(Self::release(*self))
            }
        }
    )*};
}

subjects! {
    Held<K>, Lock<K>, Guard<K>, [K: Send + Sync + 'static];
    MultiHeld, MultiLock, MultiGuard, [];
    QuorumHeld, QuorumLock, QuorumGuard, [];
}

macro_rules! views {
    ($($held:ty, |$this:ident| $locks:expr $(, $more:item)*;)*) => {$(
        impl View for $held {
            fn is_held(&self) -> bool {
                Self::is_held(self)
            }

            fn remaining(&self) -> Duration {
                Self::remaining(self)
            }

            fn locks(&self) -> Vec<(String, String)> {
                let $this = self;
                $locks
            }

            fn lost(&self) -> Pending<Option<Lost>> {
                Box::pin(Self::lost(self))
            }

            $($more)*
        }
    )*};
}

macro_rules! single {
    ($($kind:ty $(, $more:item)*;)*) => {
        views! { $(
            Held<$kind>, |this| vec![(this.name().to_owned(), this.owner())],
            fn hold_count(&self) -> u32 { Self::hold_count(self) }
            $(, $more)*;
        )* }
    };
}

single! {
    distlock::Plain;
    distlock::Fair;
    distlock::Simple;
    distlock::Fenced, fn token(&self) -> Option<FencingToken> { Some(Self::token(self)) };
    distlock::Read;
    distlock::Write;
    distlock::Permit, fn permit_ids(&self) -> Vec<Vec<u8>> {
        Self::permit_ids(self).iter().map(|id| bytes(&id.to_string())).collect()
    };
}

views! {
    MultiHeld, |this| {
        let owner = |name: &str| this.owner(name).unwrap_or_default();
        this.names().map(|name| (name.to_owned(), owner(name))).collect()
    };
    // A quorum hold has another owner on each server, and reports none of them.
    QuorumHeld, |this| vec![(this.name().to_owned(), String::new())];
}

/// Decodes hexadecimal text.
fn bytes(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    let pairs = digits.map(|pair| std::str::from_utf8(pair).expect("they are digits"));
    pairs
        .map(|pair| u8::from_str_radix(pair, 16).expect("they are digits"))
        .collect()
}

/// The handles that a task of a process works with.
#[derive(Clone)]
pub(crate) struct Task {
    pub(crate) setup: Setup,
    pub(crate) process: Process,
    pub(crate) ledger: Ledger,
    pub(crate) store: Store,
}

impl Task {
    /// Plays one turn: acquires the lock in a random way, holds it for a random time, and releases it or drops the guard.
    pub(crate) async fn turn(&self, random: &mut Random) {
        let Self {
            setup,
            process,
            ledger,
            ..
        } = self;
        let lease = match random.percent(setup.fixed_percent) {
            true => Lease::Fixed(setup.lease),
            false => Lease::KeepAlive(setup.lease),
        };
        let owner = random.percent(setup.reentrant_percent);
        let owner = owner.then(|| process.clients[0].new_owner());
        let (subject, claim) = subject(setup, process, owner.as_ref(), lease, random);
        let begun = Instant::now();
        let draw = random.below(100);
        // The limit is not zero, since that is a try.
        let longest = Duration::from_millis(1) + random.up_to(Duration::from_secs(8));
        let (limit, longest) = if draw < 10 {
            (Limit::TryOnce, setup.longest_try())
        } else if draw < 10 + setup.gives_up_percent {
            // The caller gives up and drops the future, at whichever await it is.
            if let Ok(got) = timeout(longest / 8, subject.acquire(Limit::Forever)).await {
                self.hold(got, &*subject, claim, random).await;
            }
            return;
        } else if draw < 70 {
            (Limit::Timeout(longest), longest + setup.longest_overtime())
        } else {
            (Limit::Forever, Duration::MAX)
        };
        let got = subject.acquire(limit).await;
        let took = begun.elapsed();
        if took > longest && !setup.has_stops {
            let what = format!("{}: {limit:?} took {took:?}", process.name);
            ledger.violation(Judge::Resolution, what);
        }
        if let (Limit::Timeout(longest), Ok(None)) = (limit, &got) {
            ledger.busy(&process.name, begun, longest);
        }
        let has_failed = got.is_err();
        let got = match (limit, got) {
            (Limit::Timeout(longest), Err(error)) => {
                ledger.wait_error(&error, begun, longest);
                Ok(None)
            }
            (_, got) => got,
        };
        self.hold(got, &*subject, claim, random).await;
        if has_failed {
            sleep(random.up_to(Duration::from_millis(500))).await;
        }
    }

    /// Plays one turn without faults and without a limit on the wait.
    pub(crate) async fn calm_turn(&self, random: &mut Random) {
        let lease = Lease::KeepAlive(self.setup.lease);
        let (subject, claim) = subject(&self.setup, &self.process, None, lease, random);
        let waiting = self.ledger.wait(&self.process.name);
        let got = subject.acquire(Limit::Forever).await;
        if self.setup.kind == Kind::Fair && got.is_ok() {
            waiting.granted_fairly();
        } else {
            drop(waiting);
        }
        let guard = match got {
            Ok(Some(guard)) => guard,
            Ok(None) => return,
            Err(error) => return self.ledger.error(&error),
        };
        let entry = self.enter(&*guard, claim);
        sleep(random.up_to(Duration::from_millis(100))).await;
        if guard.view().is_held() {
            self.check_count(&*guard, 1);
        } else {
            self.ledger.loss();
        }
        let releasing = self.ledger.release(entry);
        releasing.ended(&guard.release().await);
    }

    /// Returns whether the client acquires the lock now, however long that takes; without guards, whether it gets a reply.
    pub(crate) async fn is_served(&self, random: &mut Random) -> bool {
        if !self.setup.kind.has_guards() {
            let semaphore = self.process.clients[0].counting_semaphore(NAME);
            let asked = semaphore.available();
            return asked
                .await
                .map_err(|error| self.ledger.error(&error))
                .is_ok();
        }
        let lease = Lease::KeepAlive(self.setup.lease);
        let (subject, _) = subject(&self.setup, &self.process, None, lease, random);
        match subject.acquire(Limit::Forever).await {
            Ok(_) => true,
            Err(error) => {
                self.ledger.error(&error);
                false
            }
        }
    }

    /// Checks that the store counts as many holds for an owner as its guards report.
    fn check_count(&self, guard: &dyn Grant, count: u32) {
        let view = guard.view();
        for (name, owner) in view.locks() {
            let stored = self.store.count(self.setup.kind, &name, &owner);
            let stored = stored.unwrap_or_else(|| count.into());
            if stored != u64::from(count) || view.hold_count() != count {
                let said = view.hold_count();
                let what = format!("{count} guards, which say {said}, and {stored} in the store");
                self.ledger.violation(Judge::Counts, what);
            }
        }
    }

    fn enter(&self, guard: &dyn Grant, claim: Claim) -> u64 {
        let view = guard.view();
        let (ledger, name) = (&self.ledger, &self.process.name);
        let entry = ledger.enter(name, claim, self.setup.lease, &view);
        if self.setup.keeps_data {
            let (store, kind) = (self.store.clone(), self.setup.kind);
            self.ledger.follow(entry, kind, store, Duration::ZERO);
        }
        entry
    }

    async fn hold(
        &self,
        got: Result<Option<Box<dyn Grant>>, Error>,
        subject: &dyn Subject,
        claim: Claim,
        random: &mut Random,
    ) {
        let Self { setup, ledger, .. } = self;
        let name = &self.process.name;
        let guard = match got {
            Ok(Some(guard)) => guard,
            Ok(None) => return,
            Err(error) => return ledger.error(&error),
        };
        let view = guard.view();
        let entry = self.enter(&*guard, claim);
        // The same owner acquires once more, if the lock has an owner.
        let mut inner = None;
        if setup.reentrant_percent > 0 && random.percent(50) {
            inner = subject.acquire(Limit::TryOnce).await.ok().flatten();
        }
        let inner_entry = inner.as_deref().map(|inner| self.enter(inner, claim));
        let longest = match random.percent(setup.long_percent) {
            true => 2 * setup.lease,
            false => setup.longest_hold,
        };
        let work = sleep(random.up_to(longest));
        let lost = tokio::select! {
            () = work => false,
            _ = view.lost() => true,
        };
        if lost {
            ledger.loss();
            if view.is_held() {
                let what = format!("{name} was told of a loss of what it held");
                ledger.violation(Judge::Loss, what);
            }
        } else if !view.is_held() {
            let told = timeout(Duration::from_millis(100), view.lost());
            if told.await.is_err() {
                let what = format!("{name} was not told that its lock was lost");
                ledger.violation(Judge::Loss, what);
            }
        }
        let mut guards = vec![(entry, guard)];
        guards.extend(inner_entry.zip(inner));
        if random.percent(50) {
            guards.reverse();
        }
        for (entry, guard) in guards {
            if random.percent(setup.drop_percent) {
                ledger.leave(entry);
                drop(guard);
                continue;
            }
            let begun = Instant::now();
            let releasing = ledger.release(entry);
            releasing.ended(&guard.release().await);
            let took = begun.elapsed();
            if took > setup.longest_release() && !setup.has_stops {
                let what = format!("{name}: a release took {took:?}");
                ledger.violation(Judge::Resolution, what);
            }
        }
    }
}
