//! The keys of other programs, each made by the commands that those programs send.

mod caches;
mod kinds;
mod modules;
mod nearly;
mod queues;
mod side;

/// One key of the corpus.
pub(crate) struct Shape {
    /// The program that the key belongs to, or a description of its content.
    pub(crate) what: &'static str,
    pub(crate) key: &'static str,
    /// The commands in the syntax of `redis-cli`.
    commands: &'static [&'static str],
}

/// The key that has the format of permits. Beside a number it is taken for permits: the two cannot be distinguished.
pub(crate) const LIKE_PERMITS: &str = "{traces}:timeout";

/// Returns all keys of the corpus.
pub(crate) fn shapes() -> impl Iterator<Item = &'static Shape> {
    [
        queues::SHAPES,
        caches::SHAPES,
        kinds::SHAPES,
        modules::SHAPES,
        nearly::SHAPES,
        side::SHAPES,
    ]
    .into_iter()
    .flatten()
}

impl Shape {
    pub(crate) fn commands(&self) -> impl Iterator<Item = redis::Cmd> {
        self.commands.iter().map(|text| {
            let mut command = redis::Cmd::new();
            command.arg(words(text));
            command
        })
    }

    /// Returns the names of the locks that have this key: the key itself, and the lock that keeps it beside its own.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        let beside = AUXILIARY_KEYS.iter().find_map(|prefix| {
            let name = self.key.strip_prefix(prefix)?;
            name.strip_prefix('{')?.strip_suffix('}')
        });
        let permits = || {
            let name = self.key.strip_suffix(":timeout")?;
            let braced = name
                .strip_prefix('{')
                .and_then(|name| name.strip_suffix('}'));
            braced.or(name.contains('{').then_some(name))
        };
        let mut names = vec![self.key];
        names.extend(beside.or_else(permits));
        names
    }
}

/// Returns the words of a command: between spaces, in single quotes as they are, in double quotes with `\xff` and `\"`.
fn words(text: &str) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut rest = text.chars().peekable();
    while let Some(first) = rest.next() {
        let mut word = Vec::new();
        let mut push = |c: char| word.extend(c.to_string().into_bytes());
        match first {
            ' ' | '\n' => continue,
            '\'' => rest.by_ref().take_while(|c| *c != '\'').for_each(push),
            '"' => {
                while let Some(c) = rest.next().filter(|c| *c != '"') {
                    match (c, c == '\\') {
                        (_, true) => match rest.next().expect("something is escaped") {
                            'x' => {
                                let byte: String = rest.by_ref().take(2).collect();
                                word.push(u8::from_str_radix(&byte, 16).expect("two digits"));
                            }
                            other => word.extend(other.to_string().into_bytes()),
                        },
                        _ => word.extend(c.to_string().into_bytes()),
                    }
                }
            }
            first => {
                push(first);
                while let Some(c) = rest.next_if(|c| !c.is_whitespace()) {
                    push(c);
                }
            }
        }
        words.push(word);
    }
    words
}

/// The prefixes of the keys that a lock keeps beside its own.
const AUXILIARY_KEYS: [&str; 8] = [
    "redisson_lock_queue:",
    "redisson_lock_timeout:",
    "redisson_lock_token:",
    "distlock_undone:",
    "distlock_alive:",
    "distlock_writers:",
    "distlock_line:",
    "distlock_clients:",
];

#[test]
fn the_corpus_has_more_than_150_shapes_and_every_type() {
    let shapes: Vec<_> = shapes().collect();
    let keys: std::collections::HashSet<_> = shapes.iter().map(|shape| shape.key).collect();
    assert_eq!(keys.len(), shapes.len(), "two shapes have one key");
    assert!(keys.len() > 150, "only {} shapes", keys.len());
    let commands: String = shapes
        .iter()
        .flat_map(|shape| shape.commands)
        .copied()
        .collect();
    for command in [
        "SET ",
        "HSET ",
        "RPUSH ",
        "SADD ",
        "ZADD ",
        "XADD ",
        "PFADD ",
        "GEOADD ",
        "SETBIT ",
        "FOREIGN.SET ",
    ] {
        assert!(commands.contains(command), "nothing is made by {command}");
    }
    let beside = shapes.iter().filter(|shape| shape.names().len() > 1);
    assert!(beside.count() >= 20, "few are keys beside a lock's own");
}
