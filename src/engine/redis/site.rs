//! Where a server is.

use std::fmt;

/// Where a server is, in another's own words: perhaps a name, and perhaps one that only some can resolve.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct Site {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Site {
    /// Those of an address.
    pub(crate) fn all(hosts: &[(String, u16)]) -> Vec<Self> {
        let hosts = hosts.iter();
        hosts
            .map(|(host, port)| Self {
                host: host.clone(),
                port: *port,
            })
            .collect()
    }

    /// What those of an address are called together: the same text for everybody who means the same.
    pub(crate) fn together(hosts: &[(String, u16)]) -> String {
        let mut all = Self::all(hosts);
        for site in &mut all {
            site.host.make_ascii_lowercase();
        }
        let mut all: Vec<String> = all.iter().map(Self::to_string).collect();
        all.sort();
        all.dedup();
        all.join(",")
    }
}

/// IPv6 in brackets.
impl fmt::Display for Site {
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
    fn an_address_is_written_as_one_types_it() {
        for (host, written) in [("::1", "[::1]:26379"), ("h", "h:26379")] {
            let (host, port) = (host.to_owned(), 26379);
            assert_eq!(Site { host, port }.to_string(), written);
        }
    }
}
