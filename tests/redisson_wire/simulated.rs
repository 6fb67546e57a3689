//! Redisson as a peer on the same server, in cases that depend on time: leases and waits of both sides, under simulated time.

use crate::support;

#[path = "fair/arithmetic.rs"]
mod arithmetic;
mod fair;
#[path = "fair/turns.rs"]
mod fair_turns;
#[path = "fair/mending.rs"]
mod mending;
mod rw_defects;
mod rw_peers;
mod rw_undone;
mod rw_writers;
mod stage;
mod timed;

use self::stage::*;
