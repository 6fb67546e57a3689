//! The translation of addresses in replies: the address of a server becomes that of its proxy.

use std::net::SocketAddr;

/// The ports of each server and of the proxy in front of it.
pub(super) struct PortMap(Vec<[Vec<u8>; 2]>);

impl PortMap {
    /// Makes the translation for these servers; no reply names the address of a single server.
    pub(super) fn new(servers: &[SocketAddr], proxies: &[SocketAddr]) -> Self {
        if servers.len() == 1 {
            return Self(Vec::new());
        }
        let pairs = servers.iter().zip(proxies);
        let pairs = pairs.map(|(server, proxy)| {
            let pair = [server, proxy].map(|place| place.port().to_string().into_bytes());
            // Equal lengths, so that nothing else in a frame has to change.
            assert_eq!(pair[0].len(), pair[1].len(), "ports of five digits");
            pair
        });
        Self(pairs.collect())
    }

    /// Replaces the servers' ports in a frame by the proxies'. A frame without a host names no server.
    pub(super) fn translate(&self, frame: &mut [u8]) {
        let named = |frame: &[u8]| frame.windows(HOST.len()).any(|found| found == HOST);
        if self.0.is_empty() || !named(frame) {
            return;
        }
        for [server, proxy] in &self.0 {
            let length = server.len();
            for at in 0..frame.len().saturating_sub(length) {
                // A port in the middle of an id is not a port.
                let alone = |index: Option<usize>| {
                    let beside = index.and_then(|index| frame.get(index));
                    !beside.is_some_and(u8::is_ascii_alphanumeric)
                };
                let found = frame[at..at + length] == **server
                    && alone(at.checked_sub(1))
                    && alone(Some(at + length));
                if found {
                    frame[at..at + length].copy_from_slice(proxy);
                }
            }
        }
    }
}

const HOST: &[u8] = b"127.0.0.1";
