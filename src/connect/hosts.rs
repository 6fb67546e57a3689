//! Urls with several hosts, `scheme://user:password@h1:1,h2:2/path`, which the url crate does not
//! parse.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use url::Url;

/// A url and the hosts that were taken out of it.
#[derive(Debug)]
pub(super) struct Hosts<'a> {
    /// The url with the first host alone, so that the url crate parses the rest of it.
    pub(super) url: Url,
    /// The hosts as they are written.
    pub(super) text: &'a str,
    /// Each host with its port, if it has one.
    pub(super) all: Vec<(String, Option<u16>)>,
}

impl<'a> Hosts<'a> {
    /// Parses a url. An error says what is wrong, and never contains a part of the url.
    pub(super) fn parse(url: &'a str) -> Result<Self, url::ParseError> {
        let relative = url::ParseError::RelativeUrlWithoutBase;
        let (scheme, behind) = url.split_once("://").ok_or(relative)?;
        let end = behind.find(['/', '?', '#']).unwrap_or(behind.len());
        let (authority, rest) = behind.split_at(end);
        // As in the url crate, the last `@` ends the password.
        let (login, text) = match authority.rsplit_once('@') {
            Some((login, text)) => (Some(login), text),
            None => (None, authority),
        };
        let mut all = Vec::new();
        for host in text.split(',') {
            // One url for each host, so that the url crate handles brackets, ports and invalid
            // characters.
            let alone = Url::parse(&format!("{scheme}://{host}/"))?;
            let empty = url::ParseError::EmptyHost;
            let name = alone
                .host_str()
                .filter(|name| !name.is_empty())
                .ok_or(empty)?;
            let name = name.trim_start_matches('[').trim_end_matches(']');
            let name: Cow<'_, str> = percent_decode_str(name)
                .decode_utf8()
                .map_err(|_| url::ParseError::InvalidDomainCharacter)?;
            all.push((name.into_owned(), alone.port()));
        }
        let first = text.split(',').next().unwrap_or(text);
        let login = login.map(|login| format!("{login}@")).unwrap_or_default();
        let url = Url::parse(&format!("{scheme}://{login}{first}{rest}"))?;
        Ok(Self { url, text, all })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(url: &str) -> Vec<(String, Option<u16>)> {
        Hosts::parse(url).expect(url).all
    }

    fn named(hosts: &[(&str, Option<u16>)]) -> Vec<(String, Option<u16>)> {
        let hosts = hosts.iter();
        hosts
            .map(|(host, port)| ((*host).to_owned(), *port))
            .collect()
    }

    #[test]
    fn every_host_has_its_own_port_or_none() {
        for (url, expected) in [
            ("s://a", named(&[("a", None)])),
            (
                "s://a:1,b:2,c/m/0",
                named(&[("a", Some(1)), ("b", Some(2)), ("c", None)]),
            ),
            (
                "s://[::1]:1,[fe80::2]/m",
                named(&[("::1", Some(1)), ("fe80::2", None)]),
            ),
            (
                "s://u:p@a:1,b/m?x=y,z@w",
                named(&[("a", Some(1)), ("b", None)]),
            ),
            ("s://u,v:p,q@a,b", named(&[("a", None), ("b", None)])),
            (
                "s://10.0.0.1:26379,redis.example.com",
                named(&[("10.0.0.1", Some(26379)), ("redis.example.com", None)]),
            ),
            ("s://a%2Db", named(&[("a-b", None)])),
        ] {
            assert_eq!(hosts(url), expected, "{url}");
        }
    }

    #[test]
    fn the_rest_of_the_url_is_unchanged() {
        let hosts = Hosts::parse("s://u%40:p%2Cq@a:1,b:2/my%20master/3?x=1").expect("it is one");
        assert_eq!(hosts.text, "a:1,b:2");
        assert_eq!(hosts.url.as_str(), "s://u%40:p%2Cq@a:1/my%20master/3?x=1");
    }

    #[test]
    fn malformed_host_lists_are_rejected() {
        for url in [
            "s:a,b",
            "a,b",
            "s://",
            "s://,",
            "s://a,",
            "s://,a",
            "s://a,,b",
            "s://a:x,b",
            "s://a:1:2",
            "s://a:99999,b",
            "s://[::1,b",
            "s://::1,b",
            "s://a b,c",
            "s:///m/0",
            "s://u:p@/m",
            "s://a%FF",
        ] {
            assert!(Hosts::parse(url).is_err(), "{url}");
        }
    }
}
