//! A connection lives on the runtime it was made on. Where that stands still, or has gone, callers of another
//! runtime are not lost with it.

use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use distlock::{Client, Error, Guard};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use super::support::{RedisServer, wait_until};

#[test]
fn callers_get_away_from_a_runtime_that_stands_still() {
    let (_server, home, client) = at_home();
    // Nobody drives `home` any more, and calls are under way there.
    let away = runtime();
    away.block_on(all_get_it(|number| begun(&client, number)));
    drop(home);
}

#[test]
fn callers_get_away_from_a_runtime_that_stood_still_with_a_call_under_way() {
    let (_server, home, client) = at_home();
    home.block_on(async {
        // Sent in company, and left there.
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
fn callers_get_away_from_a_runtime_that_has_gone() {
    let (_server, home, client) = at_home();
    let away = runtime();
    // Somebody's call is under way, alone, and nobody asks for its answer.
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
fn callers_get_away_from_a_runtime_that_stands_still_while_it_connects() {
    let (server, home, client) = at_home();
    server.cmd(&["CLIENT", "KILL", "TYPE", "normal"]);
    let mut parked = begun(&client, 99);
    home.block_on(async {
        // It hears of the cut, and begins to connect again.
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(begin(parked.as_mut()), "there is a connection");
    });
    let away = runtime();
    away.block_on(all_get_it(|number| begun(&client, number)));
    drop((parked, home));
}

#[test]
fn callers_with_little_patience_get_away_too() {
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
fn those_who_wait_for_a_call_of_a_runtime_that_goes_hear_of_it() {
    let (server, home, client) = at_home_with(PATIENCE);
    server.cmd(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    // More than are under way at once: the last wait until one of the first is answered.
    let mut calls: Vec<_> = (0..CROWD).map(|number| begun(&client, number)).collect();
    home.block_on(one_by_one(&mut calls));
    drop(home);
    server.cmd(&["CLIENT", "UNPAUSE"]);
    let away = runtime();
    away.block_on(async {
        for call in calls {
            let answer = call.await;
            // Not that time was up: nobody would have seen to them.
            let told = matches!(answer, Ok(Some(_)) | Err(Error::Unavailable { .. }));
            assert!(told, "{answer:?}");
        }
        all_get_it(|number| begun(&client, number)).await;
    });
}

/// More callers than calls may be under way, by far.
const CROWD: usize = 40;
/// Far longer than anything takes on a busy machine; only a failure waits for it.
const PATIENCE: Duration = Duration::from_secs(120);
const COMMAND_TIMEOUT: Duration = Duration::from_millis(400);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);

/// The first poll sends the request of a call, or puts it where it waits. Says whether it waits.
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

/// Callers who come together, again and again, all get their locks before long.
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

/// A server, and a client whose connection lives on this runtime.
fn at_home() -> (RedisServer, Runtime, Client) {
    at_home_with(COMMAND_TIMEOUT)
}

/// The same where a call may take so long.
fn at_home_with(command_timeout: Duration) -> (RedisServer, Runtime, Client) {
    let (server, home) = (RedisServer::start(), runtime());
    let url = server.url();
    let connect = || {
        let builder = Client::builder(&url).command_timeout(command_timeout);
        builder.connect_timeout(CONNECT_TIMEOUT).connect()
    };
    let mut client = None;
    // On a busy machine the server may not answer in time.
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
