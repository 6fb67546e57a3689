//! Ports that are a test's own for as long as it likes, also while nobody listens on them.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};

#[cfg(target_os = "linux")]
use std::os::{
    linux::net::SocketAddrExt,
    unix::net::{SocketAddr, UnixListener},
};

/// A port that nobody listens on but who has this, and that no other test takes while it lives.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    /// A name that only one process has at a time, without a file that could stay behind.
    #[cfg(target_os = "linux")]
    _claim: UnixListener,
}

impl Port {
    /// One from below the ephemeral range: while a server is down, no outgoing connection may borrow its port, nor a
    /// reconnecting client connect to itself.
    pub(crate) fn take() -> Self {
        loop {
            let random = RandomState::new().hash_one(()) % u64::from(EPHEMERAL - FIRST);
            let number = FIRST + u16::try_from(random).expect("below a u16");
            if let Some(port) = Self::claim(number)
                && TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok()
            {
                return port;
            }
        }
    }

    pub(crate) const fn number(&self) -> u16 {
        self.number
    }

    /// None if another test has it, of this process or another.
    #[cfg(target_os = "linux")]
    pub(crate) fn claim(number: u16) -> Option<Self> {
        let name = SocketAddr::from_abstract_name(format!("distlock-test-port-{number}"));
        let claim = UnixListener::bind_addr(&name.expect("it is short"));
        claim.ok().map(|_claim| Self { number, _claim })
    }

    /// Elsewhere there are no such names, and two tests may take one port.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn claim(number: u16) -> Option<Self> {
        Some(Self { number })
    }
}

const FIRST: u16 = 16_384;
/// Where Linux begins to hand out ports by itself.
const EPHEMERAL: u16 = 32_768;
