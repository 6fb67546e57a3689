//! Where fencing tokens come from in a store that has one counter for all its locks.

use crate::protocol::{FencingToken, Request};

/// The token of the next grant, after this one was the last of the store.
///
/// At least the microseconds of the calendar: a store that has forgotten all it gave, or a new one in its place, goes on
/// with greater ones.
pub(super) fn next_token(request: &Request, last: Option<FencingToken>) -> FencingToken {
    // The calendar is not read for locks that have none.
    if !request.subject.kind.is_fenced() {
        return FencingToken::new(0);
    }
    let today = wall_clock_token();
    last.map_or(today, |last| last.next().max(today))
}

/// The token that the calendar of this machine gives: microseconds since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "the calendar is what goes on where nothing is remembered"
)]
pub fn wall_clock_token() -> FencingToken {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let micros = since.map_or(0, |since| since.as_micros());
    FencingToken::new(u64::try_from(micros).unwrap_or(0))
}
