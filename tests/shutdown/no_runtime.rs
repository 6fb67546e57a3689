//! Futures that are polled outside any runtime return a result or an error, and never panic.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use distlock::{Client, Error, Guard, Lease};

use super::{COMPANY, PATIENCE, connect, on_every_store};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread, without any runtime; `Err` contains the panic, or that the future hung.
pub(crate) fn by_hand<F: Future>(future: F) -> Result<F::Output, String> {
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    let give_up = Instant::now() + PATIENCE;
    loop {
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut context)));
        match polled {
            Ok(Poll::Ready(done)) => return Ok(done),
            Ok(Poll::Pending) if Instant::now() > give_up => return Err("it hangs".to_owned()),
            Ok(Poll::Pending) => thread::park_timeout(Duration::from_millis(50)),
            Err(panic) => {
                let said = panic.downcast_ref::<String>().cloned();
                let said = said.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
                return Err(format!("it panicked: {}", said.unwrap_or_default()));
            }
        }
    }
}

/// The futures that neither completed nor were refused.
#[derive(Default)]
pub(crate) struct Failures(Vec<String>);

impl Failures {
    /// Runs a future by hand and records a panic or a hang.
    pub(crate) fn poll_by_hand<T>(
        &mut self,
        what: &str,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        by_hand(future)
            .map_err(|how| self.0.push(format!("{what}: {how}")))
            .ok()
    }

    pub(crate) fn assert_none(self) {
        assert!(self.0.is_empty(), "{:#?}", self.0);
    }
}

type Boxed<'a> = Pin<Box<dyn Future<Output = Result<Option<Guard>, Error>> + 'a>>;

fn refused(error: &Error) -> bool {
    let text = error.to_string();
    matches!(error, Error::Unavailable { .. }) && text.contains("runtime") && !text.ends_with('.')
}

#[test]
fn connecting_outside_a_runtime_is_refused() {
    for url in [
        "memory:",
        "redis://127.0.0.1:1/",
        "redis+unix:///no/such/socket",
    ] {
        let error = by_hand(Client::connect(url))
            .expect("no panic")
            .expect_err("no runtime");
        assert!(refused(&error), "{error:?}");
    }
}

#[test]
fn a_free_lock_outside_a_runtime_is_acquired_or_refused() {
    let _company = COMPANY.blocking_read();
    on_every_store(|store, _runtime, client| {
        let mut failures = Failures::default();
        let lock = client.lock("free");
        let lock = lock.with_lease(Lease::Fixed(Duration::from_secs(30)));
        // The lock is free: the call does not wait, but a busy machine may be slow to reply.
        let wait = PATIENCE / 3;
        let ways: [(&str, Boxed); 3] = [
            (
                "acquire",
                Box::pin(async { lock.acquire().await.map(Some) }),
            ),
            ("try_acquire", Box::pin(lock.try_acquire())),
            ("acquire_timeout", Box::pin(lock.acquire_timeout(wait))),
        ];
        for (what, way) in ways {
            match failures.poll_by_hand(what, way) {
                Some(Ok(Some(guard))) => drop(guard),
                Some(Ok(None)) => panic!("{what}: nobody else has it"),
                Some(Err(error)) => assert!(refused(&error), "{what}: {error:?}"),
                None => {}
            }
            store.is_freed("free");
        }
        failures.poll_by_hand("run", lock.run(async |_| ()));
        failures.assert_none();
        store.is_freed("free");
    });
}

#[test]
fn a_busy_lock_outside_a_runtime_is_waited_for_or_refused() {
    let _company = COMPANY.blocking_read();
    on_every_store(|store, runtime, client| {
        let mut failures = Failures::default();
        let wait = Duration::from_millis(200);
        let other = runtime.block_on(connect(&store.url));
        for (holder, whose) in [(&client, "its own"), (&other, "another")] {
            let held = runtime.block_on(holder.lock("busy").acquire()).unwrap();
            let lock = client.lock("busy");
            let what = format!("acquire_timeout behind {whose} client's hold");
            let got = failures.poll_by_hand(&what, lock.acquire_timeout(wait));
            assert!(!matches!(got, Some(Ok(Some(_)))), "{what}: two hold it");
            let what = format!("try_acquire behind {whose} client's hold");
            let got = failures.poll_by_hand(&what, lock.try_acquire());
            assert!(!matches!(got, Some(Ok(Some(_)))), "{what}: two hold it");
            let what = format!("acquire behind {whose} client's hold");
            let waiting = lock.acquire();
            let releasing = thread::spawn(move || {
                thread::sleep(Duration::from_millis(100));
                drop(held);
            });
            if let Some(Ok(guard)) = failures.poll_by_hand(&what, waiting) {
                drop(guard);
            }
            releasing.join().unwrap();
            store.is_freed("busy");
        }
        failures.assert_none();
    });
}

#[test]
fn a_guard_outside_a_runtime_works_or_returns_an_error() {
    let _company = COMPANY.blocking_read();
    on_every_store(|store, runtime, client| {
        let mut failures = Failures::default();
        let lock = client.lock("guard");
        let lock = lock.with_lease(Lease::Fixed(Duration::from_secs(30)));
        let guard = runtime.block_on(lock.acquire()).unwrap();
        let lost = guard.lost();
        failures.poll_by_hand("extend", guard.extend(Duration::from_secs(60)));
        failures.poll_by_hand("while_held", guard.while_held(async {}));
        assert!(guard.is_held());
        if let Some(Err(error)) = failures.poll_by_hand("release", guard.release()) {
            assert!(refused(&error), "{error:?}");
        }
        assert_eq!(failures.poll_by_hand("lost", lost), Some(None));
        store.is_freed("guard");
        failures.assert_none();
    });
}

#[test]
fn an_admin_call_outside_a_runtime_works_or_is_refused() {
    let _company = COMPANY.blocking_read();
    on_every_store(|store, runtime, client| {
        let mut failures = Failures::default();
        let held = runtime.block_on(client.lock("admin").acquire()).unwrap();
        let admin = client.admin();
        failures.poll_by_hand("inspect", admin.inspect("admin"));
        failures.poll_by_hand("list", admin.list("*"));
        failures.poll_by_hand("force_release", admin.force_release("admin"));
        let closed = failures.poll_by_hand("close", client.close());
        if let Some(Ok(())) = closed {
            assert!(!store.holds("admin"));
        }
        drop(held);
        store.is_freed("admin");
        failures.assert_none();
    });
}
