//! Several requests in one script: made of the very texts that carry them out one by one.

use std::borrow::Cow;
use std::sync::LazyLock;

use super::{Script, mutex};
use crate::protocol::{Kind, Request};

/// A script that may be run for one of the requests in a batch.
pub(super) struct Passenger {
    pub(super) script: &'static LazyLock<Script>,
    pub(super) keys: usize,
    /// For each argument the value it always has in a batch; none if it comes with the request.
    pub(super) args: &'static [Option<&'static str>],
}

/// What every item uses is found once.
const HEAD: &str = "local KEYS, ARGV, redis, pcall, type = KEYS, ARGV, redis, pcall, type\n";

/// In a batch they are told by their place in this list, counted from 1.
static PASSENGERS: &[Passenger] = &mutex::PASSENGERS;

/// The passengers as functions, and what calls them one after the other. Where each finds its keys and
/// arguments is written into its text: tables of its own would cost the server more than batches save.
static BATCH: LazyLock<Script> = LazyLock::new(|| {
    let mut text = String::from(HEAD);
    text += "local scripts = {\n";
    for (place, passenger) in PASSENGERS.iter().enumerate() {
        let mut body = passenger.script.text.replace("KEYS[", "KEYS[k + ");
        let mut args = 0;
        for (number, value) in (1..).zip(passenger.args) {
            let here = match value {
                Some(value) => format!("'{value}'"),
                None => {
                    args += 1;
                    format!("ARGV[a + {args}]")
                }
            };
            body = body.replace(&format!("ARGV[{number}]"), &here);
        }
        let (number, keys) = (place + 1, passenger.keys);
        text += &format!("['{number}'] = {{function(k, a)\n{body}\nend, {keys}, {args}}},\n");
    }
    text += "}\n";
    text += include_str!("../lua/batch.lua");
    Script::new(Cow::Owned(text))
});

pub(super) fn script() -> &'static Script {
    &BATCH
}

/// Its number in a batch and the arguments it need not bring along; none if it has to go alone.
pub(super) fn passenger(request: &Request) -> Option<(usize, &'static [Option<&'static str>])> {
    let place = match request.subject.kind {
        Kind::Mutex => mutex::passenger(&request.action),
    }?;
    Some((place + 1, PASSENGERS[place].args))
}
