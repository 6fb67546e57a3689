//! Which part of a cluster a key belongs to, by the rule that servers go by.

/// One of a cluster's parts, which are handed from server to server as a whole.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct Slot(pub(super) u16);

/// How many there are.
pub(super) const SLOTS: usize = 16384;

impl Slot {
    /// That of a key or channel.
    pub(crate) fn of(key: &str) -> Self {
        Self(crc16(tag(key).as_bytes()) % 16384)
    }

    /// What a key may have between braces to be in it: the first number that is.
    pub(crate) fn tag(self) -> String {
        // One in sixteen thousand is.
        let numbers = (0_u32..).map(|number| number.to_string());
        let mut tags = numbers.filter(|tag| Self::of(tag) == self);
        tags.next().unwrap_or_default()
    }

    pub(super) fn number(self) -> usize {
        self.0.into()
    }
}

/// The part of a key that counts: what is between its first brace and the first one that closes after it, if that is
/// anything.
fn tag(key: &str) -> &str {
    let tag = key.split_once('{').and_then(|(_, behind)| {
        let (tag, _) = behind.split_once('}')?;
        Some(tag)
    });
    tag.filter(|tag| !tag.is_empty()).unwrap_or(key)
}

/// CRC-16/XMODEM. Names are short: a table would save nothing.
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

    /// As `CLUSTER KEYSLOT` of a real server says; the first is from the specification.
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
