//! Guards that are dropped in unusual places: the drop is quick and silent, and the lock is free soon after.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::thread;

use distlock::Guard;

use super::{COMPANY, at_once, on_every_store};

#[test]
fn a_guard_may_be_dropped_after_its_client_was_closed() {
    let _company = COMPANY.blocking_read();
    on_every_store(|store, runtime, client| {
        let guard = runtime.block_on(client.lock("late").acquire()).unwrap();
        let held = guard.held();
        runtime.block_on(client.close()).unwrap();
        store.is_freed("late");
        at_once("the drop", || runtime.block_on(async { drop(guard) }));
        assert!(!held.is_held());
        at_once("the client's drop", || drop(client));
    });
}

#[test]
fn a_guard_may_be_dropped_on_a_plain_thread() {
    let _company = COMPANY.blocking_read();
    on_every_store(|store, runtime, client| {
        let guard = runtime.block_on(client.lock("thread").acquire()).unwrap();
        assert!(store.holds("thread"));
        let dropping = thread::spawn(move || at_once("the drop", || drop(guard)));
        dropping.join().expect("no panic");
        store.is_freed("thread");
    });
}

#[test]
fn a_guard_may_be_dropped_in_a_panic() {
    let _company = COMPANY.blocking_read();
    on_every_store(|store, runtime, client| {
        let guard = runtime.block_on(client.lock("panic").acquire()).unwrap();
        assert!(store.holds("panic"));
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _guard = guard;
            panic!("on purpose");
        }));
        let message = panicked.expect_err("it panicked");
        assert_eq!(message.downcast_ref(), Some(&"on purpose"));
        store.is_freed("panic");
        // The same in a task of the runtime.
        let lock = client.lock("panic");
        let task = runtime.spawn(async move {
            let _guard = lock.acquire().await.unwrap();
            panic!("on purpose");
        });
        let error = runtime.block_on(task).expect_err("it panicked");
        assert!(error.is_panic());
        store.is_freed("panic");
    });
}

thread_local! {
    static KEPT: RefCell<Option<Guard>> = const { RefCell::new(None) };
}

#[test]
fn a_guard_may_be_dropped_with_the_thread_locals() {
    let _company = COMPANY.blocking_read();
    on_every_store(|store, runtime, client| {
        // Thread-local variables are dropped in the reverse order of their first use: tokio's own before the guard, and after.
        for guard_goes_first in [true, false] {
            let name = format!("thread-local:{guard_goes_first}");
            let guard = runtime
                .block_on(client.lock(name.clone()).acquire())
                .unwrap();
            assert!(store.holds(&name));
            let handle = runtime.handle().clone();
            let ending = thread::spawn(move || {
                let use_tokio = || drop(handle.enter());
                if guard_goes_first {
                    use_tokio();
                    KEPT.set(Some(guard));
                } else {
                    KEPT.set(Some(guard));
                    use_tokio();
                }
            });
            at_once("the thread's end", || ending.join()).expect("no panic");
            store.is_freed(&name);
        }
    });
}

#[test]
fn a_guard_may_be_dropped_after_its_runtime_has_ended() {
    let _company = COMPANY.blocking_read();
    on_every_store(|store, runtime, client| {
        let guard = runtime.block_on(client.lock("runtime").acquire()).unwrap();
        let me = client.new_owner();
        let nested = client.lock("nested").with_owner(&me);
        let outer = runtime.block_on(nested.acquire()).unwrap();
        let inner = runtime.block_on(nested.acquire()).unwrap();
        at_once("the runtime's end", || drop(runtime));
        assert!(store.holds("runtime") && store.holds("nested"));
        at_once("the drops", || drop((guard, inner)));
        store.is_freed("runtime");
        assert!(store.holds("nested"), "one of its guards is left");
        at_once("the drop", || drop(outer));
        store.is_freed("nested");
        at_once("the client's drop", || drop(client));
    });
}

#[test]
fn a_guard_may_be_dropped_from_a_static_after_everything_else() {
    static LEFT: Mutex<Option<Guard>> = Mutex::new(None);
    let _company = COMPANY.blocking_read();
    on_every_store(|store, runtime, client| {
        let guard = runtime.block_on(client.lock("static").acquire()).unwrap();
        LEFT.lock().unwrap().replace(guard);
        drop((client, runtime));
        assert!(store.holds("static"));
        let guard = LEFT.lock().unwrap().take();
        thread::spawn(move || at_once("the drop", || drop(guard)))
            .join()
            .expect("no panic");
        store.is_freed("static");
    });
}

#[test]
fn a_waiter_dropped_with_its_runtime_leaves_nothing() {
    let _company = COMPANY.blocking_read();
    on_every_store(|store, runtime, client| {
        let held = runtime.block_on(client.lock("waited").acquire()).unwrap();
        let waiters: Vec<_> = (0..10)
            .map(|_| runtime.spawn(client.lock("waited").acquire()))
            .collect();
        at_once("the runtime's end", || drop(runtime));
        // If the lock were handed off to one of them, it would be held by no guard.
        drop(held);
        store.is_freed("waited");
        drop(waiters);
    });
}
