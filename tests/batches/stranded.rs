//! A connection lives on the runtime it was made on. Where that stands still, or has gone, callers of another
//! runtime are not lost with it.

use std::pin::Pin;
use std::time::{Duration, Instant};

use distlock::{Client, Error, Guard};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use super::support::RedisServer;
use super::{COMMAND_TIMEOUT, CONNECT_TIMEOUT, PATIENCE};

#[test]
fn callers_get_away_from_a_runtime_that_stands_still() {
    let (server, home) = (RedisServer::start(), runtime());
    let client = home.block_on(connect(&server));
    // Nobody drives `home` any more, and calls are under way there.
    let away = runtime();
    away.block_on(all_succeed(&client));
    drop(home);
}

#[test]
fn callers_get_away_from_a_runtime_that_stood_still_with_a_call_under_way() {
    let (server, home) = (RedisServer::start(), runtime());
    let client = home.block_on(connect(&server));
    home.block_on(async {
        // Sent in company, and left there.
        let mut calls: Vec<_> = (10..13).map(|number| begun(&client, number)).collect();
        for call in &mut calls {
            assert!(is_under_way(call).await, "it is answered at once");
        }
        tokio::task::yield_now().await;
        std::mem::forget(calls);
    });
    let away = runtime();
    away.block_on(all_succeed(&client));
    drop(home);
}

#[test]
fn callers_get_away_from_a_runtime_that_has_gone() {
    let (server, home) = (RedisServer::start(), runtime());
    let client = home.block_on(connect(&server));
    let away = runtime();
    // Somebody's call is under way, alone, and nobody asks for its answer.
    let mut parked = begun(&client, 99);
    assert!(
        away.block_on(is_under_way(&mut parked)),
        "nobody drives its connection"
    );
    drop(home);
    away.block_on(all_succeed(&client));
    drop(parked);
}

#[test]
fn callers_get_away_from_a_runtime_that_stands_still_while_it_connects() {
    let (server, home) = (RedisServer::start(), runtime());
    let client = home.block_on(connect(&server));
    server.cmd(&["CLIENT", "KILL", "TYPE", "normal"]);
    let mut parked = begun(&client, 99);
    home.block_on(async {
        // It hears of the cut, and begins to connect again.
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(is_under_way(&mut parked).await, "there is a connection");
    });
    let away = runtime();
    away.block_on(all_succeed(&client));
    drop((parked, home));
}

#[test]
fn callers_with_little_patience_get_away_too() {
    let (server, home) = (RedisServer::start(), runtime());
    let client = home.block_on(connect(&server));
    let mut parked: Vec<_> = (10..13).map(|number| begun(&client, number)).collect();
    home.block_on(async {
        for call in &mut parked {
            assert!(is_under_way(call).await, "it is answered at once");
        }
    });
    let away = runtime();
    let got = away.block_on(async {
        let started = Instant::now();
        loop {
            let mut callers = JoinSet::new();
            for number in 0..5 {
                let lock = client.lock(format!("hurried-{number}"));
                callers.spawn(lock.acquire_timeout(COMMAND_TIMEOUT / 4));
            }
            let got = callers.join_all().await;
            let all = got.iter().all(|got| matches!(got, Ok(Some(_))));
            if all || started.elapsed() > PATIENCE {
                return all;
            }
        }
    });
    assert!(got, "they never get away");
    drop((parked, home));
}

/// Callers who come together, again and again, all get their locks before long.
async fn all_succeed(client: &Client) {
    let started = Instant::now();
    loop {
        let mut callers = JoinSet::new();
        for number in 0..5 {
            callers.spawn(begun(client, number));
        }
        let got = callers.join_all().await;
        let failed: Vec<Error> = got.into_iter().filter_map(Result::err).collect();
        if failed.is_empty() {
            return;
        }
        assert!(
            started.elapsed() < PATIENCE,
            "they never get away: {failed:?}"
        );
    }
}

type Begun = Pin<Box<dyn Future<Output = Result<Guard, Error>> + Send>>;

fn begun(client: &Client, number: usize) -> Begun {
    Box::pin(client.lock(format!("stranded-{number}")).acquire())
}

/// Polls it once; whether it is still under way.
async fn is_under_way(call: &mut Begun) -> bool {
    std::future::poll_fn(|cx| std::task::Poll::Ready(call.as_mut().poll(cx).is_pending())).await
}

async fn connect(server: &RedisServer) -> Client {
    let builder = Client::builder(&server.url())
        .command_timeout(COMMAND_TIMEOUT)
        .connect_timeout(CONNECT_TIMEOUT);
    builder.connect().await.expect("the server runs")
}

fn runtime() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime")
}
