//! What a request is made of where there are no scripts: commands that read, and then, if there is something to write,
//! a transaction. The only place in the tests that knows how they follow each other.

use std::collections::HashMap;

use super::{Match, Words};

/// One of the commands that a client sends about a lock.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    pub(crate) word: String,
    /// Which of those with this word, counted from 1.
    pub(crate) nth: u64,
    /// Which request it is a part of, counted from 0.
    pub(crate) request: usize,
    /// Whether it is a part of a transaction.
    pub(crate) writes: bool,
}

impl Command {
    /// All of them, in what was sent.
    pub(crate) fn all(sent: &[Words], name: &str) -> Vec<Self> {
        let mut counts: HashMap<&str, u64> = HashMap::new();
        let (mut begun, mut writes) = (0, false);
        let commands = sent.iter().filter(|words| is_about(name, words));
        // The end of a request before them, which was given up, may stand before the first.
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

    /// Whether these are the words of such a command, though perhaps not of this one.
    pub(crate) fn is_one(&self, name: &str, words: &[impl AsRef<[u8]>]) -> bool {
        is_about(name, words) && words[0].as_ref() == self.word.as_bytes()
    }

    /// Selects it, if the rule is added before any of them is sent.
    pub(crate) fn select(&self, name: &str) -> Match {
        let (command, name) = (self.clone(), name.to_owned());
        Match::words(move |words| command.is_one(&name, words)).nth(self.nth)
    }
}

/// The acquire, as `<owner>#<attempt>`, that was the last request on a connection, if it was one.
pub(crate) fn last_acquire(sent: &[Words]) -> Option<&str> {
    let begun = sent.iter().rposition(|words| words[0] == FIRST)?;
    let asked = sent[begun..].iter().find(|words| words[0] == "ZSCORE");
    asked.map(|words| words[2].as_str())
}

/// Whether it is a part of a request about this lock, and not something else that a client has to say.
fn is_about(name: &str, words: &[impl AsRef<[u8]>]) -> bool {
    let text = |word: &_| String::from_utf8_lossy(AsRef::<[u8]>::as_ref(word)).into_owned();
    let mut words = words.iter().map(text);
    let Some(command) = words.next() else {
        return false;
    };
    let named = words.any(|word| word.contains(name));
    WITHOUT_A_KEY.contains(&command.as_str()) || named && !command.ends_with("SUBSCRIBE")
}

/// A request begins with it.
const FIRST: &str = "UNWATCH";
const WITHOUT_A_KEY: [&str; 4] = ["EXEC", "MULTI", "TIME", FIRST];
