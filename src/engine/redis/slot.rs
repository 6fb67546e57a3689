//! Hash slots of a cluster: the slot of a key, by the rule of the servers.

/// One of a cluster's slots, which move from server to server as a whole.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct Slot(pub(super) u16);

/// Number of slots.
pub(super) const SLOTS: usize = 16384;

impl Slot {
    /// Returns the slot of a key or channel.
    pub(crate) fn of(key: &str) -> Self {
        Self(crc16(tag(key).as_bytes()) % 16384)
    }

    /// Returns a hash tag for keys in this slot: the first number that is in it.
    pub(crate) fn tag(self) -> String {
        // One number in about sixteen thousand is in the slot.
        let numbers = (0_u32..).map(|number| number.to_string());
        let mut tags = numbers.filter(|tag| Self::of(tag) == self);
        tags.next().unwrap_or_default()
    }

    pub(super) fn number(self) -> usize {
        self.0.into()
    }
}

/// Returns the part of a key that determines its slot: the text between its first brace and the first closing brace
/// after it, if it is not empty; otherwise the whole key.
fn tag(key: &str) -> &str {
    let tag = key.split_once('{').and_then(|(_, behind)| {
        let (tag, _) = behind.split_once('}')?;
        Some(tag)
    });
    tag.filter(|tag| !tag.is_empty()).unwrap_or(key)
}

/// Computes CRC-16/XMODEM. Names are short: a table would save nothing.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The slots are those of `CLUSTER KEYSLOT` on a real server; the first value is from the specification.
    #[test]
    fn slots_match_the_cluster_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        for (key, slot) in [
            ("foo", 12182),
            ("{user1000}.following", 3443),
            ("foo{}{bar}", 8363),
            ("foo{{bar}}zap", 4015),
            ("foo{bar}{zap}", 5061),
            ("bar", 5061),
            ("", 0),
        ] {
            assert_eq!(Slot::of(key), Slot(slot), "{key}");
        }
    }
}
