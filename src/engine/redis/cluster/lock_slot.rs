//! The hash slot of a lock, if all of its keys share one.

use crate::engine::redis::keys::Keys;
use crate::engine::redis::slot::Slot;
use crate::engine::{StoreError, StoreErrorKind};
use crate::protocol::Channel;

/// Returns the slot of all keys and of the channel of a lock. A script or a sharded message cannot cross slots, so that a name
/// whose keys are in several slots is an error.
pub(super) fn slot(keys: &Keys, channel: &Channel) -> Result<Slot, StoreError> {
    let name = channel.name();
    let slot = slot_of_key(keys, name);
    let others = [
        // Redisson builds the token key and the channel by its own rule, distlock the tombstone key by the servers' hash tag
        // rule.
        keys.token(name).to_string(),
        keys.tombstones(name).to_string(),
        keys.channel_text(channel),
    ];
    if others.iter().all(|key| Slot::of(key) == slot) {
        return Ok(slot);
    }
    let why = match channel {
        Channel::Latch(_) if name.contains('{') => LATCH_BRACES,
        _ => LOCK_BRACES,
    };
    Err(StoreError::new(StoreErrorKind::InvalidName, why))
}

/// Returns the slot of the lock's own key, for callers that know, or need not know, that the other keys share it.
pub(super) fn slot_of_key(keys: &Keys, name: &str) -> Slot {
    Slot::of(&keys.lock(name).to_string())
}

const LOCK_BRACES: &str = "in a cluster, all keys of a lock must be in one slot; braces in its name must be a pair \
                           with text between them, as in `{order}:42`";
const LATCH_BRACES: &str = "in a cluster, the name of a latch must not contain braces, because Redisson's channel for \
                            it would be in another slot";

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::engine::redis::pubsub_mode::PubSubMode;

    fn is_possible(prefix: &str, name: &str, channel: fn(Arc<str>) -> Channel) -> bool {
        let keys = Keys::new(prefix.into(), PubSubMode::Sharded);
        slot(&keys, &channel(name.into())).is_ok()
    }

    #[test]
    fn a_name_without_braces_or_with_a_pair_of_them_is_in_one_slot() {
        for (name, possible) in [
            ("order", true),
            ("{order}:42", true),
            ("order:{42}", true),
            ("a{b}c{d}", true),
            ("foo{bar", false),
            ("foo}bar", false),
            ("{}order", false),
            ("a}b{c}", true),
        ] {
            assert_eq!(is_possible("", name, Channel::Lock), possible, "{name}");
            let shared = is_possible("", name, Channel::ReadWrite);
            assert_eq!(shared, possible, "{name}");
            let permits = is_possible("", name, Channel::Semaphore);
            assert_eq!(permits, possible, "{name}");
        }
        assert!(is_possible("app:{x}:", "order", Channel::Lock));
        assert!(!is_possible("app}", "order", Channel::Lock));
    }

    #[test]
    fn latch_name_with_braces_is_rejected() {
        for (name, possible) in [("start", true), ("{start}", false), ("a{b}c", false)] {
            assert_eq!(is_possible("", name, Channel::Latch), possible, "{name}");
        }
    }
}
