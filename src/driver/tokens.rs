//! The fencing tokens that a client has seen, for each lock's name.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::engine::tokens::wall_clock_token;
use crate::protocol::{FencingToken, Subject};

/// Maximum number of names in one part of the cache.
const MAX_NAMES: usize = 4_096;

/// How far a token may be ahead of this machine's wall clock and still be remembered: clocks of servers differ, but not
/// by this much.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(24 * 60 * 60);

/// The greatest token of each name. Requests contain it, so that a store that has lost its counter continues from
/// there.
///
/// Tokens are kept for each name, so that a counter that was changed by hand spoils its own lock and no other. A token
/// that no wall clock can have given is not remembered: once its counter is repaired in the store, no client brings it
/// back. Names that have not been used for long are forgotten, which loses little: the store has its own counter, and
/// its wall clock if it has lost that.
#[derive(Debug, Default)]
pub(super) struct Tokens(Mutex<TwoPartCache>);

/// A cache of two parts, recent and older names: a name that is used moves to the recent ones, and when these are full,
/// the older ones are dropped and the recent ones take their place.
#[derive(Debug, Default)]
struct TwoPartCache {
    recent: HashMap<Arc<str>, FencingToken>,
    older: HashMap<Arc<str>, FencingToken>,
}

impl Tokens {
    /// Returns the token to send to the store with a request for this lock.
    pub(super) fn seen(&self, subject: &Subject) -> Option<FencingToken> {
        if !subject.kind.is_fenced() {
            return None;
        }
        self.lock().get(&subject.name)
    }

    /// Notes the token of a grant of this lock.
    pub(super) fn note(&self, subject: &Subject, token: Option<FencingToken>) {
        if let Some(token) = token {
            self.note_at(&subject.name, token, wall_clock_token());
        }
    }

    fn note_at(&self, name: &Arc<str>, token: FencingToken, today: FencingToken) {
        let margin = u64::try_from(MAX_CLOCK_SKEW.as_micros()).unwrap_or(u64::MAX);
        if token.number() <= today.number().saturating_add(margin) {
            self.lock().raise(name, token);
        }
    }

    fn lock(&self) -> MutexGuard<'_, TwoPartCache> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TwoPartCache {
    fn get(&mut self, name: &Arc<str>) -> Option<FencingToken> {
        if let Some(token) = self.recent.get(name) {
            return Some(*token);
        }
        let (name, token) = self.older.remove_entry(name)?;
        self.insert(name, token);
        Some(token)
    }

    fn raise(&mut self, name: &Arc<str>, token: FencingToken) {
        let token = self.get(name).map_or(token, |seen| seen.max(token));
        self.insert(name.clone(), token);
    }

    fn insert(&mut self, name: Arc<str>, token: FencingToken) {
        if self.recent.len() >= MAX_NAMES && !self.recent.contains_key(&name) {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert(name, token);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Kind;

    const TODAY: FencingToken = FencingToken::new(1_795_000_000_000_000);

    fn seen(tokens: &Tokens, name: &str) -> Option<u64> {
        let seen = tokens.seen(&Subject::new(Kind::Fenced, name));
        seen.map(FencingToken::number)
    }

    fn note(tokens: &Tokens, name: &str, token: u64) {
        tokens.note_at(&name.into(), FencingToken::new(token), TODAY);
    }

    #[test]
    fn the_greatest_token_of_each_name_is_remembered() {
        let tokens = Tokens::default();
        note(&tokens, "a", 7);
        note(&tokens, "a", 5);
        note(&tokens, "b", 3);
        assert_eq!((seen(&tokens, "a"), seen(&tokens, "b")), (Some(7), Some(3)));
        assert_eq!(seen(&tokens, "c"), None);
        assert_eq!(tokens.seen(&Subject::new(Kind::Mutex, "a")), None);
    }

    #[test]
    fn a_token_too_far_in_the_future_is_not_remembered() {
        let tokens = Tokens::default();
        let day = 24 * 60 * 60 * 1_000_000;
        note(&tokens, "a", TODAY.number() + day);
        note(&tokens, "a", TODAY.number() + day + 1);
        note(&tokens, "b", FencingToken::LAST.number());
        assert_eq!(seen(&tokens, "a"), Some(TODAY.number() + day));
        assert_eq!(seen(&tokens, "b"), None);
    }

    #[test]
    fn names_in_use_are_kept_and_others_evicted() {
        let tokens = Tokens::default();
        note(&tokens, "used", 1);
        note(&tokens, "unused", 1);
        for number in 0..3 * MAX_NAMES {
            note(&tokens, &format!("passing {number}"), 1);
            assert_eq!(seen(&tokens, "used"), Some(1));
        }
        assert_eq!(seen(&tokens, "unused"), None);
        let names = tokens.lock();
        assert!(names.recent.len() <= MAX_NAMES && names.older.len() <= MAX_NAMES);
    }
}
