//! Rules: which requests a fault applies to, and what happens to them.

use std::time::Duration;

use super::super::batch::{apart, is_batch};

/// A fault of an exchange.
///
/// Faults that act on replies do nothing to `SUBSCRIBE` and its relatives, whose confirmations are not replies, nor on a
/// RESP2 connection after it has subscribed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The server executes the request; the connection is closed instead of forwarding the reply.
    CutAfter,
    /// The connection is closed, and the server never receives the request, nor later ones of this connection.
    CutBefore,
    /// The reply and those behind it arrive later.
    DelayReply(Duration),
    /// The request and those behind it arrive later.
    DelayRequest(Duration),
    /// The server receives the request twice in a row; only the first reply is forwarded.
    DuplicateRequest,
    /// The reply and those behind it wait for [`deliver_held`](super::ChaosProxy::deliver_held).
    HoldReply,
    /// The request and those behind it wait for [`deliver_held`](super::ChaosProxy::deliver_held).
    HoldRequest,
    /// The server executes the request; the reply is dropped and those behind it are not.
    ///
    /// No TCP connection behaves like that, and a client that matches replies by their order takes the next reply for this
    /// one. If the connection is used again, use [`HoldReply`](Self::HoldReply), a fault that can happen.
    SwallowReply,
}

/// A selection of requests by their words, or by the words of any call of a batch.
pub(crate) struct Match {
    selects: Selects,
    nth: Option<u64>,
}

impl Match {
    pub(crate) fn any() -> Self {
        Self::words(|_| true)
    }

    /// Selects the requests whose words satisfy the closure. It runs on the proxy's thread and must not call the proxy.
    pub(crate) fn words(selects: impl Fn(&[Vec<u8>]) -> bool + Send + Sync + 'static) -> Self {
        Self {
            selects: Box::new(selects),
            nth: None,
        }
    }

    /// Selects requests with this first word, in upper or lower case.
    pub(crate) fn command(name: &str) -> Self {
        let name = name.to_owned();
        Self::words(move |words| is_command(words, &name))
    }

    /// Selects runs of one of these scripts, each given by its hash or its text.
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

    /// Narrows the selection to requests with this word at this index; the command's name is at 0.
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

    /// Narrows the selection to the `nth` request after the rule was added, counted from 1 over all connections.
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
    /// The number of the request's connection.
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

    /// Counts the request if it is selected, and returns the fault if it applies to this one.
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

/// Returns the calls of a batch, each as if it had been sent alone.
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

/// Returns a word as text for people: scripts are cut short.
fn shown(word: &[u8]) -> String {
    let text = String::from_utf8_lossy(word);
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into_owned(),
    }
}

type Selects = Box<dyn Fn(&[Vec<u8>]) -> bool + Send + Sync>;

/// Enough for a hash, a uuid or a key.
const SHOWN: usize = 64;
