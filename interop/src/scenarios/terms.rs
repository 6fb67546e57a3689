//! The terms of scenarios that are not played on the usual ones.

use std::time::Duration;

use crate::party::Kind;
use crate::site::Mode;
use crate::stage::Settings;

/// A lease that expires in a scenario, and is renewed in good time on a busy machine: every two seconds.
pub(super) const SHORT: Settings = Settings {
    watchdog: Duration::from_secs(6),
    ..Settings::DEFAULT
};

pub(super) const PREFIXED: Settings = Settings {
    prefix: "team-7:",
    ..Settings::DEFAULT
};

pub(super) const COUNTING: Settings = Settings {
    kind: Kind::Counting,
    ..Settings::DEFAULT
};

pub(super) const COUNTING_PREFIXED: Settings = Settings {
    kind: Kind::Counting,
    ..PREFIXED
};

pub(super) const FAIR: Settings = Settings {
    kind: Kind::Fair,
    ..Settings::DEFAULT
};

pub(super) const FAIR_SHORT: Settings = Settings {
    kind: Kind::Fair,
    fair_wait: Duration::from_secs(6),
    ..SHORT
};

pub(super) const FAIR_PREFIXED: Settings = Settings {
    kind: Kind::Fair,
    ..PREFIXED
};

pub(super) const FENCED: Settings = Settings {
    kind: Kind::Fenced,
    ..Settings::DEFAULT
};

pub(super) const FENCED_PREFIXED: Settings = Settings {
    kind: Kind::Fenced,
    ..PREFIXED
};

pub(super) const LATCH: Settings = Settings {
    kind: Kind::Latch,
    ..Settings::DEFAULT
};

pub(super) const LATCH_PREFIXED: Settings = Settings {
    kind: Kind::Latch,
    ..PREFIXED
};

pub(super) const MULTI: Settings = Settings {
    kind: Kind::Multi,
    ..Settings::DEFAULT
};

pub(super) const MULTI_SHORT: Settings = Settings {
    kind: Kind::Multi,
    ..SHORT
};

pub(super) const PERMIT: Settings = Settings {
    kind: Kind::Permit,
    ..Settings::DEFAULT
};

pub(super) const PERMIT_SHORT: Settings = Settings {
    kind: Kind::Permit,
    ..SHORT
};

pub(super) const PERMIT_PREFIXED: Settings = Settings {
    kind: Kind::Permit,
    ..PREFIXED
};

pub(super) const RW: Settings = Settings {
    kind: Kind::Write,
    ..Settings::DEFAULT
};

pub(super) const RW_SHORT: Settings = Settings {
    kind: Kind::Write,
    ..SHORT
};

/// Settings for the versions whose transactions lock whole maps: 4.7 does, 3.13 does not.
pub(super) const RW_TRANSACTION: Settings = Settings {
    since: [4, 7],
    ..RW
};

pub(super) const RW_PREFIXED: Settings = Settings {
    kind: Kind::Write,
    ..PREFIXED
};

pub(super) const CLUSTER: Settings = Settings {
    mode: Mode::Cluster,
    ..Settings::DEFAULT
};

pub(super) const CLUSTER_SHORT: Settings = Settings {
    watchdog: SENTINEL_SHORT.watchdog,
    ..CLUSTER
};

pub(super) const SENTINEL: Settings = Settings {
    mode: Mode::Sentinel,
    ..Settings::DEFAULT
};

/// Leases that outlive a failover, and are soon renewed.
pub(super) const SENTINEL_SHORT: Settings = Settings {
    watchdog: Duration::from_secs(30),
    ..SENTINEL
};
