//! Requests and replies that are lost, late, doubled or cut off: afterwards the count in Redis is what the guards say, and no
//! hold without a guard is left, not even for one lease.
//!
//! The sweep ([`sweep`]) plays small stories ([`stories`], [`tellings`]) over a simulated network that does one thing wrong
//! ([`rules`]) to each request, or to each command of it where there are no scripts, and checks after every step
//! ([`case`]). Faults at moments that no story has are in [`reentries`] and [`corners`]. What has no
//! owner is in [`numbers`]; several locks and several servers are in [`multi`] and [`quorum`].

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
mod sweep;
mod tellings;
pub(crate) mod tokens;

use std::thread::panicking;
use std::time::Duration;

/// Only a failure waits for it; far shorter than [`LEASE`].
const PATIENCE: Duration = Duration::from_secs(60);
/// A ghost would be seen for this long.
const LEASE: Duration = Duration::from_secs(180);
/// Longer than a request and its reply take at most.
pub(crate) const COMMAND_TIMEOUT: Duration = Duration::from_millis(300);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);

/// Prints which case it was that panicked.
struct Label(String);

impl Drop for Label {
    fn drop(&mut self) {
        if panicking() {
            eprintln!("in this case: {}", self.0);
        }
    }
}
