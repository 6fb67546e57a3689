//! The terms of scenarios that are not played on the usual ones.

use std::time::Duration;

use crate::party::Kind;
use crate::site::Mode;
use crate::stage::Terms;

/// A lease that expires in a scenario, and is renewed in good time on a busy machine: every two seconds.
pub(super) const SHORT: Terms = Terms {
    watchdog: Duration::from_secs(6),
    ..Terms::DEFAULT
};

pub(super) const PREFIXED: Terms = Terms {
    prefix: "team-7:",
    ..Terms::DEFAULT
};

pub(super) const COUNTING: Terms = Terms {
    kind: Kind::Counting,
    ..Terms::DEFAULT
};

pub(super) const COUNTING_PREFIXED: Terms = Terms {
    kind: Kind::Counting,
    ..PREFIXED
};

pub(super) const FAIR: Terms = Terms {
    kind: Kind::Fair,
    ..Terms::DEFAULT
};

pub(super) const FAIR_SHORT: Terms = Terms {
    kind: Kind::Fair,
    fair_wait: Duration::from_secs(6),
    ..SHORT
};

pub(super) const FAIR_PREFIXED: Terms = Terms {
    kind: Kind::Fair,
    ..PREFIXED
};

pub(super) const FENCED: Terms = Terms {
    kind: Kind::Fenced,
    ..Terms::DEFAULT
};

pub(super) const FENCED_PREFIXED: Terms = Terms {
    kind: Kind::Fenced,
    ..PREFIXED
};

pub(super) const LATCH: Terms = Terms {
    kind: Kind::Latch,
    ..Terms::DEFAULT
};

pub(super) const LATCH_PREFIXED: Terms = Terms {
    kind: Kind::Latch,
    ..PREFIXED
};

pub(super) const MULTI: Terms = Terms {
    kind: Kind::Multi,
    ..Terms::DEFAULT
};

pub(super) const MULTI_SHORT: Terms = Terms {
    kind: Kind::Multi,
    ..SHORT
};

pub(super) const PERMIT: Terms = Terms {
    kind: Kind::Permit,
    ..Terms::DEFAULT
};

pub(super) const PERMIT_SHORT: Terms = Terms {
    kind: Kind::Permit,
    ..SHORT
};

pub(super) const PERMIT_PREFIXED: Terms = Terms {
    kind: Kind::Permit,
    ..PREFIXED
};

pub(super) const RW: Terms = Terms {
    kind: Kind::Write,
    ..Terms::DEFAULT
};

pub(super) const RW_SHORT: Terms = Terms {
    kind: Kind::Write,
    ..SHORT
};

/// Terms for the versions whose transactions lock whole maps: 4.7 does, 3.13 does not.
pub(super) const RW_TRANSACTION: Terms = Terms {
    since: [4, 7],
    ..RW
};

pub(super) const RW_PREFIXED: Terms = Terms {
    kind: Kind::Write,
    ..PREFIXED
};

pub(super) const CLUSTER: Terms = Terms {
    mode: Mode::Cluster,
    ..Terms::DEFAULT
};

pub(super) const CLUSTER_SHORT: Terms = Terms {
    watchdog: SENTINEL_SHORT.watchdog,
    ..CLUSTER
};

pub(super) const SENTINEL: Terms = Terms {
    mode: Mode::Sentinel,
    ..Terms::DEFAULT
};

/// Leases that outlive a failover, and are soon renewed.
pub(super) const SENTINEL_SHORT: Terms = Terms {
    watchdog: Duration::from_secs(30),
    ..SENTINEL
};
