//! Two of five servers do not matter; three do. Neither takes long.

use std::time::{Duration, Instant};

use distlock::{Client, Error};

use super::stage::{FORMATS, Format, Stage, clients, lock};
use super::support::{ChaosProxy, PATIENCE, RedisServer, eventually};

/// Two seconds for those who do not answer, and the same again for giving back; the rest is a busy machine's.
const BOUND: Duration = Duration::from_secs(12);

#[derive(Clone, Copy, Debug)]
enum Fault {
    Killed,
    Hung,
    Full,
}

impl Fault {
    fn strike(self, server: &RedisServer) {
        match self {
            Self::Killed => server.kill(),
            Self::Hung => server.stop_process(),
            Self::Full => server.config_set("maxmemory", "1"),
        }
    }

    fn end(self, server: &RedisServer) {
        match self {
            Self::Killed => server.restart(),
            Self::Hung => server.continue_process(),
            Self::Full => server.config_set("maxmemory", "0"),
        }
    }
}

async fn two_do_not_matter(fault: Fault) {
    for format in FORMATS {
        let stage = Stage::new();
        let clients = stage.clients().await;
        for server in &stage.servers[3..] {
            fault.strike(server);
        }
        let begun = Instant::now();
        let taken = lock(&clients, format).try_acquire().await;
        let guard = taken.expect("three answer").expect("it is free");
        assert!(begun.elapsed() < BOUND, "it took {:?}", begun.elapsed());
        assert_eq!(guard.votes(), 3, "{fault:?}");
        assert!(guard.is_held() && guard.check().is_ok());
        guard.release().await.expect("three agree");
        assert!(begun.elapsed() < BOUND * 2, "it took {:?}", begun.elapsed());
        for server in &stage.servers[3..] {
            fault.end(server);
        }
        stage.nothing_is_left().await;
    }
}

async fn three_are_too_many(fault: Fault) {
    for format in FORMATS {
        let stage = Stage::new();
        let clients = stage.clients().await;
        for server in &stage.servers[2..] {
            fault.strike(server);
        }
        let begun = Instant::now();
        // None so short that those who are well could be late: they would be complained of as well.
        for wait in [Duration::ZERO, Duration::from_secs(3), Duration::MAX] {
            let taken = lock(&clients, format).acquire_timeout(wait).await;
            let error = taken.expect_err("nobody could have it");
            assert!(error.is_transient(), "{error}");
            let Error::Several { errors } = &error else {
                panic!("each server's trouble is told: {error}");
            };
            assert_eq!(errors.len(), 3, "{error}");
            let port = stage.servers[2].port().to_string();
            assert!(error.to_string().contains(&port), "and where: {error}");
        }
        assert!(begun.elapsed() < BOUND * 3, "it took {:?}", begun.elapsed());
        for server in &stage.servers[2..] {
            fault.end(server);
        }
        stage.nothing_is_left().await;
        let guard = taken_at_last(&clients, format).await;
        guard.release().await.expect("all are back");
    }
}

/// What was undone is out of the way, and servers that were down are reached again.
async fn taken_at_last(clients: &[Client], format: Format) -> distlock::QuorumGuard {
    let give_up = Instant::now() + PATIENCE;
    loop {
        match lock(clients, format).try_acquire().await {
            Ok(Some(guard)) => return guard,
            other => assert!(Instant::now() < give_up, "{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_killed_servers_do_not_matter() {
    two_do_not_matter(Fault::Killed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_that_hang_do_not_matter() {
    two_do_not_matter(Fault::Hung).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_without_memory_do_not_matter() {
    two_do_not_matter(Fault::Full).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_three_killed_servers_it_is_refused_and_nothing_is_left() {
    three_are_too_many(Fault::Killed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_three_servers_that_hang_it_is_refused_and_nothing_is_left() {
    three_are_too_many(Fault::Hung).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_three_servers_without_memory_it_is_refused_and_nothing_is_left() {
    three_are_too_many(Fault::Full).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_can_be_made_while_its_server_is_down_and_is_of_use_once_it_is_up() {
    let stage = Stage::new();
    stage.servers[4].kill();
    let clients = stage.clients().await;
    let lock = lock(&clients, Format::Plain);
    let taken = lock.try_acquire().await.expect("four answer");
    let guard = taken.expect("it is free");
    eventually(PATIENCE, "four hold it", async || guard.votes() == 4).await;
    guard.release().await.expect("four agree");
    stage.servers[4].restart();
    let taken = lock.try_acquire().await.expect("five answer");
    let guard = taken.expect("it is free");
    eventually(PATIENCE, "all five hold it", async || guard.votes() == 5).await;
}

/// However long a command may take otherwise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_hang_are_waited_for_far_less_than_the_lease() {
    let stage = Stage::new();
    let mut clients = Vec::new();
    for server in &stage.servers {
        let client = Client::builder(&server.url()).command_timeout(Duration::from_secs(600));
        clients.push(client.connect().await.expect("it is up"));
    }
    for server in &stage.servers[2..] {
        server.stop_process();
    }
    let begun = Instant::now();
    let taken = lock(&clients, Format::Plain).try_acquire().await;
    taken.expect_err("three do not answer");
    assert!(begun.elapsed() < BOUND, "it took {:?}", begun.elapsed());
    for server in &stage.servers[2..] {
        server.continue_process();
    }
    stage.nothing_is_left().await;
}

#[tokio::test]
async fn two_members_on_one_server_are_refused_by_its_address() {
    let server = RedisServer::start();
    let url = server.url();
    // Another database is not another server.
    let clients = clients([url.clone(), format!("{url}1")]).await;
    let error = lock(&clients, Format::Plain).try_acquire().await;
    let Err(error @ Error::InvalidOption { .. }) = error else {
        panic!("it would vote twice: {error:?}");
    };
    assert!(
        error.to_string().contains(&server.port().to_string()),
        "{error}"
    );
}

/// Nobody can know that they are one; and it is the same key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_two_addresses_grants_it_once() {
    for format in FORMATS {
        let (twice, once) = (RedisServer::start(), RedisServer::start());
        let proxy = ChaosProxy::start(twice.addr());
        let urls = || [twice.url(), proxy.url(), once.url()];
        let (first, second) = (clients(urls()).await, clients(urls()).await);
        let guard = lock(&first, format).acquire_timeout(PATIENCE).await;
        let guard = guard.expect("two are up").expect("and free");
        assert_eq!(guard.votes(), 2);
        let other = lock(&second, format).try_acquire().await;
        assert!(other.expect("two are up").is_none(), "two hold it");
        guard.release().await.expect("it is ours");
        // Alone, it is no majority by either name.
        once.kill();
        let alone = lock(&first, format).try_acquire().await;
        assert!(!matches!(alone, Ok(Some(_))), "{alone:?}");
    }
}
