//! Hash slots, and the mapping from keys to slots.

/// The number of hash slots of every cluster.
pub const SLOTS: u16 = 16384;

/// Returns the hash slot of a key: of the part between its first `{` and the next `}`, if there is any.
pub fn slot_of(key: impl AsRef<[u8]>) -> u16 {
    let key = key.as_ref();
    crc16(hash_tag(key).unwrap_or(key)) % SLOTS
}

fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let open = key.iter().position(|&byte| byte == b'{')?;
    let behind = &key[open + 1..];
    let close = behind.iter().position(|&byte| byte == b'}')?;
    (close > 0).then(|| &behind[..close])
}

/// Computes CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, &byte| {
        let place = usize::from(crc >> 8) ^ usize::from(byte);
        (crc << 8) ^ TABLE[place]
    })
}

static TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut place = 0;
    while place < 256 {
        let mut crc = (place as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            };
            bit += 1;
        }
        table[place] = crc;
        place += 1;
    }
    table
};

/// Returns sorted slots as ranges of their first and their last.
pub(crate) fn ranges(slots: impl IntoIterator<Item = u16>) -> Vec<(u16, u16)> {
    let mut found: Vec<(u16, u16)> = Vec::new();
    for slot in slots {
        match found.last_mut() {
            Some((_, last)) if *last + 1 == slot => *last = slot,
            _ => found.push((slot, slot)),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_in_the_slot_that_real_servers_compute() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        let cases = [
            ("foo", 12182),
            ("{user1000}.following", 3443),
            ("foo{}{bar}", 8363),
            ("foo{{bar}}zap", 4015),
            ("foo{bar}{zap}", 5061),
            ("", 0),
        ];
        for (key, slot) in cases {
            assert_eq!(slot_of(key), slot, "{key}");
        }
    }

    #[test]
    fn adjacent_slots_are_one_range() {
        assert_eq!(ranges([0, 1, 2, 5, 7, 8]), [(0, 2), (5, 5), (7, 8)]);
    }
}
