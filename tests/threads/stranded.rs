//! A connection lives on the runtime on which it was made. If that runtime stands still, or has been shut down, callers of another runtime
//! still complete.

use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use distlock::{Client, Error, Guard};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use super::support::{RedisServer, wait_until};

#[test]
fn callers_are_not_blocked_by_a_stalled_runtime() {
    let (_server, home, client) = at_home();
    // `home` is not driven any more, and calls are in flight there.
    let away = runtime();
    away.block_on(all_get_it(|number| begun(&client, number)));
    drop(home);
}

#[test]
fn callers_are_not_blocked_by_a_runtime_that_stalled_with_a_call_in_flight() {
    let (_server, home, client) = at_home();
    home.block_on(async {
        // These calls are sent in a batch, and left there.
        let mut calls: Vec<_> = (10..13).map(|number| begun(&client, number)).collect();
        for call in &mut calls {
            assert!(begin(call.as_mut()), "it is answered at once");
        }
        tokio::task::yield_now().await;
        std::mem::forget(calls);
    });
    let away = runtime();
    away.block_on(all_get_it(|number| begun(&client, number)));
    drop(home);
}

#[test]
fn callers_are_not_blocked_by_an_ended_runtime() {
    let (_server, home, client) = at_home();
    let away = runtime();
    // One call is in flight, alone, and its reply is not awaited.
    let mut parked = begun(&client, 99);
    assert!(
        away.block_on(async { begin(parked.as_mut()) }),
        "nobody drives its connection"
    );
    drop(home);
    away.block_on(all_get_it(|number| begun(&client, number)));
    drop(parked);
}

#[test]
fn callers_are_not_blocked_by_a_runtime_that_stalls_while_it_connects() {
    let (server, home, client) = at_home();
    server.cmd(&["CLIENT", "KILL", "TYPE", "normal"]);
    let mut parked = begun(&client, 99);
    home.block_on(async {
        // The runtime notices the cut, and begins to connect again.
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(begin(parked.as_mut()), "there is a connection");
    });
    let away = runtime();
    away.block_on(all_get_it(|number| begun(&client, number)));
    drop((parked, home));
}

#[test]
fn callers_with_a_short_timeout_are_not_blocked_either() {
    let (_server, home, client) = at_home();
    let mut parked: Vec<_> = (10..13).map(|number| begun(&client, number)).collect();
    home.block_on(async {
        for call in &mut parked {
            assert!(begin(call.as_mut()), "it is answered at once");
        }
    });
    let away = runtime();
    away.block_on(all_get_it(|number| {
        let lock = client.lock(format!("hurried-{number}"));
        Box::pin(lock.acquire_timeout(COMMAND_TIMEOUT / 4))
    }));
    drop((parked, home));
}

#[test]
fn callers_behind_a_call_of_a_runtime_that_ends_are_notified() {
    let (server, home, client) = at_home_with(PATIENCE);
    server.cmd(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    // There are more calls than may be in flight at once: the last wait until one of the first has its reply.
    let mut calls: Vec<_> = (0..CROWD).map(|number| begun(&client, number)).collect();
    home.block_on(one_by_one(&mut calls));
    drop(home);
    server.cmd(&["CLIENT", "UNPAUSE"]);
    let away = runtime();
    away.block_on(async {
        for call in calls {
            let answer = call.await;
            // The result must not be a timeout: that would mean that the calls were left unhandled.
            let told = matches!(answer, Ok(Some(_)) | Err(Error::Unavailable { .. }));
            assert!(told, "{answer:?}");
        }
        all_get_it(|number| begun(&client, number)).await;
    });
}

/// Far more callers than calls that may be in flight.
const CROWD: usize = 40;
/// Upper bound for any wait on a busy machine; only a failure waits this long.
const PATIENCE: Duration = Duration::from_secs(120);
const COMMAND_TIMEOUT: Duration = Duration::from_millis(400);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);

/// Polls a call for the first time, which sends its request or queues it. Returns whether it waits.
fn begin(call: Pin<&mut (impl Future + ?Sized)>) -> bool {
    call.poll(&mut Context::from_waker(Waker::noop()))
        .is_pending()
}

/// Begins these calls, each when the one before has left if it may.
async fn one_by_one(calls: &mut [Begun]) {
    for call in calls {
        assert!(begin(call.as_mut()), "it is answered at once");
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }
}

/// Checks that callers that come together, again and again, are all granted their locks before long.
async fn all_get_it(begun: impl Fn(usize) -> Begun) {
    let started = Instant::now();
    loop {
        let mut callers = JoinSet::new();
        for number in 0..5 {
            callers.spawn(begun(number));
        }
        let got = callers.join_all().await;
        if got.iter().all(|got| matches!(got, Ok(Some(_)))) {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "they never get away: {got:?}");
    }
}

type Begun = Pin<Box<dyn Future<Output = Result<Option<Guard>, Error>> + Send>>;

fn begun(client: &Client, number: usize) -> Begun {
    let acquiring = client.lock(format!("stranded-{number}")).acquire();
    Box::pin(async { acquiring.await.map(Some) })
}

/// Starts a server, and a client whose connection lives on this runtime.
fn at_home() -> (RedisServer, Runtime, Client) {
    at_home_with(COMMAND_TIMEOUT)
}

/// Does the same with this command timeout.
fn at_home_with(command_timeout: Duration) -> (RedisServer, Runtime, Client) {
    let (server, home) = (RedisServer::start(), runtime());
    let url = server.url();
    let connect = || {
        let builder = Client::builder(&url).command_timeout(command_timeout);
        builder.connect_timeout(CONNECT_TIMEOUT).connect()
    };
    let mut client = None;
    // On a busy machine the server may not reply in time.
    wait_until("it is connected", || {
        client = home.block_on(connect()).ok();
        client.is_some()
    });
    (server, home, client.expect("it is connected"))
}

fn runtime() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime")
}
