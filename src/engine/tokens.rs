//! Fencing tokens of a store that has one counter for all its locks.

use crate::protocol::{FencingToken, Request};

/// Returns the token of the next grant, if `last` was the store's last one.
///
/// The token is at least the calendar's time in microseconds: a store that has lost its data, or a
/// new one in its place, continues with greater tokens.
pub(super) fn next_token(request: &Request, last: Option<FencingToken>) -> FencingToken {
    // The calendar is not read for locks without tokens.
    if !request.subject.kind.is_fenced() {
        return FencingToken::new(0);
    }
    let today = wall_clock_token();
    last.map_or(today, |last| last.next().max(today))
}

/// Returns the token of this machine's calendar: microseconds since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "the wall clock increases even if the store has lost its data"
)]
pub fn wall_clock_token() -> FencingToken {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let micros = since.map_or(0, |since| since.as_micros());
    FencingToken::new(u64::try_from(micros).unwrap_or(0))
}
