//! Tests of `doctor`.

use crate::stage::{Stage, distlock, object, ran, wait_until};
use crate::support::rights;

on_every_store! {
    a_doctor_checks_the_store,
}

fn a_doctor_checks_the_store(stage: &Stage) {
    let ran = stage.run(&["doctor", "--json", "--probe"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    for line in ran.out.lines() {
        let finding = object(line);
        let verdict = finding["verdict"].as_str().expect("a verdict");
        assert!(["ok", "warn"].contains(&verdict), "{line}");
        assert_eq!(finding["advice"].is_null(), verdict == "ok", "{line}");
    }
    let tried = ran.out.lines().map(object);
    let tried = tried.filter(|finding| finding["what"] == "locking");
    let tried: Vec<_> = tried.map(|finding| finding["verdict"].clone()).collect();
    assert_eq!(tried, ["ok"], "{ran:?}");
    // The probe left nothing behind.
    assert_eq!(stage.run(&["ls"]).out, "");
    let text = stage.run(&["doctor"]);
    let not_tried = "--    locking      not tested: --probe acquires and releases a lock";
    assert!(text.out.lines().any(|line| line == not_tried), "{text:?}");
    assert!(
        text.out.starts_with("ok    connection   established in "),
        "{text:?}"
    );
    assert!(
        text.out.lines().all(|line| line.chars().count() <= 110),
        "{text:?}"
    );
}

#[test]
fn a_doctor_reports_the_problems_of_a_server() {
    let stage = Stage::redis();
    let server = stage.server();
    let found = |what: &str| {
        let ran = stage.run(&["doctor", "--json", "--probe"]);
        let finding = ran
            .out
            .lines()
            .map(object)
            .find(|finding| finding["what"] == what);
        let verdict = finding.expect("it is looked at")["verdict"]
            .as_str()
            .map(str::to_owned);
        (ran.code, verdict.expect("a verdict"))
    };
    assert_eq!(found("persistence"), (0, "warn".into()));
    server.config_set("appendonly", "yes");
    wait_until("the server has turned it on", || {
        found("persistence").1 == "ok"
    });
    server.config_set("maxmemory-policy", "allkeys-lru");
    assert_eq!(found("eviction"), (0, "warn".into()));
    server.config_set("maxmemory", "100mb");
    assert_eq!(found("eviction"), (1, "fail".into()));
    server.config_set("maxmemory-policy", "noeviction");
    assert_eq!(found("eviction"), (0, "ok".into()));
    server.cmd(&["REPLICAOF", "127.0.0.1", "1"]);
    assert_eq!(found("role"), (1, "fail".into()));
    assert_eq!(found("locking"), (1, "fail".into()));
}

#[test]
fn a_doctor_warns_if_the_user_lacks_permissions() {
    let stage = Stage::redis();
    let mut words = vec![
        "ACL",
        "SETUSER",
        "ann",
        "on",
        ">pass",
        "~distlock_undone:*",
        "~mine*",
    ];
    words.push("&redisson_lock__channel:*");
    words.extend(rights::commands());
    stage.server().cmd(&words);
    let url = stage.url().replace("redis://", "redis://ann:pass@");
    let ran = ran(distlock(&["doctor", "--json", "--probe", "--url", &url]));
    assert_eq!(ran.code, 0, "{ran:?}");
    let verdict = |what: &str| {
        let finding = ran
            .out
            .lines()
            .map(object)
            .find(|finding| finding["what"] == what);
        finding.expect("it is looked at")["verdict"]
            .as_str()
            .map(str::to_owned)
    };
    for (what, expected) in [
        ("version", "warn"),
        ("persistence", "warn"),
        ("locking", "warn"),
        ("labels", "warn"),
        ("listing", "warn"),
        ("messages", "ok"),
        ("clock", "ok"),
    ] {
        assert_eq!(verdict(what).as_deref(), Some(expected), "{what}: {ran:?}");
    }
    // Access to the channels of this user's own locks is enough.
    stage.server().cmd(&[
        "ACL",
        "SETUSER",
        "ann",
        "resetchannels",
        "&redisson_lock__channel:{mine*",
    ]);
    let ran = stage.run(&["doctor", "--url", &url]);
    assert!(
        ran.out.contains("not tested: ") && !ran.out.contains("waits for a busy lock"),
        "{ran:?}"
    );
}

/// A file has no server that could run, nor has an address that makes no sense.
#[test]
fn a_doctor_reports_only_checks_of_its_store() {
    for (url, code, advice) in [
        ("sqlite:/proc/self/no/locks.db", 69, "write"),
        ("redis://127.0.0.1:1/", 69, "server"),
        ("nonsense:", 64, ""),
        ("memory:", 64, ""),
    ] {
        let ran = ran(distlock(&["doctor", "--json", "--url", url]));
        assert_eq!(ran.code, code, "{ran:?}");
        let finding = object(ran.out.trim());
        let said = finding["advice"].as_str().unwrap_or_default();
        assert!(said.contains(advice), "{ran:?}");
        assert_eq!(said.contains("server"), advice == "server", "{ran:?}");
        assert_eq!(said.is_empty(), advice.is_empty(), "{ran:?}");
    }
}

#[test]
fn a_doctor_reports_a_failed_connection() {
    let ran = ran(distlock(&[
        "doctor",
        "--json",
        "--url",
        "redis://127.0.0.1:1/",
    ]));
    assert_eq!(ran.code, 69);
    let finding = object(ran.out.trim());
    assert_eq!(
        (&finding["what"], &finding["verdict"]),
        (&"connection".into(), &"fail".into())
    );
}
