//! The fencing tokens a client has seen.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::protocol::{FencingToken, Kind};

/// The greatest of them: should a store forget what it gave, it is told, and goes on from there.
#[derive(Debug, Default)]
pub(super) struct Tokens(AtomicU64);

impl Tokens {
    /// What to tell a store that is asked for a lock of this kind.
    pub(super) fn seen(&self, kind: Kind) -> Option<FencingToken> {
        if !kind.is_fenced() {
            return None;
        }
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            seen => Some(FencingToken::new(seen)),
        }
    }

    /// A grant has this token.
    pub(super) fn note(&self, token: Option<FencingToken>) {
        if let Some(token) = token {
            self.0.fetch_max(token.number(), Ordering::Relaxed);
        }
    }
}
