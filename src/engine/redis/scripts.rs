//! Requests as script calls, and script results as replies: a module for each primitive.

use std::borrow::Cow;
use std::sync::LazyLock;

use redis::{Cmd, Value};

use super::keys::Keys;
use crate::engine::Failure;
use crate::protocol::{Action, Kind, Reply, Request};

mod mutex;

/// The scripts whose calls may travel together, with the number of their keys and arguments. A call names
/// them by their place in this list, counted from 1.
static TRAVELLERS: [(&LazyLock<Script>, usize, usize); 3] = mutex::TRAVELLERS;

/// All of them as functions, and what calls them one after the other: the very same texts, whose `KEYS`
/// and `ARGV` are then parameters.
static BATCH: LazyLock<Script> = LazyLock::new(|| {
    let mut text = String::from("local scripts = {\n");
    for (script, keys, args) in TRAVELLERS {
        let body = &script.text;
        text += &format!("{{function(KEYS, ARGV)\n{body}\nend, {keys}, {args}}},\n");
    }
    text += "}\n";
    text += include_str!("lua/batch.lua");
    Script::new(Cow::Owned(text))
});

/// A script and the hash the server knows it by.
#[derive(Debug)]
pub(crate) struct Script {
    text: Cow<'static, str>,
    hash: String,
}

impl Script {
    fn new(text: Cow<'static, str>) -> Self {
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Self { text, hash }
    }
}

/// One script with its keys and arguments.
#[derive(Debug)]
pub(crate) struct Call {
    script: &'static Script,
    keys: Vec<String>,
    args: Vec<String>,
}

impl Call {
    /// The call that carries out one request.
    pub(crate) fn new(request: &Request, keys: &Keys) -> Self {
        match request.subject.kind {
            Kind::Mutex => mutex::call(&request.subject, &request.action, keys),
        }
    }

    /// One call that renews many holds of this kind.
    pub(crate) fn renew_all(kind: Kind, requests: &[Request], keys: &Keys) -> Self {
        match kind {
            Kind::Mutex => mutex::renew_all(requests, keys),
        }
    }

    /// Many calls in one, each with its own answer in the same order.
    pub(crate) fn batch(calls: &[&Self]) -> Self {
        let mut keys = Vec::with_capacity(2 * calls.len());
        let mut args = Vec::with_capacity(5 * calls.len());
        for call in calls {
            let number = call.traveller().map_or(0, |place| place + 1);
            args.push(number.to_string());
            args.extend_from_slice(&call.args);
            keys.extend_from_slice(&call.keys);
        }
        Self {
            script: &BATCH,
            keys,
            args,
        }
    }

    /// Whether it may go out together with others.
    pub(crate) fn may_travel(&self) -> bool {
        self.traveller().is_some()
    }

    /// Whether a lock may be free after it.
    pub(crate) fn gives_back(&self) -> bool {
        !mutex::takes(self.script)
    }

    fn traveller(&self) -> Option<usize> {
        let mut travellers = TRAVELLERS.iter();
        travellers.position(|(script, ..)| std::ptr::eq(self.script, &***script))
    }

    /// By hash: a few bytes, once the server knows the script.
    pub(crate) fn by_hash(&self) -> Cmd {
        self.command("EVALSHA", &self.script.hash)
    }

    /// By text: for a server that does not know it yet, or no longer.
    pub(crate) fn by_text(&self) -> Cmd {
        self.command("EVAL", &self.script.text)
    }

    fn command(&self, word: &str, script: &str) -> Cmd {
        let mut cmd = redis::cmd(word);
        cmd.arg(script).arg(self.keys.len());
        for key in &self.keys {
            cmd.arg(key);
        }
        for arg in &self.args {
            cmd.arg(arg);
        }
        cmd
    }
}

/// What a script's result means for this request.
pub(crate) fn reply(request: &Request, result: Value) -> Result<Reply, Failure> {
    match request.subject.kind {
        Kind::Mutex => mutex::reply(&request.action, result),
    }
}

/// With which others it can be renewed in one call, if it is a renewal.
pub(crate) const fn renewal(request: &Request) -> Option<Kind> {
    match request.action {
        Action::Renew { .. } => Some(request.subject.kind),
        Action::Acquire { .. }
        | Action::ForceRelease
        | Action::Inspect
        | Action::Pass { .. }
        | Action::Release { .. }
        | Action::Undo { .. } => None,
    }
}

/// What one line of the result of [`Call::renew_all`] means.
pub(crate) fn renewed(kind: Kind, answer: Value) -> Result<Reply, Failure> {
    match kind {
        Kind::Mutex => mutex::renewal(answer),
    }
}
