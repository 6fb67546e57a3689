//! Where a server is.

use std::fmt;

/// Where a server is, in another's own words: perhaps a name, and perhaps one that only some can resolve.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct NodeAddr {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl NodeAddr {
    /// Those of an address.
    pub(crate) fn from_hosts(hosts: &[(String, u16)]) -> Vec<Self> {
        let hosts = hosts.iter();
        hosts
            .map(|(host, port)| Self {
                host: host.clone(),
                port: *port,
            })
            .collect()
    }

    /// What those of an address are called together: the same text for everybody who means the same.
    pub(crate) fn join_sorted(hosts: &[(String, u16)]) -> String {
        let mut all = Self::from_hosts(hosts);
        for addr in &mut all {
            addr.host.make_ascii_lowercase();
        }
        let mut all: Vec<String> = all.iter().map(Self::to_string).collect();
        all.sort();
        all.dedup();
        all.join(",")
    }
}

/// IPv6 in brackets.
impl fmt::Display for NodeAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') {
            return write!(f, "[{host}]:{port}");
        }
        write!(f, "{host}:{port}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv6_address_is_displayed_in_brackets() {
        for (host, written) in [("::1", "[::1]:26379"), ("h", "h:26379")] {
            let (host, port) = (host.to_owned(), 26379);
            assert_eq!(NodeAddr { host, port }.to_string(), written);
        }
    }
}
