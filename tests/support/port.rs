//! Ports that belong to one test for as long as it needs them, even while no server listens on them.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};

#[cfg(target_os = "linux")]
use std::os::{
    linux::net::SocketAddrExt,
    unix::net::{SocketAddr, UnixListener},
};

/// A port that no other test uses while this value lives.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    /// An abstract socket name that only one process has at a time, without a file that could stay behind.
    #[cfg(target_os = "linux")]
    _claim: UnixListener,
}

impl Port {
    /// Claims a port below the ephemeral range: while a server is down, no outgoing connection may borrow its port, nor a
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

    /// Claims a port; `None` if another test of this process or another one has it.
    #[cfg(target_os = "linux")]
    pub(crate) fn claim(number: u16) -> Option<Self> {
        let name = SocketAddr::from_abstract_name(format!("distlock-test-port-{number}"));
        let claim = UnixListener::bind_addr(&name.expect("it is short"));
        claim.ok().map(|_claim| Self { number, _claim })
    }

    /// Claims a port without a check: other systems have no such names, and two tests may use one port.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn claim(number: u16) -> Option<Self> {
        Some(Self { number })
    }
}

const FIRST: u16 = 16_384;
/// The first port that Linux assigns by itself.
const EPHEMERAL: u16 = 32_768;
