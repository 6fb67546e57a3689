//! The commands of a request without scripts: reads, followed by a transaction if there is something to write. This is the
//! only file of the tests that knows their order.

use std::collections::HashMap;

use super::{Match, Words};

/// One of the commands that a client sends about a lock.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    pub(crate) word: String,
    /// The number of this command among those with the same word, counted from 1.
    pub(crate) nth: u64,
    /// The index of its request, counted from 0.
    pub(crate) request: usize,
    /// Whether it is a part of a transaction.
    pub(crate) writes: bool,
}

impl Command {
    /// Returns all commands about a lock, in the order in which they were sent.
    pub(crate) fn all(sent: &[Words], name: &str) -> Vec<Self> {
        let mut counts: HashMap<&str, u64> = HashMap::new();
        let (mut begun, mut writes) = (0, false);
        let commands = sent.iter().filter(|words| is_about(name, words));
        // The list may start in the middle of an abandoned request: skip the rest of that request.
        let commands = commands.skip_while(|words| words[0] != FIRST);
        let commands = commands.map(|words| {
            let word = words[0].as_str();
            begun += usize::from(word == FIRST);
            writes = word == "MULTI" || writes && word != FIRST;
            let nth = counts.entry(word).or_default();
            *nth += 1;
            Self {
                word: word.to_owned(),
                nth: *nth,
                request: begun - 1,
                writes,
            }
        });
        commands.collect()
    }

    /// Returns whether these words are the same kind of command about the lock, though perhaps not this very one.
    pub(crate) fn is_one(&self, name: &str, words: &[impl AsRef<[u8]>]) -> bool {
        is_about(name, words) && words[0].as_ref() == self.word.as_bytes()
    }

    /// Selects this command, if the rule is added before any of them is sent.
    pub(crate) fn select(&self, name: &str) -> Match {
        let (command, name) = (self.clone(), name.to_owned());
        Match::words(move |words| command.is_one(&name, words)).nth(self.nth)
    }
}

/// Returns the acquire, as `<owner>#<attempt>`, if it was the last request on a connection.
pub(crate) fn last_acquire(sent: &[Words]) -> Option<&str> {
    let begun = sent.iter().rposition(|words| words[0] == FIRST)?;
    let asked = sent[begun..].iter().find(|words| words[0] == "ZSCORE");
    asked.map(|words| words[2].as_str())
}

/// Returns whether a command belongs to a request about this lock: a client also sends other commands.
fn is_about(name: &str, words: &[impl AsRef<[u8]>]) -> bool {
    let text = |word: &_| String::from_utf8_lossy(AsRef::<[u8]>::as_ref(word)).into_owned();
    let mut words = words.iter().map(text);
    let Some(command) = words.next() else {
        return false;
    };
    let named = words.any(|word| word.contains(name));
    WITHOUT_A_KEY.contains(&command.as_str()) || named && !command.ends_with("SUBSCRIBE")
}

/// The first command of every request.
const FIRST: &str = "UNWATCH";
const WITHOUT_A_KEY: [&str; 4] = ["EXEC", "MULTI", "TIME", FIRST];
