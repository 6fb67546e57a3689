//! What Redisson calls the keys and channels of a lock, said once more and independently of ours.

/// Where a key's release is announced.
pub(crate) fn channel(key: &str) -> String {
    named_after("redisson_lock__channel:", key)
}

/// Where it is announced that permits have come back.
pub(crate) fn semaphore_channel(key: &str) -> String {
    named_after("redisson_sc:", key)
}

/// Where a latch says that it is open: its name in braces, also if it has some.
pub(crate) fn latch_channel(key: &str) -> String {
    format!("redisson_countdownlatch__channel__{{{key}}}")
}

/// Redisson's key for the permits of a semaphore that are out.
pub(crate) fn permits_out(key: &str) -> String {
    format!("{}:timeout", named_after("", key))
}

/// Where a read/write lock's is.
pub(crate) fn rw_channel(key: &str) -> String {
    named_after("redisson_rwlock:", key)
}

/// Redisson's key for one of a reader's holds: as long as it is there, so is the hold.
pub(crate) fn reader_key(key: &str, owner: &str, number: u32) -> String {
    format!("{}:{owner}:rwlock_timeout:{number}", named_after("", key))
}

/// Where the last token of a fenced lock is.
pub(crate) fn counter(key: &str) -> String {
    named_after(COUNTERS, key)
}

/// Redisson's brace rule.
pub(super) fn named_after(what: &str, key: &str) -> String {
    if key.contains('{') {
        format!("{what}{key}")
    } else {
        format!("{what}{{{key}}}")
    }
}

pub(super) const COUNTERS: &str = "redisson_lock_token:";
