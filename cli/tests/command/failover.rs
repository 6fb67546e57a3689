//! Tests of the risk of a failover, or a restart, and of the options against it.

use crate::stage::{Stage, distlock, object, ran};

/// Longer than any test's server has been up.
const LONG: &str = "50m";

#[test]
fn a_grant_acknowledged_by_too_few_replicas_does_not_count() {
    let stage = Stage::redis();
    let alone = || {
        let alone = stage.run(&["run", "--acks", "1", "x", "--", "true"]);
        assert_eq!(alone.code, 69, "{alone:?}");
        alone.err
    };
    // The command waits for a replica for half of the reply timeout: a busy machine may need the other half.
    let told = (0..5).map(|_| alone()).find(|told| told.contains("0 of"));
    let told = told.expect("it is said in time");
    assert!(told.contains("0 of 1 replicas"), "{told}");
    let mut command = distlock(&["run", "x", "--", "true"]);
    command.env("DISTLOCK_URL", stage.url());
    command.env("DISTLOCK_ACKS", "1");
    assert_eq!(ran(command).code, 69);
    assert_eq!(stage.run(&["ls"]).out, "", "it was taken back");
    assert_eq!(stage.run(&["run", "x", "--", "true"]).code, 0);
}

#[test]
fn a_restarted_server_grants_nothing_during_the_failover_delay() {
    let stage = Stage::redis();
    let mut words = vec!["run", "--failover-delay", LONG, "--wait", "0"];
    words.extend(["x", "--", "true"]);
    let waits = stage.run(&words);
    assert_eq!(waits.code, 75, "{waits:?}");
    assert!(
        waits.err.contains("has no holder, but is not available"),
        "{waits:?}"
    );
    let doctor = stage.run(&["doctor", "--json", "--probe", "--failover-delay", LONG]);
    let verdict = |what: &str| {
        let mut findings = doctor.out.lines().map(object);
        let finding = findings.find(|finding| finding["what"] == what);
        finding.expect("it is looked at")["verdict"].clone()
    };
    assert_eq!(verdict("locking"), "warn", "{doctor:?}");
    assert_eq!(verdict("failover"), "ok", "{doctor:?}");
    assert_eq!(doctor.code, 0, "{doctor:?}");
    assert_eq!(stage.run(&["run", "x", "--", "true"]).code, 0);
}

#[test]
fn no_lease_is_longer_than_the_delay() {
    let stage = Stage::redis();
    let mut words = vec!["run", "--failover-delay", "5s"];
    words.extend(["--lease", "6s", "x", "--", "true"]);
    let long = stage.run(&words);
    assert_eq!(long.code, 64, "{long:?}");
    assert!(long.err.contains("failover_delay"), "{long:?}");
    // A lease that no option sets is as short as it has to be.
    let words = ["run", "--failover-delay", "5s", "x", "--", "true"];
    let usual = stage.run(&words);
    assert_eq!(usual.code, 0, "{usual:?}");
}

#[test]
fn a_file_supports_neither_delay_nor_acks() {
    let stage = Stage::sqlite();
    for (option, value) in [("--acks", "1"), ("--failover-delay", LONG)] {
        let refused = stage.run(&["run", option, value, "x", "--", "true"]);
        assert_eq!(refused.code, 64, "{refused:?}");
        assert!(
            refused.err.contains("not supported for `sqlite:`"),
            "{refused:?}"
        );
    }
}
