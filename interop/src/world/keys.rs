//! Redisson's names for the keys and channels of a lock, written a second time and independently of ours.

/// Returns the channel on which a key's release is announced.
pub(crate) fn channel(key: &str) -> String {
    named_after("redisson_lock__channel:", key)
}

/// Returns the channel on which released permits are announced.
pub(crate) fn semaphore_channel(key: &str) -> String {
    named_after("redisson_sc:", key)
}

/// Returns the channel on which a latch announces that it is open: its name in braces, even if the name has some.
pub(crate) fn latch_channel(key: &str) -> String {
    format!("redisson_countdownlatch__channel__{{{key}}}")
}

/// Returns Redisson's key for the permits of a semaphore that are in use.
pub(crate) fn permits_out(key: &str) -> String {
    format!("{}:timeout", named_after("", key))
}

/// Returns the channel of a read/write lock.
pub(crate) fn rw_channel(key: &str) -> String {
    named_after("redisson_rwlock:", key)
}

/// Returns Redisson's key for one of a reader's holds: the hold lasts as long as the key.
pub(crate) fn reader_key(key: &str, owner: &str, number: u32) -> String {
    format!("{}:{owner}:rwlock_timeout:{number}", named_after("", key))
}

/// Returns the key of a fenced lock's last token.
pub(crate) fn counter(key: &str) -> String {
    named_after(COUNTERS, key)
}

/// Applies Redisson's brace rule.
pub(super) fn named_after(what: &str, key: &str) -> String {
    if key.contains('{') {
        format!("{what}{key}")
    } else {
        format!("{what}{{{key}}}")
    }
}

pub(super) const COUNTERS: &str = "redisson_lock_token:";
