//! Answers as servers have given them, and what they mean.

use super::*;
use crate::engine::Verdict;

fn verdict(judge: fn(Option<&Info<'_>>) -> Finding, info: &str) -> (Verdict, String) {
    let finding = judge(Some(&Info::new(info)));
    assert_eq!(
        finding.advice.is_none(),
        finding.verdict == Verdict::Ok,
        "what is wrong comes with a way out: {finding:?}"
    );
    (finding.verdict, finding.found)
}

#[test]
fn old_servers_are_warned_of() {
    for (info, expected, found) in [
        (
            "# Server\r\nredis_version:7.0.15\r\n",
            Verdict::Ok,
            "Redis 7.0.15",
        ),
        ("redis_version:6.2.0\r\n", Verdict::Ok, "Redis 6.2.0"),
        ("redis_version:6.0.16\r\n", Verdict::Warn, "Redis 6.0.16"),
        ("redis_version:5\r\n", Verdict::Warn, "Redis 5"),
        (
            "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.0\r\n",
            Verdict::Ok,
            "Valkey 9.1.0",
        ),
        ("", Verdict::Warn, "the server does not say"),
    ] {
        assert_eq!(
            verdict(version, info),
            (expected, found.to_owned()),
            "{info}"
        );
    }
}

#[test]
fn a_replica_takes_no_locks() {
    let (replica, found) = verdict(
        role,
        "role:slave\r\nmaster_host:10.0.0.1\r\nmaster_port:6379\r\nmaster_link_status:up\r\n",
    );
    assert_eq!(replica, Verdict::Fail);
    assert!(found.contains("10.0.0.1:6379"), "{found}");
    let alone = "role:master\r\nconnected_slaves:0\r\n";
    assert_eq!(verdict(role, alone).0, Verdict::Ok);
    let followed = "role:master\r\nconnected_slaves:2\r\n";
    assert_eq!(verdict(role, followed).0, Verdict::Ok);
}

#[test]
fn what_has_another_address_is_told() {
    let found = |mode: &str| part_of(&Info::new(&format!("redis_mode:{mode}\r\n")));
    let verdict = |mode| found(mode).map(|finding| finding.verdict);
    assert_eq!(verdict("standalone"), None);
    assert_eq!(verdict("sentinel"), Some(Verdict::Fail));
    assert_eq!(verdict("cluster"), Some(Verdict::Fail));
    assert!(part_of(&Info::new("")).is_none());
}

#[test]
fn only_noeviction_is_safe() {
    for (info, expected) in [
        (
            "maxmemory:100\r\nmaxmemory_policy:noeviction\r\n",
            Verdict::Ok,
        ),
        (
            "maxmemory:100\r\nmaxmemory_policy:volatile-lru\r\n",
            Verdict::Fail,
        ),
        (
            "maxmemory:100\r\nmaxmemory_policy:allkeys-lfu\r\n",
            Verdict::Fail,
        ),
        (
            "maxmemory:0\r\nmaxmemory_policy:allkeys-lfu\r\n",
            Verdict::Warn,
        ),
        ("maxmemory:100\r\n", Verdict::Warn),
    ] {
        assert_eq!(verdict(eviction, info).0, expected, "{info}");
    }
}

#[test]
fn what_a_restart_forgets_is_said() {
    let judged = |aof, save, fsync| {
        let text = format!("aof_enabled:{aof}\r\n");
        persistence(Some(&Info::new(&text)), save, fsync, &Assurance::default()).verdict
    };
    assert_eq!(judged("1", Some(""), Some("everysec")), Verdict::Ok);
    assert_eq!(judged("1", None, Some("always")), Verdict::Ok);
    assert_eq!(judged("1", None, None), Verdict::Ok);
    assert_eq!(judged("1", None, Some("no")), Verdict::Warn);
    assert_eq!(judged("0", Some(""), None), Verdict::Warn);
    assert_eq!(judged("0", Some("3600 1"), None), Verdict::Warn);
    assert_eq!(judged("0", None, None), Verdict::Warn);
    let unknown = persistence(None, None, None, &Assurance::default());
    assert_eq!(unknown.verdict, Verdict::Warn);
}

#[test]
fn a_server_that_says_nothing_is_a_warning_each_time() {
    for judge in [version, role, eviction] {
        assert_eq!(judge(None).verdict, Verdict::Warn);
    }
    assert_eq!(clock(None).verdict, Verdict::Warn);
}

#[test]
fn what_locks_need_must_work_and_the_rest_may_not() {
    let denied = || {
        Failure::new(
            Cause::Denied,
            "NOPERM User x has no permissions to run the 'y' command",
        )
    };
    assert_eq!(
        locking(Ok(Reply::Granted { token: None })).verdict,
        Verdict::Ok
    );
    let waits = Reply::Busy {
        ttl: Some(Duration::from_secs(5)),
    };
    assert_eq!(locking(Ok(waits)).verdict, Verdict::Warn);
    assert_eq!(locking(Err(denied())).verdict, Verdict::Fail);
    let other_names = Failure::new(Cause::Denied, "NOPERM No permissions to access a key");
    assert_eq!(locking(Err(other_names)).verdict, Verdict::Warn);
    let read_only = Failure::new(
        Cause::Unready,
        "READONLY You can't write against a read only replica",
    );
    assert_eq!(locking(Err(read_only)).verdict, Verdict::Fail);
    for judge in [listening, labelling, listing] {
        assert_eq!(judge(Ok(())).verdict, Verdict::Ok);
        assert_eq!(judge(Err(denied())).verdict, Verdict::Warn);
    }
}

#[test]
fn clocks_far_apart_are_warned_of() {
    assert_eq!(clock(Some(-12)).found, "ours is 12 ms behind the server's");
    assert_eq!(clock(Some(4_999)).verdict, Verdict::Ok);
    assert_eq!(clock(Some(-5_000)).verdict, Verdict::Warn);
    assert_eq!(clock(Some(i64::MIN)).verdict, Verdict::Warn);
}

#[test]
fn a_network_that_anybody_can_read_is_warned_of() {
    use crate::engine::redis::{Address, Place};
    let judged = |place| {
        let address = Address {
            place,
            ..Address::default()
        };
        encryption(address.privacy())
    };
    let tcp = |host: &str| Place::Tcp(host.to_owned(), 6379);
    for local in ["localhost", "LocalHost.", "127.0.0.1", "127.1.2.3", "::1"] {
        assert_eq!(judged(tcp(local)).verdict, Verdict::Ok, "{local}");
    }
    for remote in [
        "redis.internal",
        "localhost.example.org",
        "10.0.0.1",
        "fe80::1",
    ] {
        let finding = judged(tcp(remote));
        assert_eq!(finding.verdict, Verdict::Warn, "{remote}");
        assert!(
            finding
                .advice
                .is_some_and(|advice| advice.contains("rediss://"))
        );
    }
    assert_eq!(judged(Place::Unix("/s".into())).verdict, Verdict::Ok);
}
