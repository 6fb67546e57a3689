//! A `tracing` subscriber that panics or blocks, and a client whose calls block.

use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;
use std::{env, thread};

use distlock::Error;
use distlock::blocking::Client;
use tracing::{Dispatch, dispatcher};

use super::subscribers::MisbehavingSubscriber;
use super::{Behaviour, Misbehaviour, PATIENCE, Store};

/// The environment variable with the url, for the process that has such a subscriber for all its threads.
const URL: &str = "DISTLOCK_TEST_URL";
const BLOCKS: &str = "DISTLOCK_TEST_BLOCKS";

/// Connects and calls on a thread of its own, for which the test waits with a limit.
fn carries_out_its_calls(store: Store, bad: &Misbehaviour, subscriber: Option<Dispatch>) {
    let (done, is_done) = channel();
    thread::spawn(move || {
        let connect = || Client::connect_with(store.builder());
        let client = match subscriber {
            Some(subscriber) => dispatcher::with_default(&subscriber, connect),
            None => connect(),
        };
        let client = client.expect("the store is up");
        let name = format!("bad {}", std::process::id());
        let held = client.lock(&*name).acquire().expect("it is free");
        let ran = client.lock(format!("{name} beside")).run(|_| 42);
        assert_eq!(ran.expect("it is free"), 42);
        let waiting = client
            .lock(&*name)
            .acquire_timeout(Duration::from_millis(100));
        // The store may take longer to reply.
        let refused = matches!(waiting, Ok(None) | Err(Error::Timeout { .. }));
        assert!(refused, "{waiting:?}");
        held.release().expect("it is held");
        client.close().expect("it gives everything back");
        let _ = done.send(());
    });
    let answered = is_done.recv_timeout(PATIENCE);
    let calls = bad.calls();
    bad.release();
    answered.expect("every call returns, and none fails");
    assert!(calls > 0, "the subscriber is called");
}

fn with_a_bad_subscriber(store: &Store, manner: Behaviour) {
    let program = env::current_exe().expect("this runs from a file");
    let mut worker = Command::new(program);
    worker.args(["--exact", "blocking::worker", "--ignored", "--nocapture"]);
    worker.env(URL, &store.url);
    if manner == Behaviour::Blocks {
        worker.env(BLOCKS, "");
    }
    let ended = worker.output().expect("this program can be started again");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{}: {said}", ended.status);
}

#[test]
#[ignore = "started by the others, each for a process of its own"]
fn worker() {
    let Ok(url) = env::var(URL) else {
        return;
    };
    let manner = match env::var_os(BLOCKS) {
        Some(_) => Behaviour::Blocks,
        None => Behaviour::Panics,
    };
    let bad = Arc::new(Misbehaviour::new(manner));
    let subscriber = Dispatch::new(MisbehavingSubscriber(bad.clone()));
    dispatcher::set_global_default(subscriber).expect("it is the only one");
    carries_out_its_calls(Store { url, _folder: None }, &bad, None);
}

#[test]
fn events_of_blocking_calls_go_to_the_subscriber_that_was_current_when_their_client_connected() {
    let store = Store::memory();
    let bad = Arc::new(Misbehaviour::new(Behaviour::Blocks));
    let subscriber = Dispatch::new(MisbehavingSubscriber(bad.clone()));
    carries_out_its_calls(store, &bad, Some(subscriber));
}

macro_rules! on_every_store {
    ($($test:ident: $store:ident, $manner:ident;)+) => {
        $(
            #[test]
            fn $test() {
                with_a_bad_subscriber(&Store::$store(), Behaviour::$manner);
            }
        )+
    };
}

on_every_store! {
    a_subscriber_that_panics_blocks_no_caller_on_redis: redis, Panics;
    a_subscriber_that_blocks_delays_no_caller_on_redis: redis, Blocks;
    a_subscriber_that_panics_blocks_no_caller_in_a_file: sqlite, Panics;
    a_subscriber_that_blocks_delays_no_caller_in_a_file: sqlite, Blocks;
    a_subscriber_that_panics_blocks_no_caller_in_memory: memory, Panics;
    a_subscriber_that_blocks_delays_no_caller_in_memory: memory, Blocks;
}
