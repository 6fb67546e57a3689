//! The slots that a server of a cluster claims for itself. Pure.

use crate::engine::redis::slot::Slot;

/// Returns the first slot of the server that has sent this `CLUSTER NODES` reply. A slot that is being migrated away is
/// skipped: a new key in it belongs on the target already.
pub(super) fn first_owned_slot(nodes: &str) -> Option<Slot> {
    let lines = nodes.lines().map(|line| line.split(' '));
    let mut own = lines.filter(|line| {
        let flags = line.clone().nth(2).unwrap_or_default();
        flags.split(',').any(|flag| flag == "myself")
    });
    let words: Vec<&str> = own.next()?.skip(8).collect();
    let leaving = |slot: u16| {
        let begin = format!("[{slot}->-");
        words.iter().any(|word| word.starts_with(&begin))
    };
    let ranges = words.iter().filter_map(|word| {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        Some(first.parse().ok()?..=last.parse().ok()?)
    });
    let slot = ranges.flatten().find(|slot| !leaving(*slot))?;
    Some(Slot(slot))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_slot_not_migrating_is_found() {
        for (own, first) in [
            ("0-5460", Some(0)),
            ("17 20-30", Some(17)),
            ("0-5460 [0->-abc] [1->-abc]", Some(2)),
            ("3 7 [3->-abc] [9000-<-def]", Some(7)),
            ("3 [3->-abc]", None),
            ("", None),
        ] {
            let nodes = format!(
                "abc 127.0.0.1:1@10001 master - 0 1 2 connected 10000-16383\n\
                 def 127.0.0.1:2@10002,host myself,master - 0 0 1 connected {own}\n"
            );
            assert_eq!(first_owned_slot(&nodes), first.map(Slot), "{own}");
        }
        assert_eq!(first_owned_slot("nonsense\n"), None);
    }

    #[test]
    fn hash_tag_hashes_to_its_slot() {
        for slot in [0, 1, 5461, 16383] {
            let key = format!("billing:distlock_promoted:{{{}}}", Slot(slot).tag());
            assert_eq!(Slot::of(&key), Slot(slot));
        }
    }
}
