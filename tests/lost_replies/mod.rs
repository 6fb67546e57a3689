//! Requests and replies that are lost, late, doubled or cut off: afterwards the count in Redis is what the guards report, and no hold
//! without a guard is left, not even for one lease.
//!
//! The sweep ([`sweep`]) plays small stories ([`stories`], [`story_steps`]) over a simulated network that does one thing wrong ([`rules`]) to
//! each request, or to each command of it where there are no scripts, and checks after every step ([`case`]). Faults at moments that no
//! story has are in [`reentries`] and [`corners`]. Numbers without an owner are in [`numbers`]; several locks and several servers are in
//! [`multi`] and [`quorum`].

mod case;
mod corners;
mod losses;
mod multi;
mod numbers;
mod quorum;
mod reentries;
pub(crate) mod rules;
mod server;
mod stories;
mod story_steps;
mod sweep;
pub(crate) mod tokens;

use std::thread::panicking;
use std::time::Duration;

/// Upper bound for any wait, reached only by a failure; far shorter than [`LEASE`].
const PATIENCE: Duration = Duration::from_secs(60);
/// The time for which an orphaned hold would be visible.
const LEASE: Duration = Duration::from_secs(180);
/// Upper bound for a request and its reply.
pub(crate) const COMMAND_TIMEOUT: Duration = Duration::from_millis(300);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);

/// The name of a case, printed if the case panics.
struct Label(String);

impl Drop for Label {
    fn drop(&mut self) {
        if panicking() {
            eprintln!("in this case: {}", self.0);
        }
    }
}
