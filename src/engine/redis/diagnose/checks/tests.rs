//! Replies as servers have sent them, and the findings that follow.

use super::*;
use crate::engine::Severity;

fn verdict(judge: fn(Option<&Info<'_>>) -> Diagnostic, info: &str) -> (Severity, String) {
    let finding = judge(Some(&Info::new(info)));
    assert_eq!(
        finding.advice.is_none(),
        finding.severity == Severity::Ok,
        "what is wrong comes with a way out: {finding:?}"
    );
    (finding.severity, finding.found)
}

#[test]
fn old_servers_are_warned_of() {
    for (info, expected, found) in [
        (
            "# Server\r\nredis_version:7.0.15\r\n",
            Severity::Ok,
            "Redis 7.0.15",
        ),
        ("redis_version:6.2.0\r\n", Severity::Ok, "Redis 6.2.0"),
        ("redis_version:6.0.16\r\n", Severity::Warn, "Redis 6.0.16"),
        ("redis_version:5\r\n", Severity::Warn, "Redis 5"),
        (
            "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.0\r\n",
            Severity::Ok,
            "Valkey 9.1.0",
        ),
        ("", Severity::Warn, "unknown: the server does not report it"),
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
    assert_eq!(replica, Severity::Fail);
    assert!(found.contains("10.0.0.1:6379"), "{found}");
    let single = "role:master\r\nconnected_slaves:0\r\n";
    assert_eq!(verdict(role, single).0, Severity::Ok);
    let followed = "role:master\r\nconnected_slaves:2\r\n";
    assert_eq!(verdict(role, followed).0, Severity::Ok);
}

#[test]
fn sentinel_and_cluster_nodes_fail() {
    let found = |mode: &str| server_mode(&Info::new(&format!("redis_mode:{mode}\r\n")));
    let verdict = |mode| found(mode).map(|finding| finding.severity);
    assert_eq!(verdict("standalone"), None);
    assert_eq!(verdict("sentinel"), Some(Severity::Fail));
    assert_eq!(verdict("cluster"), Some(Severity::Fail));
    assert!(server_mode(&Info::new("")).is_none());
}

#[test]
fn only_noeviction_is_safe() {
    for (info, expected) in [
        (
            "maxmemory:100\r\nmaxmemory_policy:noeviction\r\n",
            Severity::Ok,
        ),
        (
            "maxmemory:100\r\nmaxmemory_policy:volatile-lru\r\n",
            Severity::Fail,
        ),
        (
            "maxmemory:100\r\nmaxmemory_policy:allkeys-lfu\r\n",
            Severity::Fail,
        ),
        (
            "maxmemory:0\r\nmaxmemory_policy:allkeys-lfu\r\n",
            Severity::Warn,
        ),
        ("maxmemory:100\r\n", Severity::Warn),
    ] {
        assert_eq!(verdict(eviction, info).0, expected, "{info}");
    }
}

#[test]
fn data_that_a_restart_loses_is_reported() {
    let judged = |aof, save, fsync| {
        let text = format!("aof_enabled:{aof}\r\n");
        persistence(
            Some(&Info::new(&text)),
            save,
            fsync,
            &DurabilityPolicy::default(),
        )
        .severity
    };
    assert_eq!(judged("1", Some(""), Some("everysec")), Severity::Ok);
    assert_eq!(judged("1", None, Some("always")), Severity::Ok);
    assert_eq!(judged("1", None, None), Severity::Ok);
    assert_eq!(judged("1", None, Some("no")), Severity::Warn);
    assert_eq!(judged("0", Some(""), None), Severity::Warn);
    assert_eq!(judged("0", Some("3600 1"), None), Severity::Warn);
    assert_eq!(judged("0", None, None), Severity::Warn);
    let unknown = persistence(None, None, None, &DurabilityPolicy::default());
    assert_eq!(unknown.severity, Severity::Warn);
}

#[test]
fn every_check_without_a_reply_is_a_warning() {
    for judge in [version, role, eviction] {
        assert_eq!(judge(None).severity, Severity::Warn);
    }
    assert_eq!(clock(None).severity, Severity::Warn);
}

#[test]
fn required_commands_must_work_and_optional_ones_may_fail() {
    let denied = || {
        StoreError::new(
            StoreErrorKind::Denied,
            "NOPERM User x has no permissions to run the 'y' command",
        )
    };
    assert_eq!(
        locking(Ok(Reply::Granted { token: None })).severity,
        Severity::Ok
    );
    let waits = Reply::Busy {
        ttl: Some(Duration::from_secs(5)),
    };
    assert_eq!(locking(Ok(waits)).severity, Severity::Warn);
    assert_eq!(locking(Err(denied())).severity, Severity::Fail);
    let other_names = StoreError::new(
        StoreErrorKind::Denied,
        "NOPERM No permissions to access a key",
    );
    assert_eq!(locking(Err(other_names)).severity, Severity::Warn);
    let read_only = StoreError::new(
        StoreErrorKind::NotReady,
        "READONLY You can't write against a read only replica",
    );
    assert_eq!(locking(Err(read_only)).severity, Severity::Fail);
    for judge in [subscribing, labelling, listing] {
        assert_eq!(judge(Ok(())).severity, Severity::Ok);
        assert_eq!(judge(Err(denied())).severity, Severity::Warn);
    }
}

#[test]
fn clocks_far_apart_are_warned_of() {
    assert_eq!(
        clock(Some(-12)).found,
        "the local clock is 12 ms behind the server's"
    );
    assert_eq!(clock(Some(4_999)).severity, Severity::Ok);
    assert_eq!(clock(Some(-5_000)).severity, Severity::Warn);
    assert_eq!(clock(Some(i64::MIN)).severity, Severity::Warn);
}

#[test]
fn an_unencrypted_network_is_warned_of() {
    use crate::engine::redis::{Address, Endpoint};
    let judged = |endpoint| {
        let address = Address {
            endpoint,
            ..Address::default()
        };
        encryption(address.transport_security())
    };
    let tcp = |host: &str| Endpoint::Tcp(host.to_owned(), 6379);
    for local in ["localhost", "LocalHost.", "127.0.0.1", "127.1.2.3", "::1"] {
        assert_eq!(judged(tcp(local)).severity, Severity::Ok, "{local}");
    }
    for remote in [
        "redis.internal",
        "localhost.example.org",
        "10.0.0.1",
        "fe80::1",
    ] {
        let finding = judged(tcp(remote));
        assert_eq!(finding.severity, Severity::Warn, "{remote}");
        assert!(
            finding
                .advice
                .is_some_and(|advice| advice.contains("rediss://"))
        );
    }
    assert_eq!(judged(Endpoint::Unix("/s".into())).severity, Severity::Ok);
}
