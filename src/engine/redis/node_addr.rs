//! Addresses of servers: host and port.

use std::fmt;

/// Host and port of a server, as another party names it: the host may be a name, and one that not every machine can
/// resolve.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct NodeAddr {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl NodeAddr {
    /// Converts the hosts of an address.
    pub(crate) fn from_hosts(hosts: &[(String, u16)]) -> Vec<Self> {
        let hosts = hosts.iter();
        hosts
            .map(|(host, port)| Self {
                host: host.clone(),
                port: *port,
            })
            .collect()
    }

    /// Joins the hosts of an address into one text, which is equal for all clients that mean the same servers.
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

/// Writes an IPv6 address in brackets.
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
