//! Rules: which request is meant, and what becomes of it.

use std::time::Duration;

use super::super::batch::{apart, is_batch};

/// What goes wrong with an exchange.
///
/// Those that act on replies do nothing to `SUBSCRIBE` and its relatives, whose confirmations are
/// not replies, nor on a RESP2 connection after it has subscribed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The server executes the request; the connection is closed instead of forwarding the reply.
    CutAfter,
    /// The connection is closed and the server never hears of the request, nor of those behind it.
    CutBefore,
    /// The reply and those behind it arrive later.
    DelayReply(Duration),
    /// The request and those behind it arrive later.
    DelayRequest(Duration),
    /// The server gets the request twice in a row; only the first reply is forwarded.
    DuplicateRequest,
    /// The reply and those behind it wait for [`let_go`](super::ChaosProxy::let_go).
    HoldReply,
    /// The request and those behind it wait for [`let_go`](super::ChaosProxy::let_go).
    HoldRequest,
    /// The server executes the request; the reply vanishes and those behind it do not.
    ///
    /// No TCP connection does that, and a client that matches replies by their order takes the next
    /// reply for this one. Where the connection is used again, [`HoldReply`](Self::HoldReply) is
    /// the fault that can happen.
    SwallowReply,
}

/// Selects requests by their words, or by those of any of the calls that travel in them.
pub(crate) struct Match {
    selects: Selects,
    nth: Option<u64>,
}

impl Match {
    pub(crate) fn any() -> Self {
        Self::words(|_| true)
    }

    /// Requests whose words the closure likes. It runs on the proxy's thread and must not call the
    /// proxy.
    pub(crate) fn words(selects: impl Fn(&[Vec<u8>]) -> bool + Send + Sync + 'static) -> Self {
        Self {
            selects: Box::new(selects),
            nth: None,
        }
    }

    /// Requests with this first word, in upper or lower case.
    pub(crate) fn command(name: &str) -> Self {
        let name = name.to_owned();
        Self::words(move |words| is_command(words, &name))
    }

    /// Runs of one of these scripts, each given by its hash or its text.
    pub(crate) fn script(scripts: &[&str]) -> Self {
        let scripts: Vec<String> = scripts.iter().map(ToString::to_string).collect();
        Self::words(move |words| {
            ["EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO"]
                .iter()
                .any(|name| is_command(words, name))
                && words
                    .get(1)
                    .is_some_and(|script| scripts.iter().any(|wanted| wanted.as_bytes() == script))
        })
    }

    /// Only those of them with this word at this index; the command's name is at 0.
    pub(crate) fn arg(self, index: usize, word: &str) -> Self {
        let word = word.to_owned();
        let selects = self.selects;
        Self {
            selects: Box::new(move |words| {
                selects(words)
                    && words
                        .get(index)
                        .is_some_and(|found| found == word.as_bytes())
            }),
            nth: self.nth,
        }
    }

    /// Only the `nth` of them after the rule was added, counted from 1 over all connections.
    pub(crate) fn nth(self, nth: u64) -> Self {
        assert!(nth > 0, "requests are counted from 1");
        Self {
            nth: Some(nth),
            ..self
        }
    }

    fn selects(&self, words: &[Vec<u8>]) -> bool {
        (self.selects)(words) || travellers(words).iter().any(|call| (self.selects)(call))
    }
}

/// A fault that is to happen to a request.
pub(super) struct Injection {
    pub(super) fault: Fault,
    /// The number of the connection it comes by.
    pub(super) connection: u64,
    pub(super) text: String,
}

impl Injection {
    pub(super) fn new(fault: Fault, connection: u64, words: &[Vec<u8>]) -> Self {
        let words: Vec<String> = words.iter().map(|word| shown(word)).collect();
        Self {
            fault,
            connection,
            text: format!("{fault:?}: {}", words.join(" ")),
        }
    }
}

pub(super) struct Rule {
    when: Match,
    what: Fault,
    selected: u64,
}

impl Rule {
    pub(super) fn new(when: Match, what: Fault) -> Self {
        Self {
            when,
            what,
            selected: 0,
        }
    }

    /// Counts the request if it is selected, and gives the fault if it is the one.
    pub(super) fn fires(&mut self, words: &[Vec<u8>]) -> Option<Fault> {
        if !self.when.selects(words) {
            return None;
        }
        self.selected += 1;
        self.when
            .nth
            .is_none_or(|nth| nth == self.selected)
            .then_some(self.what)
    }
}

/// The calls that travel together in a request, each as if it had come alone.
fn travellers(words: &[Vec<u8>]) -> Vec<Vec<Vec<u8>>> {
    if !is_batch(words) {
        return Vec::new();
    }
    let text = |word: &Vec<u8>| String::from_utf8_lossy(word).into_owned();
    let calls = apart(words.iter().map(text).collect()).into_iter();
    let bytes = |call: Vec<String>| call.into_iter().map(String::into_bytes).collect();
    calls.map(bytes).collect()
}

fn is_command(words: &[Vec<u8>], name: &str) -> bool {
    words
        .first()
        .is_some_and(|word| word.eq_ignore_ascii_case(name.as_bytes()))
}

/// A word for people: scripts are cut short.
fn shown(word: &[u8]) -> String {
    let text = String::from_utf8_lossy(word);
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into_owned(),
    }
}

type Selects = Box<dyn Fn(&[Vec<u8>]) -> bool + Send + Sync>;

/// Long enough for a hash, a uuid or a key.
const SHOWN: usize = 64;
