//! Every public operation that is applied to a name: one table, which `coverage.rs` compares with the sources.

use std::pin::Pin;
use std::time::Duration;

use distlock::{Client, Error, Lease, Lock, Member, MultiLock, PermitId, QuorumLock};

use self::Effect::{Counts, Reads, Tries, Waits, WaitsInVain};
use super::outcome::{Outcome, of_acquire};

/// One operation of one kind of lock.
pub(crate) struct Operation {
    /// The operation as `Type::method`.
    pub(crate) covers: &'static str,
    pub(crate) kind: Kind,
    /// The kind of the lock under the name: for a quorum, and for several locks together, the member's kind.
    pub(crate) member: Kind,
    pub(crate) effect: Effect,
    run: Run,
}

/// The arguments of an operation: its store and its name.
pub(crate) struct Case {
    pub(crate) client: Client,
    /// Two stores of their own, for a quorum.
    pub(crate) peers: [Client; 2],
    pub(crate) name: String,
    /// The wait limit of an operation with a timeout.
    pub(crate) wait: Duration,
    pub(crate) has_scripts: bool,
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Kind {
    Plain,
    Fair,
    Fenced,
    Simple,
    Read,
    Write,
    Semaphore,
    Counting,
    Latch,
    Quorum,
    /// The operation is applied to a name, whatever is there.
    Admin,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Effect {
    /// The operation acquires or releases a lock if it can, and returns at once.
    Tries,
    /// The same, but the operation waits for as long as another client has the lock.
    Waits,
    /// The same, with a timeout.
    WaitsInVain,
    /// The operation changes a number.
    Counts,
    /// The operation reads.
    Reads,
}

type Run = Box<dyn Fn(&Case) -> Running + Send + Sync>;
type Running = Pin<Box<dyn Future<Output = Outcome> + Send>>;

impl Operation {
    pub(crate) fn run(&self, case: &Case) -> Running {
        (self.run)(case)
    }
}

/// Returns the table.
pub(crate) fn all() -> Vec<Operation> {
    let mut table = Table {
        kind: Kind::Plain,
        member: Kind::Plain,
        operations: Vec::new(),
    };
    table.lock(Kind::Plain, |client, name| client.lock(name));
    table.quorum(Kind::Plain, |client, name| client.lock(name));
    table.lock(Kind::Fair, |client, name| client.fair_lock(name));
    table.lock(Kind::Fenced, |client, name| client.fenced_lock(name));
    table.lock(Kind::Simple, |client, name| client.simple_lock(name));
    table.quorum(Kind::Simple, |client, name| client.simple_lock(name));
    table.lock(Kind::Read, |client, name| client.rw_lock(name).read());
    table.lock(Kind::Write, |client, name| client.rw_lock(name).write());
    table.lock(Kind::Semaphore, |client, name| {
        client.semaphore(name).with_permits(3).permits(2)
    });
    table.semaphore();
    table.counting();
    table.latch();
    table.admin();
    table.operations
}

struct Table {
    /// The kind whose operations are added.
    kind: Kind,
    member: Kind,
    operations: Vec<Operation>,
}

impl Table {
    fn add<F>(
        &mut self,
        covers: &'static str,
        effect: Effect,
        run: impl Fn(&Case) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let run: Run = Box::new(move |case| Box::pin(run(case)));
        self.operations.push(Operation {
            covers,
            kind: self.kind,
            member: self.member,
            effect,
            run,
        });
    }

    fn lock<K: 'static>(&mut self, kind: Kind, lock: fn(&Client, &str) -> Lock<K>) {
        (self.kind, self.member) = (kind, kind);
        let of = move |case: &Case| lock(&case.client, &case.name);
        self.add("Lock::try_acquire", Tries, move |case| {
            let acquiring = of(case).try_acquire();
            async move { of_acquire(acquiring.await).await }
        });
        if kind != Kind::Semaphore {
            self.add("Lock::try_acquire", Tries, move |case| {
                let owner = case.client.new_owner();
                let acquiring = of(case).with_owner(&owner).try_acquire();
                async move { of_acquire(acquiring.await).await }
            });
        }
        self.add("Lock::acquire_timeout", WaitsInVain, move |case| {
            let acquiring = of(case).acquire_timeout(case.wait);
            async move { of_acquire(acquiring.await).await }
        });
        self.add("Lock::acquire", Waits, move |case| {
            let acquiring = of(case).acquire();
            async move { of_acquire(acquiring.await.map(Some)).await }
        });
        self.add("Lock::run", Waits, move |case| {
            let running = of(case).run(async |_| ());
            async move { running.await.map_err(Error::from).into() }
        });
        self.several(lock);
    }

    /// Adds the operations of the lock together with another one, which is free.
    fn several<K: 'static>(&mut self, lock: fn(&Client, &str) -> Lock<K>) {
        let of = move |case: &Case| MultiLock::new(pair(case, lock(&case.client, &case.name)));
        self.add("MultiLock::try_acquire", Tries, move |case| {
            let acquiring = of(case).try_acquire();
            async move { of_acquire(acquiring.await).await }
        });
        self.add("MultiLock::acquire_timeout", WaitsInVain, move |case| {
            let acquiring = of(case).acquire_timeout(case.wait);
            async move { of_acquire(acquiring.await).await }
        });
        self.add("MultiLock::acquire", Waits, move |case| {
            let acquiring = of(case).acquire();
            async move { of_acquire(acquiring.await.map(Some)).await }
        });
        self.add("MultiLock::run", Waits, move |case| {
            let running = of(case).run(async |_| ());
            async move { running.await.map_err(Error::from).into() }
        });
    }

    /// Adds the operations of the lock on this server and on two others, which grant it.
    fn quorum<K: 'static>(&mut self, member: Kind, lock: fn(&Client, &str) -> Lock<K>) {
        (self.kind, self.member) = (Kind::Quorum, member);
        let of = move |case: &Case| {
            let clients = [&case.client, &case.peers[0], &case.peers[1]];
            let members = clients.map(|client| Member::from(lock(client, &case.name)));
            QuorumLock::new(members).with_lease(Lease::Fixed(LEASE))
        };
        self.add("QuorumLock::try_acquire", Tries, move |case| {
            let acquiring = of(case).try_acquire();
            async move { of_acquire(acquiring.await).await }
        });
        self.add("QuorumLock::acquire_timeout", WaitsInVain, move |case| {
            let acquiring = of(case).acquire_timeout(case.wait);
            async move { of_acquire(acquiring.await).await }
        });
        self.add("QuorumLock::acquire", Waits, move |case| {
            let acquiring = of(case).acquire();
            async move { of_acquire(acquiring.await.map(Some)).await }
        });
        self.add("QuorumLock::run", Waits, move |case| {
            let running = of(case).run(async |_| ());
            async move { running.await.map_err(Error::from).into() }
        });
    }

    fn semaphore(&mut self) {
        (self.kind, self.member) = (Kind::Semaphore, Kind::Semaphore);
        let of = |case: &Case| case.client.semaphore(&*case.name).with_permits(3);
        self.add("Semaphore::count", Reads, move |case| {
            let semaphore = of(case);
            async move { semaphore.count().await.into() }
        });
        self.add("Semaphore::try_set", Counts, move |case| {
            let semaphore = of(case);
            async move { semaphore.try_set(5).await.into() }
        });
        self.add("Semaphore::set_total", Counts, move |case| {
            let semaphore = of(case);
            async move { semaphore.set_total(5).await.into() }
        });
        self.add("Semaphore::release", Counts, move |case| {
            let semaphore = of(case);
            let permit: PermitId = PERMIT.parse().expect("32 digits");
            async move { semaphore.release(permit).await.into() }
        });
        self.add("Semaphore::delete", Counts, move |case| {
            let semaphore = of(case);
            async move { semaphore.delete().await.into() }
        });
    }

    fn counting(&mut self) {
        (self.kind, self.member) = (Kind::Counting, Kind::Counting);
        let of = |case: &Case| case.client.counting_semaphore(&*case.name);
        self.add("CountingSemaphore::available", Reads, move |case| {
            let semaphore = of(case);
            async move { semaphore.available().await.into() }
        });
        self.add("CountingSemaphore::try_set", Counts, move |case| {
            let semaphore = of(case);
            async move { semaphore.try_set(5).await.into() }
        });
        self.add("CountingSemaphore::set_available", Counts, move |case| {
            let semaphore = of(case);
            async move { semaphore.set_available(5).await.into() }
        });
        self.add("CountingSemaphore::try_acquire", Counts, move |case| {
            let acquiring = of(case).try_acquire(1);
            async move { acquiring.await.into() }
        });
        self.add("CountingSemaphore::acquire_timeout", Counts, move |case| {
            let acquiring = of(case).acquire_timeout(1, case.wait);
            async move { acquiring.await.into() }
        });
        self.add("CountingSemaphore::acquire", Counts, move |case| {
            let acquiring = of(case).acquire(1);
            async move { acquiring.await.into() }
        });
        self.add("CountingSemaphore::release", Counts, move |case| {
            let semaphore = of(case);
            async move { semaphore.release(1).await.into() }
        });
        self.add("CountingSemaphore::add", Counts, move |case| {
            let semaphore = of(case);
            async move { semaphore.add(-1).await.into() }
        });
        self.add("CountingSemaphore::drain", Counts, move |case| {
            let semaphore = of(case);
            async move { semaphore.drain().await.into() }
        });
        self.add("CountingSemaphore::delete", Counts, move |case| {
            let semaphore = of(case);
            async move { semaphore.delete().await.into() }
        });
    }

    fn latch(&mut self) {
        (self.kind, self.member) = (Kind::Latch, Kind::Latch);
        let of = |case: &Case| case.client.latch(&*case.name);
        self.add("Latch::count", Reads, move |case| {
            let latch = of(case);
            async move { latch.count().await.into() }
        });
        self.add("Latch::wait_timeout", WaitsInVain, move |case| {
            let waiting = of(case).wait_timeout(case.wait);
            async move { waiting.await.into() }
        });
        self.add("Latch::wait", Waits, move |case| {
            let waiting = of(case).wait();
            async move { waiting.await.into() }
        });
        self.add("Latch::try_set", Counts, move |case| {
            let latch = of(case);
            async move { latch.try_set(5).await.into() }
        });
        self.add("Latch::count_down", Counts, move |case| {
            let latch = of(case);
            async move { latch.count_down().await.into() }
        });
        self.add("Latch::delete", Counts, move |case| {
            let latch = of(case);
            async move { latch.delete().await.into() }
        });
    }

    fn admin(&mut self) {
        (self.kind, self.member) = (Kind::Admin, Kind::Admin);
        self.add("Admin::inspect", Reads, |case| {
            let (admin, name) = (case.client.admin(), case.name.clone());
            async move { admin.inspect(&name).await.into() }
        });
        self.add("Admin::list", Reads, |case| {
            let (admin, name) = (case.client.admin(), case.name.clone());
            async move {
                admin
                    .list(&name)
                    .await
                    .map(|found| !found.is_empty())
                    .into()
            }
        });
        for owner in OWNERS {
            self.add("Admin::release", Tries, move |case| {
                let (admin, name) = (case.client.admin(), case.name.clone());
                async move { admin.release(&name, owner).await.into() }
            });
        }
        self.add("Admin::force_release", Tries, |case| {
            let (admin, name) = (case.client.admin(), case.name.clone());
            async move { admin.force_release(&name).await.into() }
        });
    }
}

/// Returns a lock that is free, and the lock under the name.
fn pair<K>(case: &Case, lock: Lock<K>) -> [Member; 2] {
    [case.client.lock(FREE).into(), lock.into()]
}

const LEASE: Duration = Duration::from_secs(1);
/// The name of a lock that is always free.
pub(crate) const FREE: &str = "free";
/// An owner that hashes of the corpus have among their fields, and one that they do not have.
const OWNERS: [&str; 2] = [
    "71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:1",
    "2f1e0d3c-0000-4000-8000-000000000000:7",
];
const PERMIT: &str = "30313233343536373839616263646566";
