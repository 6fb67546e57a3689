//! Where servers are by the word of those that tell of them: where the proxies are.

use std::net::SocketAddr;

/// Ports of servers, and of the proxy before each.
pub(super) struct Places(Vec<[Vec<u8>; 2]>);

impl Places {
    /// A server alone is not told of.
    pub(super) fn new(servers: &[SocketAddr], doors: &[SocketAddr]) -> Self {
        if servers.len() == 1 {
            return Self(Vec::new());
        }
        let pairs = servers.iter().zip(doors);
        let pairs = pairs.map(|(server, door)| {
            let pair = [server, door].map(|place| place.port().to_string().into_bytes());
            // So that nothing else in a frame has to change.
            assert_eq!(pair[0].len(), pair[1].len(), "ports of five digits");
            pair
        });
        Self(pairs.collect())
    }

    /// Makes of what a server says of others what a client is to hear. Whatever names no host tells of no server.
    pub(super) fn translate(&self, frame: &mut [u8]) {
        let named = |frame: &[u8]| frame.windows(HOST.len()).any(|found| found == HOST);
        if self.0.is_empty() || !named(frame) {
            return;
        }
        for [server, door] in &self.0 {
            let length = server.len();
            for at in 0..frame.len().saturating_sub(length) {
                // Not in the middle of an id.
                let alone = |index: Option<usize>| {
                    let beside = index.and_then(|index| frame.get(index));
                    !beside.is_some_and(u8::is_ascii_alphanumeric)
                };
                let found = frame[at..at + length] == **server
                    && alone(at.checked_sub(1))
                    && alone(Some(at + length));
                if found {
                    frame[at..at + length].copy_from_slice(door);
                }
            }
        }
    }
}

const HOST: &[u8] = b"127.0.0.1";
