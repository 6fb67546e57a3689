//! The work of a worker process, by role.

use super::support::process::{orders, runtime};
use super::{counted, counter, forked, killed, permits, several, stopped};

/// Runs the role on a runtime like that of any program.
pub(crate) fn run(role: &str) {
    let orders = orders();
    let runtime = runtime();
    match role {
        killed::ROLE => runtime.block_on(killed::hold(orders)),
        killed::CROWD => runtime.block_on(killed::spin()),
        counted::ROLE => runtime.block_on(counted::spin()),
        permits::ROLE => runtime.block_on(permits::spin()),
        stopped::ROLE => runtime.block_on(stopped::watch()),
        counter::LOCKED => runtime.block_on(counter::count(orders, true)),
        counter::UNLOCKED => runtime.block_on(counter::count(orders, false)),
        forked::ROLE => forked::fork(runtime, &orders),
        forked::PENDING => forked::fork_pending(&orders),
        forked::CROWD => forked::fork_in_a_crowd(&orders),
        forked::BLOCKING => forked::fork_blocking(&orders),
        _ if role.starts_with(several::ROLE) => runtime.block_on(several::play(role, orders)),
        _ => panic!("no such role: `{role}`"),
    }
}
