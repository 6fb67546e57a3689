//! The owners of a thread, one per client for which it has requested one.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use super::worker::Worker;
use crate::Owner;

/// Returns this thread's owner for the client with this worker; the first call makes a `new` one.
pub(super) fn of_this_thread(worker: &Arc<Worker>, new: impl FnOnce() -> Owner) -> Owner {
    OWNERS.with_borrow_mut(|owners| {
        // As long as such a weak reference exists, no other worker can have the same address.
        let known = |(of, _): &&(Weak<Worker>, Owner)| of.as_ptr() == Arc::as_ptr(worker);
        if let Some((_, owner)) = owners.iter().find(known) {
            return owner.clone();
        }
        // A thread may outlive any number of clients.
        owners.retain(|(of, _)| of.strong_count() > 0);
        let owner = new();
        owners.push((Arc::downgrade(worker), owner.clone()));
        owner
    })
}

thread_local! {
    /// The list stays short: one entry per client in use.
    static OWNERS: RefCell<Vec<(Weak<Worker>, Owner)>> = RefCell::default();
}

#[cfg(test)]
mod tests {
    use super::OWNERS;
    use crate::blocking::Client;

    #[test]
    fn owners_of_dropped_clients_do_not_accumulate() {
        let kept = Client::connect("memory:").expect("memory is always there");
        let mine = kept.thread_owner();
        for _ in 0..10 {
            let client = Client::connect("memory:").expect("memory is always there");
            assert_ne!(client.thread_owner(), mine);
        }
        assert_eq!(OWNERS.with_borrow(Vec::len), 2, "the first and the last");
        assert_eq!(kept.thread_owner(), mine);
    }
}
