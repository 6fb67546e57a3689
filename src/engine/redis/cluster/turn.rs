//! Where a call goes that a server of a cluster has sent away. Pure.

use super::chart;
use crate::engine::redis::failure;
use crate::engine::redis::site::Site;
use crate::engine::{Cause, Failure};

/// Where to, and how. Nothing has been done.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Turn {
    /// There, this once: the slot is on its way, and what was asked for has gone ahead.
    Ask(Site),
    /// To whoever has it a little later.
    Later,
    /// There, from now on.
    Moved(Site),
}

impl Turn {
    /// What follows from the failure of a call to the server at `asked`; nothing if it is the call's own.
    pub(super) fn of(failure: &Failure, asked: &Site) -> Option<Self> {
        if failure.cause == Cause::Unready
            && let Some((word, site)) = redirection(&failure.detail, asked)
        {
            return Some(match word {
                "ASK" => Self::Ask(site),
                _ => Self::Moved(site),
            });
        }
        failure::is_of_a_failover(failure).then_some(Self::Later)
    }
}

/// `MOVED 3999 127.0.0.1:6381`
fn redirection<'a>(said: &'a str, asked: &Site) -> Option<(&'a str, Site)> {
    let mut words = said.split(' ');
    let word = words
        .next()
        .filter(|word| failure::REDIRECTS.contains(word))?;
    let _slot: u16 = words.next()?.parse().ok()?;
    let (host, port) = words.next()?.rsplit_once(':')?;
    Some((word, chart::site(asked, host, port.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_taken_at_their_word() {
        let asked = Site {
            host: "h".into(),
            port: 1,
        };
        let at = |host: &str, port| Site {
            host: host.into(),
            port,
        };
        for (cause, said, turn) in [
            (
                Cause::Unready,
                "MOVED 3999 127.0.0.1:6381",
                Some(Turn::Moved(at("127.0.0.1", 6381))),
            ),
            (
                Cause::Unready,
                "ASK 0 ::1:6381",
                Some(Turn::Ask(at("::1", 6381))),
            ),
            (Cause::Unready, "MOVED 5 :7", Some(Turn::Moved(at("h", 7)))),
            (Cause::Unready, "MOVED 5 ?:7", Some(Turn::Moved(at("h", 7)))),
            (Cause::Unready, "MOVED five h:7", Some(Turn::Later)),
            (
                Cause::Unready,
                "TRYAGAIN Multiple keys request during rehashing of slot",
                Some(Turn::Later),
            ),
            (
                Cause::Unready,
                "CLUSTERDOWN The cluster is down",
                Some(Turn::Later),
            ),
            (Cause::Unreachable, "Connection refused", Some(Turn::Later)),
            (Cause::Unready, "BUSY Redis is busy running a script", None),
            (Cause::Interrupted, "MOVED 5 h:7", None),
            (Cause::WrongKind, "MOVED 5 h:7", None),
        ] {
            let failure = Failure::new(cause, said);
            assert_eq!(Turn::of(&failure, &asked), turn, "{said}");
        }
    }
}
