//! Inspection only reads, and reads a bounded amount, whatever other programs keep in the database.

use std::collections::BTreeMap;
use std::time::Duration;

use distlock::{Change, Client, Error, Lease, LockKind};
use redis::Value;

use super::cost::Scripts;
use super::support::rights::user;
use super::support::{RedisServer, rights};
use super::{PATIENCE, connect};

const UUID: &str = "0e8be4d2-4b6c-4f0a-9d41-2f5b7a6c1d3e";

fn is_wrong_kind<T: std::fmt::Debug>(result: Result<T, Error>) -> bool {
    matches!(&result, Err(Error::WrongKind { .. })) || panic!("{result:?}")
}

/// Returns all keys with their contents, without the time to live, which changes.
fn contents(server: &RedisServer) -> BTreeMap<String, Value> {
    let keys = server.keys().into_iter();
    keys.map(|key| {
        let dump = server.cmd(&["DUMP", &key]);
        (key, dump)
    })
    .collect()
}

/// Runs a Lua script as a fixture.
fn fill(server: &RedisServer, script: &str) {
    server.cmd(&["EVAL", script, "0"]);
}

/// Adds two reads of one lock, as Redisson keeps them. A client would renew its own reads meanwhile, even those with fixed leases, and the
/// renewals would count among the commands.
const TWO_READS: &str = "
    redis.call('HSET', KEYS[1], 'mode', 'read')
    for thread = 1, 2 do
      redis.call('HSET', KEYS[1], ARGV[1] .. ':' .. thread, 1)
      redis.call('SET', '{' .. KEYS[1] .. '}:' .. ARGV[1] .. ':' .. thread .. ':rwlock_timeout:1', 1, 'PX', 600000)
    end
    redis.call('PEXPIRE', KEYS[1], 600000)";

/// Holds one lock or permit of every kind.
async fn hold_everything(
    server: &RedisServer,
    client: &Client,
) -> Result<Vec<Box<dyn std::any::Any + Send>>, Error> {
    let mut held: Vec<Box<dyn std::any::Any + Send>> = Vec::new();
    held.push(Box::new(client.lock("plain").acquire().await?));
    held.push(Box::new(client.fenced_lock("fenced").acquire().await?));
    held.push(Box::new(client.fair_lock("fair").acquire().await?));
    held.push(Box::new(client.simple_lock("simple").acquire().await?));
    server.cmd(&["EVAL", TWO_READS, "1", "shared", UUID]);
    let semaphore = client.semaphore("permits");
    semaphore.set_total(5).await?;
    held.push(Box::new(semaphore.permits(2).acquire().await?));
    client
        .counting_semaphore("counting")
        .set_available(3)
        .await?;
    client.latch("latch").try_set(2).await?;
    Ok(held)
}

/// Connects a client with fixed leases, so that no renewal counts among the commands.
async fn holder(server: &RedisServer) -> Client {
    let lease = Lease::Fixed(Duration::from_secs(600));
    let builder = Client::builder(&server.url()).default_lease(lease);
    let builder = builder.command_timeout(PATIENCE).connect_timeout(PATIENCE);
    builder.connect().await.expect("the server is up")
}

/// Inspects the locks in every way.
async fn inspect_everything(client: &Client) -> Result<(), Error> {
    let admin = client.admin();
    let locks = admin.list("*").await?;
    let names: Vec<_> = locks.iter().map(|lock| &*lock.name).collect();
    let held = ["fair", "fenced", "permits", "plain", "shared", "simple"];
    assert_eq!(names, held, "{locks:?}");
    for name in held {
        let lock = admin.inspect(name).await?;
        assert!(lock.is_some_and(|lock| !lock.holders.is_empty()), "{name}");
    }
    assert!(admin.inspect("nothing").await?.is_none());
    let permits = client.semaphore("permits").count().await?;
    assert_eq!((permits.available, permits.out), (3, 2));
    let counting = client.counting_semaphore("counting");
    assert_eq!(counting.available().await?, 3);
    assert_eq!(client.latch("latch").count().await?, 2);
    let mut watch = admin.watch("*");
    for _ in held {
        watch.next().await?;
    }
    admin.examine().await?;
    Ok(())
}

/// Returns the commands that write, among all that ran.
fn writes(server: &RedisServer) -> Vec<String> {
    let stats: String = server.query(&["INFO", "commandstats"]);
    let names = stats.lines().filter_map(|line| {
        let (name, _) = line.strip_prefix("cmdstat_")?.split_once(':')?;
        Some(name.split('|').next().unwrap_or(name).to_owned())
    });
    let is_write = |name: &String| {
        let info: Vec<Vec<Value>> = server.query(&["COMMAND", "INFO", name]);
        let flags = info
            .into_iter()
            .next()
            .and_then(|info| info.into_iter().nth(2));
        let flags: Vec<String> = flags
            .and_then(|flags| redis::from_redis_value(flags).ok())
            .unwrap_or_default();
        flags.iter().any(|flag| flag == "write")
    };
    names.filter(is_write).collect()
}

/// Inspects everything as a user with these rules. Returns how often the server ran EVAL, EVALSHA and EVALSHA_RO for it.
async fn reads_only(server: &RedisServer, rules: &[&str]) -> [u64; 3] {
    let holder = holder(server).await;
    let held = hold_everything(server, &holder)
        .await
        .expect("all of it is free");
    // Two permits that were not returned in time.
    server.cmd(&[
        "ZADD",
        "{permits}:timeout",
        "1700000000000",
        "0123456789abcdef",
    ]);
    server.cmd(&[
        "ZADD",
        "{permits}:timeout",
        "1700000000001",
        "0123456789abcdeg",
    ]);
    server.cmd(&["DECRBY", "permits", "2"]);
    let before = contents(server);
    let reader = connect(&user(server, rules)).await;
    server.cmd(&["CONFIG", "RESETSTAT"]);
    let inspected = tokio::time::timeout(PATIENCE, inspect_everything(&reader)).await;
    inspected.expect("it is answered").expect("it may read");
    assert_eq!(writes(server), Vec::<String>::new());
    // Counted before the holder releases anything, which takes scripts that write.
    let scripts = ["eval", "evalsha", "evalsha_ro"].map(|word| server.commandstats(word));
    assert_eq!(contents(server), before);
    reader.close().await.expect("nothing is held");
    drop(held);
    scripts
}

#[tokio::test]
async fn a_read_only_user_can_inspect_everything_and_writes_nothing() {
    let server = RedisServer::start();
    if !server.knows("EVALSHA_RO") {
        // A server before 7.0 does not know the rules that allow the command, either. The user may run scripts, and read in them.
        let [_, evalsha, evalsha_ro] = reads_only(&server, &rights::reader_by_eval()).await;
        assert!(evalsha > 0);
        assert_eq!(evalsha_ro, 0);
        return;
    }
    let [eval, evalsha, evalsha_ro] = reads_only(&server, &rights::reader()).await;
    assert_eq!((eval, evalsha), (0, 0));
    assert!(evalsha_ro > 0);
}

/// The server has no such command, as before 7.0: it is an older server, or one whose command was removed.
#[tokio::test]
async fn a_server_without_read_only_scripts_is_inspected_all_the_same() {
    let mut server = RedisServer::start();
    if server.knows("EVALSHA_RO") {
        server = RedisServer::start_with(&[
            "--rename-command",
            "EVALSHA_RO",
            "",
            "--rename-command",
            "EVAL_RO",
            "",
        ]);
    }
    assert!(!server.knows("EVALSHA_RO") && !server.knows("EVAL_RO"));
    let [_, evalsha, _] = reads_only(&server, &rights::reader_by_eval()).await;
    assert!(evalsha > 0);
}

#[tokio::test]
async fn a_user_without_read_only_scripts_inspects_all_the_same() {
    let server = RedisServer::start();
    reads_only(&server, &rights::reader_by_eval()).await;
    // The command is tried once on a connection, and not again.
    let denied = server.denied();
    let denied = denied.iter().filter(|what| what.contains("_ro")).count();
    assert!(denied <= 1, "{denied} kinds of denials");
}

/// A1: `ls` removed expired permits from another program's zset, and raised its counter.
#[tokio::test]
async fn members_of_a_foreign_zset_are_unchanged() {
    let server = RedisServer::start();
    server.cmd(&[
        "ZADD",
        "{orders}:timeout",
        "1795000000",
        "order-1",
        "1999999999",
        "order-3",
    ]);
    server.cmd(&["SET", "orders", "17"]);
    server.cmd(&["ZADD", "app{1}:timeout", "5", "x", "6", "y"]);
    server.cmd(&["ZADD", "{ids}:timeout", "5", "0123456789abcdef"]);
    server.cmd(&["SET", "ids", "3"]);
    let before = contents(&server);
    let client = connect(&server.url()).await;
    let listed = client.admin().list("*").await.expect("it is up");
    assert!(listed.is_empty(), "{listed:?}");
    assert!(is_wrong_kind(client.admin().inspect("orders").await));
    assert!(is_wrong_kind(client.admin().inspect("app{1}").await));
    let _ = client.semaphore("orders").count().await;
    let mut watch = client.admin().watch("*");
    let seen = tokio::time::timeout(Duration::from_millis(500), watch.next()).await;
    assert!(seen.is_err(), "{seen:?}");
    assert_eq!(contents(&server), before);
}

/// A2: a number beside a field `mode` was taken for a count, and each of its holds was requested.
#[tokio::test]
async fn a_foreign_hash_with_a_mode_costs_a_few_calls() {
    let server = RedisServer::start();
    server.cmd(&[
        "HSET",
        "device:42",
        "mode",
        "eco",
        "updated_at",
        "1763463000",
    ]);
    server.cmd(&["HSET", "device:43", "mode", "read", "level", "inf"]);
    let owner = format!("{UUID}:1");
    server.cmd(&["HSET", "device:44", "mode", "read", &owner, "3000000000"]);
    server.cmd(&["HSET", "device:45", "mode", "read", &owner, "1e9"]);
    server.cmd(&["HSET", "device:46", &owner, "0x10"]);
    let client = connect(&server.url()).await;
    let listed = client.admin().list("*").await.expect("it is up");
    assert!(listed.is_empty(), "{listed:?}");
    for device in 42..47 {
        let name = format!("device:{device}");
        assert!(is_wrong_kind(client.admin().inspect(&name).await), "{name}");
    }
    let asked = server.commandstats("pttl");
    assert!(asked < 50, "{asked} PTTL");
}

/// A6: the hash was read whole, by several scripts.
#[tokio::test]
async fn a_large_hash_is_not_read() {
    let server = RedisServer::start();
    fill(
        &server,
        "for i = 1, 20000 do redis.call('HSET', 'sessions', 'user:' .. i, 'x') end
         redis.call('HSET', 'documents', 'one', string.rep('x', 1000000), 'two', string.rep('x', 1000000))
         redis.call('SET', 'page', string.rep('x', 1000000))",
    );
    let client = connect(&server.url()).await;
    server.cmd(&["CONFIG", "RESETSTAT"]);
    let listed = client.admin().list("*").await.expect("it is up");
    assert!(listed.is_empty(), "{listed:?}");
    for name in ["sessions", "documents", "page"] {
        assert!(is_wrong_kind(client.admin().inspect(name).await), "{name}");
    }
    let sent: String = server.query(&["INFO", "stats"]);
    let sent = sent
        .lines()
        .find_map(|line| line.strip_prefix("total_net_output_bytes:"));
    let sent: u64 = sent
        .and_then(|bytes| bytes.parse().ok())
        .expect("it is told");
    assert!(sent < 64 * 1024, "{sent} bytes");
    assert_eq!(server.commandstats("hgetall"), 0);
}

/// Only a sample of a hash with more than 16 fields is checked; the value may be in any other field.
#[tokio::test]
async fn a_long_value_among_a_hundred_readers_is_not_read() {
    let server = RedisServer::start();
    let mut hset = vec![
        "HSET".to_owned(),
        "readers".into(),
        "mode".into(),
        "read".into(),
    ];
    for number in 1..=100 {
        let count = if number == 50 {
            "x".repeat(10 << 20)
        } else {
            "1".into()
        };
        hset.extend([format!("{UUID}:{number}"), count]);
    }
    let hset: Vec<_> = hset.iter().map(|word| &**word).collect();
    server.cmd(&hset);
    let client = connect(&server.url()).await;
    let in_scripts = || {
        let memory: String = server.query(&["INFO", "memory"]);
        let used = memory
            .lines()
            .find_map(|line| line.strip_prefix("used_memory_lua:"));
        used.and_then(|bytes| bytes.parse::<u64>().ok())
            .expect("it is told")
    };
    let before = in_scripts();
    for _ in 0..20 {
        assert!(is_wrong_kind(client.admin().inspect("readers").await));
        // The call is refused, or finds the lock busy if the sample had counts only.
        let written = client.rw_lock("readers").write().try_acquire().await;
        assert!(!matches!(written, Ok(Some(_))), "{written:?}");
        assert!(is_wrong_kind(client.admin().force_release("readers").await));
        let more = in_scripts().saturating_sub(before);
        assert!(more < 1 << 20, "{more} bytes more in the server's scripts");
    }
    assert_eq!(
        server.query::<u64>(&["HLEN", "readers"]),
        101,
        "nothing was removed"
    );
}

#[tokio::test]
async fn a_list_costs_a_few_round_trips_for_a_page_and_one_call_for_a_lock() {
    let server = RedisServer::start();
    fill(
        &server,
        "for i = 1, 6000 do
           redis.call('HSET', 'session:' .. i, 'user', i, 'mode', 'eco')
           redis.call('SET', 'page:' .. i, 'text ' .. i)
           redis.call('ZADD', '{queue' .. i .. '}:timeout', i, 'task ' .. i)
         end",
    );
    let client = holder(&server).await;
    let _held = hold_everything(&server, &client)
        .await
        .expect("all of it is free");
    // The server knows both scripts then.
    client.admin().list("*").await.expect("it is up");
    server.cmd(&["CONFIG", "RESETSTAT"]);
    let mut reports = Vec::new();
    let listed = client.admin();
    let listed = listed
        .list_with_progress("*", |progress| reports.push(progress))
        .await;
    let listed = listed.expect("it is up");
    assert_eq!(listed.len(), 6, "{listed:?}");
    let last = reports.last().expect("there are several pages");
    assert!(last.scanned >= 18_000 && last.found == 6, "{last:?}");
    let calls = |word| server.commandstats(word);
    let scripts = calls("evalsha_ro") + calls("eval_ro") + calls("evalsha") + calls("eval");
    assert!(scripts <= 6 + 2, "{scripts} scripts");
    assert!(calls("scan") <= 18_100 / 100, "{} pages", calls("scan"));
    assert!(calls("mget") <= calls("scan"));
    assert_eq!(writes(&server), Vec::<String>::new());

    // A listing by pattern finds semaphores by keys of another form.
    let listed = client.admin().list("p*").await.expect("it is up");
    let names: Vec<_> = listed.iter().map(|lock| &*lock.name).collect();
    assert_eq!(names, ["permits", "plain"]);
}

/// The user may read the locks and no key beside them: a denied command is not tried again for every lock, since each denial is noted in
/// the server's ACL LOG.
#[tokio::test]
async fn a_denied_read_is_tried_once_and_not_for_every_lock() {
    let server = RedisServer::start();
    let holder = holder(&server).await;
    let mut held = Vec::new();
    for number in 0..20 {
        let lock = holder.lock(format!("plain-{number}"));
        held.push(lock.acquire().await.expect("it is free"));
    }
    let mut rules = rights::commands();
    rules.extend(["resetkeys", "~plain-*", "+eval_ro", "+evalsha_ro"]);
    rules.retain(|rule| server.knows("EVALSHA_RO") || !rule.ends_with("_ro"));
    let reader = connect(&user(&server, &rules)).await;
    server.cmd(&["CONFIG", "RESETSTAT"]);
    for lock in &held {
        let seen = reader.admin().inspect(lock.name()).await;
        assert!(seen.expect("it may read it").is_some());
    }
    let stats: String = server.query(&["INFO", "commandstats"]);
    let of_scripts = stats
        .lines()
        .filter(|line| line.starts_with("cmdstat_eval"));
    let rejected = of_scripts.filter_map(|line| {
        let (_, rest) = line.split_once("rejected_calls=")?;
        rest.split(',').next()?.parse::<u64>().ok()
    });
    let rejected: u64 = rejected.sum();
    assert!((1..20).contains(&rejected), "{rejected} denials");
}

#[tokio::test]
async fn large_locks_are_read_page_by_page() {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    let semaphore = client.semaphore("permits");
    semaphore.set_total(3000).await.expect("it is up");
    let lease = Lease::Fixed(Duration::from_secs(300));
    let many = semaphore.permits(2500).with_lease(lease);
    let held = many.acquire().await.expect("there are enough");
    fill(
        &server,
        &format!(
            "redis.call('HSET', 'shared', 'mode', 'read')
             for i = 1, 1000 do
               redis.call('HSET', 'shared', '{UUID}:' .. i, 1)
               redis.call('SET', '{{shared}}:{UUID}:' .. i .. ':rwlock_timeout:1', 1, 'PX', 300000)
             end
             redis.call('PEXPIRE', 'shared', 300000)"
        ),
    );
    let mut scripts = Scripts::watch(&server).await;
    let lock = client.admin().inspect("permits").await.expect("it is up");
    let lock = lock.expect("it is held");
    assert_eq!(lock.kind, LockKind::Semaphore);
    let permits = lock.permits.map(|permits| (permits.available, permits.out));
    assert_eq!(permits, Some((500, 2500)));
    assert_eq!((lock.holders.len(), lock.holders[0].hold_count), (1, 2500));
    let lock = client.admin().inspect("shared").await.expect("it is up");
    let lock = lock.expect("it is held");
    let most = scripts.most().await;
    assert!(most <= 1000, "{most} commands in one call");
    assert_eq!((lock.kind, lock.holders.len()), (LockKind::Read, 1000));
    // The second sample has more fields than are checked for their sizes, but few enough to be read in one page.
    for readers in [100, 128, 129, 256, 257, 400, 600] {
        server.cmd(&["DEL", "shared"]);
        fill(
            &server,
            &format!(
                "redis.call('HSET', 'shared', 'mode', 'read')
                 for i = 1, {readers} do
                   redis.call('HSET', 'shared', '{UUID}:' .. i, 8)
                   for hold = 1, 8 do
                     redis.call('SET', '{{shared}}:{UUID}:' .. i .. ':rwlock_timeout:' .. hold, 1, 'PX', 300000)
                   end
                 end
                 redis.call('PEXPIRE', 'shared', 300000)"
            ),
        );
        scripts.most().await;
        let lock = client.admin().inspect("shared").await.expect("it is up");
        assert_eq!(lock.expect("it is held").holders.len(), readers);
        let most = scripts.most().await;
        assert!(most <= 1000, "{most} commands in one call for {readers}");
    }
    drop(held);
}

/// A14: messages have no database, so a release in another one was reported for a lock that was held all the time.
#[tokio::test]
async fn a_message_from_another_database_is_no_release() {
    let server = RedisServer::start();
    let (here, there) = (server.url(), server.url() + "1");
    let (here, there) = (connect(&here).await, connect(&there).await);
    let job = here.lock("job").acquire().await.expect("it is free");
    let mut watch = here.admin().watch("*");
    let first = watch.next().await.expect("it is up");
    assert_eq!((&*first.name, first.change), ("job", Change::Held));
    for name in ["job", "other"] {
        let held = there.lock(name).acquire().await.expect("it is free there");
        held.release().await.expect("it is held");
    }
    // This message follows those.
    let last = here.lock("last").acquire().await.expect("it is free");
    let event = watch.next().await.expect("it is up");
    assert_eq!((&*event.name, event.change), ("last", Change::Granted));
    last.release().await.expect("it is held");
    let event = watch.next().await.expect("it is up");
    assert_eq!((&*event.name, event.change), ("last", Change::Released));
    job.release().await.expect("it is held");
    let event = watch.next().await.expect("it is up");
    assert_eq!((&*event.name, event.change), ("job", Change::Released));
}
