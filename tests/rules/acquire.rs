//! 4 One acquire: its deadline, its connection, and its cost.

use std::future::poll_fn;
use std::pin::Pin;

use distlock::Error;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::{PATIENCE, attack, becomes, begun, connect, enter, ms, soon, take};
use crate::support::{Fault, Script};

/// 4: the deadline covers a re-entry, too, which may have to wait for another re-entry of the same owner.
#[test]
fn one_deadline_covers_a_re_entry_behind_another() {
    attack(async |world| {
        let client = connect(world.builder().command_timeout(PATIENCE)).await;
        let lock = client.lock("stock").with_owner(&client.new_owner());
        let (outer, inner) = (take(lock.clone()).await, take(lock.clone()).await);
        world.next(Script::Release, Fault::HoldReply);
        let mut releasing = begun(inner.release());
        world.until_injected(&mut releasing, 1).await;
        let started = Instant::now();
        let got = lock.acquire_timeout(ms(300)).await;
        assert!(matches!(got, Err(Error::Timeout { .. })), "{got:?}");
        // The client waits for a reply that is under way at the deadline, 50 ms at most.
        let took = started.elapsed();
        assert!((ms(300)..ms(360)).contains(&took), "{took:?}");
        world.proxy.deliver_held();
        let released = soon("the release", releasing).await;
        released.expect("it is ours");
        becomes("the count is the guards'", || world.count("stock") == 1).await;
        outer.release().await.expect("it is ours");
    });
}

/// 4: a dead idle connection is not reported as an outage of the server. Every request may be retried.
#[test]
fn a_connection_that_died_while_idle_is_no_outage() {
    attack(async |world| {
        let client = world.client().await;
        let guard = take(client.lock("stock")).await;
        guard.release().await.expect("it is ours");
        world.proxy.cut_all();
        becomes("the server has let go of it", || {
            let list: String = world.server.query(&["CLIENT", "LIST"]);
            list.lines().count() <= 1
        })
        .await;
        // The client is notified of it in this time.
        tokio::time::sleep(ms(100)).await;
        let guard = enter(&client.lock("stock")).await;
        guard.release().await.expect("it is ours");
    });
}

/// 4: an acquire and a release without contention are nothing but a request each, and leave no tombstone. Requests and tasks are counted
/// after every single poll, on a runtime with no other thread: a task could not have come and gone between.
#[test]
fn a_happy_path_spawns_no_task_and_leaves_no_key() {
    attack(async |world| {
        let client = world.client().await;
        let me = client.new_owner();
        let cleaned_up = async || {
            world.free("stock").await;
            tokio::time::sleep(ms(200)).await;
        };
        // The first use opens both connections.
        drop(take(client.lock("stock")).await);
        cleaned_up().await;
        let alive = || Handle::current().metrics().num_alive_tasks();
        let before = alive();
        assert!(before > 0, "the connection's own task is there");
        for round in 0..10 {
            let lock = client.lock("stock").with_owner(&me);
            let mut work = Box::pin(async {
                let outer = lock.acquire().await.expect("it is free");
                enter(&lock).await.release().await.expect("it is ours");
                match round % 2 {
                    0 => outer.release().await.expect("it is ours"),
                    _ => drop(outer),
                }
            });
            poll_fn(|cx| {
                let polled = Pin::new(&mut work).poll(cx);
                assert_eq!(alive(), before, "a task was spawned");
                polled
            })
            .await;
            cleaned_up().await;
        }
        assert_eq!(world.server.keys(), [""; 0]);
        assert_eq!(world.runs(Script::Undo).len(), 0);

        // Control: a spawned task is counted.
        let task = tokio::spawn(std::future::pending::<()>());
        assert_eq!(alive(), before + 1);
        task.abort();
    });
}
