//! The types that may cross threads and outlive their makers. No code here runs: that it compiles is the test.

use std::fmt::Debug;
use std::future::pending;
use std::time::Duration;

use distlock::{
    Admin, Backoff, Change, Client, ClientBuilder, CountingSemaphore, Error, Event, FirstLost,
    Guard, Held, Holder, Latch, Lease, Lock, LockInfo, Lost, LostReason, LostSignal, MajorityLost,
    Member, MultiGuard, MultiHeld, MultiLock, Owner, Permit, PermitId, Plain, QuorumGuard,
    QuorumHeld, QuorumLock, Risk, RunError, RwLock, Semaphore, Wait, Watch,
};

const fn goes_anywhere<T: Send + Sync + Debug + 'static>() {}
const fn can_be_cloned<T: Clone>() {}
const fn can_be_sent<T: Send>(_: &T) {}
const fn can_be_spawned<T: Send + 'static>(_: &T) {}

const _: () = {
    goes_anywhere::<Admin>();
    goes_anywhere::<Backoff>();
    goes_anywhere::<Change>();
    goes_anywhere::<Client>();
    goes_anywhere::<ClientBuilder>();
    goes_anywhere::<CountingSemaphore>();
    goes_anywhere::<Error>();
    goes_anywhere::<Event>();
    goes_anywhere::<Plain>();
    goes_anywhere::<Guard>();
    goes_anywhere::<Held>();
    goes_anywhere::<Holder>();
    goes_anywhere::<Latch>();
    goes_anywhere::<Lease>();
    goes_anywhere::<Lock>();
    goes_anywhere::<LockInfo>();
    goes_anywhere::<Lost>();
    goes_anywhere::<LostReason>();
    goes_anywhere::<LostSignal>();
    goes_anywhere::<Member>();
    goes_anywhere::<MultiGuard>();
    goes_anywhere::<MultiHeld>();
    goes_anywhere::<MultiLock>();
    goes_anywhere::<FirstLost>();
    goes_anywhere::<MajorityLost>();
    goes_anywhere::<Owner>();
    goes_anywhere::<Permit>();
    goes_anywhere::<PermitId>();
    goes_anywhere::<QuorumGuard>();
    goes_anywhere::<QuorumHeld>();
    goes_anywhere::<QuorumLock>();
    goes_anywhere::<RwLock>();
    goes_anywhere::<Semaphore>();
    goes_anywhere::<Risk>();
    goes_anywhere::<Wait>();
    goes_anywhere::<Watch>();

    can_be_cloned::<Admin>();
    can_be_cloned::<Client>();
    can_be_cloned::<ClientBuilder>();
    can_be_cloned::<CountingSemaphore>();
    can_be_cloned::<Error>();
    can_be_cloned::<Held>();
    can_be_cloned::<Latch>();
    can_be_cloned::<Lock>();
    can_be_cloned::<LostSignal>();
    can_be_cloned::<FirstLost>();
    can_be_cloned::<MajorityLost>();
    can_be_cloned::<Member>();
    can_be_cloned::<MultiHeld>();
    can_be_cloned::<MultiLock>();
    can_be_cloned::<Owner>();
    can_be_cloned::<QuorumHeld>();
    can_be_cloned::<QuorumLock>();
    can_be_cloned::<RwLock>();
    can_be_cloned::<Semaphore>();
};

/// The bounds hold for every kind of lock: `K` is only a marker.
const _: () = {
    struct NeitherSendNorSync(#[expect(dead_code, reason = "only its type counts")] *const ());
    const fn crosses_threads<T: Send + Sync + 'static>() {}
    crosses_threads::<Guard<NeitherSendNorSync>>();
    crosses_threads::<Lock<NeitherSendNorSync>>();
};

#[cfg(feature = "blocking")]
const _: () = {
    goes_anywhere::<distlock::blocking::Client>();
    goes_anywhere::<distlock::blocking::Guard>();
    goes_anywhere::<distlock::blocking::Member>();
    goes_anywhere::<distlock::blocking::MultiGuard>();
    goes_anywhere::<distlock::blocking::MultiLock>();
    goes_anywhere::<distlock::blocking::QuorumGuard>();
    goes_anywhere::<distlock::blocking::QuorumLock>();
    goes_anywhere::<distlock::blocking::Semaphore>();
    goes_anywhere::<distlock::blocking::Lock>();
    goes_anywhere::<distlock::blocking::Watch>();
    goes_anywhere::<distlock::blocking::CountingSemaphore>();
    goes_anywhere::<distlock::blocking::Latch>();
    can_be_cloned::<distlock::blocking::Client>();
    can_be_cloned::<distlock::blocking::Lock>();
};

/// The futures of a lock borrow nothing, not even the lock.
const _: fn(Lock) = |lock| {
    can_be_spawned(&lock.acquire());
    can_be_spawned(&lock.try_acquire());
    can_be_spawned(&lock.acquire_timeout(Duration::ZERO));
    can_be_spawned(&lock.run(async |held: Held| held.lost().await));
};

const _: fn(MultiLock, MultiGuard, MultiGuard) = |lock, guard, other| {
    can_be_spawned(&lock.acquire());
    can_be_spawned(&lock.try_acquire());
    can_be_spawned(&lock.acquire_timeout(Duration::ZERO));
    can_be_spawned(&lock.run(async |held: MultiHeld| held.lost().await));
    can_be_spawned(&guard.lost());
    can_be_sent(&guard.while_held(pending::<()>()));
    can_be_spawned(&other.release());
};

/// The conversion by `?` into `anyhow::Error` and the like needs this, also for an output that is not `Sync`.
const _: fn() = || {
    fn can_be_boxed<E: std::error::Error + Send + Sync + 'static>() {}
    can_be_boxed::<RunError<std::cell::Cell<u8>>>();
    can_be_boxed::<RunError<Result<(), Error>>>();
};

const _: fn(CountingSemaphore, Latch) = |semaphore, latch| {
    can_be_spawned(&semaphore.acquire(1));
    can_be_spawned(&semaphore.try_acquire(1));
    can_be_spawned(&semaphore.acquire_timeout(1, Duration::ZERO));
    can_be_sent(&semaphore.release(1));
    can_be_sent(&semaphore.drain());
    can_be_spawned(&latch.wait());
    can_be_spawned(&latch.wait_timeout(Duration::ZERO));
    can_be_sent(&latch.count_down());
};

const _: fn(Guard, Guard) = |guard, other| {
    can_be_spawned(&guard.lost());
    can_be_spawned(&guard.held().lost());
    can_be_sent(&guard.while_held(pending::<()>()));
    can_be_sent(&guard.extend(Duration::ZERO));
    can_be_spawned(&other.release());
};

const _: fn(Client) = |client| {
    can_be_spawned(&Client::builder("memory:").connect());
    can_be_sent(&Client::connect("memory:"));
    can_be_sent(&client.close());
    let admin = client.admin();
    can_be_sent(&admin.inspect(""));
    can_be_sent(&admin.list(""));
    can_be_sent(&admin.force_release(""));
    can_be_sent(&admin.watch("").next());
};
