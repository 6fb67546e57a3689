//! Futures without scripts, whose requests are many commands, dropped while any one command is on its way.

use std::cell::{Cell, RefCell};

use distlock::{Error, Guard, Lease};

use super::fixture::{Fixture, Store, Waiter, hold};
use super::{LEASE, PATIENCE};
use crate::support::command::Command;
use crate::support::{ChaosProxy, Family, Fault, Fenced, Plain, Simple, eventually, simulated};

mod a_future_that_is_dropped_at_any_command_leaves_nothing_behind {
    use super::*;

    #[test]
    fn of_plain_locks() {
        simulated(sweep::<Plain>);
    }

    #[test]
    fn of_simple_locks() {
        simulated(sweep::<Simple>);
    }

    #[test]
    fn of_fenced_locks() {
        simulated(sweep::<Fenced>);
    }
}

async fn sweep<F: Family>() {
    let fixture = Fixture::<F>::of(Store::WithoutScripts).await;
    let server = fixture.server.as_ref().expect("it is on a server");
    let proxy = ChaosProxy::start(server.addr());
    let fixture = fixture
        .behind(&proxy.url(), |builder| builder.handoff_limit(0))
        .await;
    let fixture = &fixture;

    at_every_command(&proxy, async |drops| {
        let name = fixture.name();
        let acquiring = fixture.ours.lock(name.as_str()).acquire();
        drop(drops.run(&name, acquiring).await);
        fixture.assert_gone(&name).await;
    })
    .await;
    at_every_command(&proxy, async |drops| {
        let name = fixture.name();
        let theirs = hold(&fixture.theirs.lock(name.as_str())).await;
        let acquiring = fixture.ours.lock(name.as_str()).try_acquire();
        drop(drops.run(&name, acquiring).await);
        keeps(fixture, theirs).await;
    })
    .await;
    at_every_command(&proxy, async |drops| {
        let lock = fixture.ours.one_owners(&fixture.name());
        let outer = hold(&lock).await;
        // The lease is longer, so that the re-entry always writes something, however soon it comes.
        let longer = lock.with_lease(Lease::KeepAlive(LEASE * 2));
        drop(drops.run(outer.name(), longer.acquire()).await);
        keeps(fixture, outer).await;
    })
    .await;
    at_every_command(&proxy, async |drops| {
        let lock = fixture.ours.one_owners(&fixture.name());
        let (outer, inner) = (hold(&lock).await, hold(&lock).await);
        drops.run(outer.name(), inner.release()).await;
        keeps(fixture, outer).await;
    })
    .await;
    at_every_command(&proxy, async |drops| {
        let lock = fixture.ours.lock(fixture.name());
        let guard = hold(&lock.with_lease(Lease::Fixed(LEASE))).await;
        drops.run(guard.name(), guard.extend(LEASE * 2)).await;
        keeps(fixture, guard).await;
    })
    .await;
    at_every_command(&proxy, async |drops| {
        let name = fixture.name();
        let guard = hold(&fixture.ours.lock(name.as_str())).await;
        drops.run(&name, guard.release()).await;
        fixture.assert_gone(&name).await;
    })
    .await;
    at_every_command(&proxy, async |drops| {
        let name = fixture.name();
        let lock = fixture.ours.lock(name.as_str());
        let guard = hold(&lock).await;
        let next = Waiter::start(&lock);
        drops.run(&name, guard.release()).await;
        keeps(fixture, fixture.turn_of(next).await).await;
    })
    .await;
}

/// Checks that the lock is held once, and gone after its release.
async fn keeps<F: Family>(fixture: &Fixture<F>, guard: Guard<F::Kind>) {
    let name = guard.name().to_owned();
    assert_eq!(guard.hold_count(), 1);
    fixture.assert_held_by(&guard).await;
    guard.release().await.expect("nobody else has it");
    fixture.assert_gone(&name).await;
}

/// Plays a story once to see which commands its future sends, and then once for each command.
async fn at_every_command(proxy: &ChaosProxy, story: impl AsyncFn(&Drops<'_>)) {
    let mut drops = Drops {
        proxy,
        at: None,
        sent: RefCell::default(),
        missed: Cell::default(),
    };
    story(&drops).await;
    let commands = drops.sent.take();
    assert!(commands.iter().any(|command| command.word == "WATCH"));
    let all = commands.len();
    for command in commands {
        drops.at = Some(command);
        story(&drops).await;
    }
    let missed = drops.missed.get();
    assert!(missed < all / 2, "{missed} of {all} were not sent again");
}

/// The place at which a future is dropped, if it is: when this command of the future has been sent and has not arrived.
struct Drops<'a> {
    proxy: &'a ChaosProxy,
    at: Option<Command>,
    /// The commands of a future that was not dropped.
    sent: RefCell<Vec<Command>>,
    /// How many of these commands were not sent again. The future that was not dropped repeats its transaction if the other client's
    /// request came in between, and the repeated commands have no counterpart.
    missed: Cell<usize>,
}

impl Drops<'_> {
    async fn run<T>(
        &self,
        name: &str,
        future: impl Future<Output = Result<T, Error>>,
    ) -> Option<T> {
        let Some(command) = &self.at else {
            self.proxy.clear_requests();
            let output = future.await.expect("nothing goes wrong");
            *self.sent.borrow_mut() = Command::all(&self.proxy.requests(), name);
            return Some(output);
        };
        let before = self.proxy.injected().len();
        self.proxy.rule(command.select(name), Fault::HoldRequest);
        let what = format!("{command:?} is sent");
        let sent = eventually(PATIENCE, &what, async || {
            self.proxy.injected().len() > before
        });
        tokio::select! {
            // The future ended without sending that command.
            _ = future => self.missed.set(self.missed.get() + 1),
            () = sent => {}
        }
        self.proxy.clear_rules();
        self.proxy.deliver_held();
        None
    }
}
