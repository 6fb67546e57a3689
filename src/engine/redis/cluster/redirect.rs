//! Redirects of calls in a cluster: where a call goes that a server has sent elsewhere. Pure.

use super::slot_map;
use crate::engine::redis::failure;
use crate::engine::redis::node_addr::NodeAddr;
use crate::engine::{StoreError, StoreErrorKind};

/// Where to send a call again that had no effect.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum NextAttempt {
    /// `ASK`: this call only goes to that server. The slot is being migrated, and the key has arrived there already.
    Ask(NodeAddr),
    /// The call is retried a little later, on the server that owns the slot then.
    Retry,
    /// `MOVED`: all calls for the slot go to that server from now on.
    Moved(NodeAddr),
}

impl NextAttempt {
    /// Returns how to repeat a call that failed on the server at `queried`, or `None` if the failure belongs to the call
    /// itself.
    pub(super) fn of(failure: &StoreError, queried: &NodeAddr) -> Option<Self> {
        if failure.kind == StoreErrorKind::NotReady
            && let Some((word, addr)) = redirection(&failure.detail, queried)
        {
            return Some(match word {
                "ASK" => Self::Ask(addr),
                _ => Self::Moved(addr),
            });
        }
        failure::is_safe_to_retry(failure).then_some(Self::Retry)
    }
}

/// Parses `MOVED 3999 127.0.0.1:6381`.
fn redirection<'a>(said: &'a str, queried: &NodeAddr) -> Option<(&'a str, NodeAddr)> {
    let mut words = said.split(' ');
    let word = words
        .next()
        .filter(|word| failure::REDIRECTS.contains(word))?;
    let _slot: u16 = words.next()?.parse().ok()?;
    let (host, port) = words.next()?.rsplit_once(':')?;
    Some((
        word,
        slot_map::resolve_addr(queried, host, port.parse().ok()?),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirections_are_parsed() {
        let asked = NodeAddr {
            host: "h".into(),
            port: 1,
        };
        let at = |host: &str, port| NodeAddr {
            host: host.into(),
            port,
        };
        for (cause, said, redirect) in [
            (
                StoreErrorKind::NotReady,
                "MOVED 3999 127.0.0.1:6381",
                Some(NextAttempt::Moved(at("127.0.0.1", 6381))),
            ),
            (
                StoreErrorKind::NotReady,
                "ASK 0 ::1:6381",
                Some(NextAttempt::Ask(at("::1", 6381))),
            ),
            (
                StoreErrorKind::NotReady,
                "MOVED 5 :7",
                Some(NextAttempt::Moved(at("h", 7))),
            ),
            (
                StoreErrorKind::NotReady,
                "MOVED 5 ?:7",
                Some(NextAttempt::Moved(at("h", 7))),
            ),
            (
                StoreErrorKind::NotReady,
                "MOVED five h:7",
                Some(NextAttempt::Retry),
            ),
            (
                StoreErrorKind::NotReady,
                "TRYAGAIN Multiple keys request during rehashing of slot",
                Some(NextAttempt::Retry),
            ),
            (
                StoreErrorKind::NotReady,
                "CLUSTERDOWN The cluster is down",
                Some(NextAttempt::Retry),
            ),
            (
                StoreErrorKind::Unreachable,
                "Connection refused",
                Some(NextAttempt::Retry),
            ),
            (
                StoreErrorKind::NotReady,
                "BUSY Redis is busy running a script",
                None,
            ),
            (StoreErrorKind::Interrupted, "MOVED 5 h:7", None),
            (StoreErrorKind::WrongKind, "MOVED 5 h:7", None),
        ] {
            let failure = StoreError::new(cause, said);
            assert_eq!(NextAttempt::of(&failure, &asked), redirect, "{said}");
        }
    }
}
