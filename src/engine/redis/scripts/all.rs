//! Several locks in one script: made of the very texts that take each of them alone, and give it back.

use std::borrow::Cow;
use std::sync::OnceLock;

use super::words::Words;
use super::{Keys, Script, places, set, write_keys};
use crate::engine::Before;
use crate::protocol::{Action, Kind, Request};

/// One for each set of kinds: a server makes all of a script's functions anew each time it is run.
static SCRIPTS: [OnceLock<Script>; 1 << Kind::ALL.len()] =
    [const { OnceLock::new() }; 1 << Kind::ALL.len()];

/// The script that takes locks of these kinds.
pub(super) fn script(requests: &[Request]) -> &'static Script {
    let kinds = requests.iter().map(|request| number(request.subject.kind));
    let kinds = kinds.fold(0, |kinds, number| kinds | (1 << number));
    SCRIPTS[kinds].get_or_init(|| compose(requests))
}

/// Its keys and arguments.
pub(super) fn write(requests: &[Request], before: Before, keys: &Keys, words: &mut Words) {
    let undo: Vec<_> = requests.iter().map(give_back).collect();
    let pairs = || {
        requests
            .iter()
            .zip(&undo)
            .flat_map(|(take, undo)| [take, undo])
    };
    words.number(pairs().map(|request| places(request).len()).sum::<usize>());
    for request in pairs() {
        write_keys(request, keys, words);
    }
    let mut shape = Vec::new();
    for request in pairs() {
        let first = words.count();
        set(request.subject.kind).args(request, keys, words);
        shape.push((places(request).len(), words.count() - first));
    }
    for (pair, request) in shape.chunks_exact(2).zip(requests) {
        words.number(number(request.subject.kind));
        for (keys, args) in pair {
            words.number(*keys);
            words.number(*args);
        }
    }
    words.number(u32::from(before == Before::Kept));
    words.number(requests.len());
}

/// Takes back what a request has just been granted.
fn give_back(request: &Request) -> Request {
    let Action::Acquire { owner, .. } = request.action else {
        unreachable!("nothing but locks is taken");
    };
    request.subject.request(Action::Release { owner, left: 0 })
}

fn compose(requests: &[Request]) -> Script {
    let mut text = String::from("local take, give_back = {}, {}\n");
    for kind in Kind::ALL {
        let Some(take) = requests.iter().find(|request| request.subject.kind == kind) else {
            continue;
        };
        let number = number(kind);
        let undo = give_back(take);
        for (table, request) in [("take", take), ("give_back", &undo)] {
            let body = &set(kind).script(&request.action).as_written();
            text += &format!("{table}['{number}'] = function(KEYS, ARGV, redis)\n{body}\nend\n");
        }
    }
    text += include_str!("../lua/all.lua");
    Script::new(Cow::Owned(text))
}

fn number(kind: Kind) -> usize {
    let place = Kind::ALL.iter().position(|one| *one == kind);
    place.unwrap_or_default()
}
