//! The forms of a script: its text as written, and the texts that notify waiters in a cluster. This is the only file of the
//! tests that knows them.

/// How a script notifies waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The text as written: `PUBLISH`, for subscribers at any server.
    Plain,
    /// `SPUBLISH`, for subscribers at the lock's own server.
    Sharded,
    /// Both commands.
    Both,
}

impl Form {
    pub(crate) const ALL: [Self; 3] = [Self::Plain, Self::Sharded, Self::Both];

    pub(crate) fn of(self, written: &str) -> String {
        match self {
            Self::Plain => written.to_owned(),
            Self::Sharded => written.replace("'PUBLISH'", "'SPUBLISH'"),
            Self::Both => {
                let both = include_str!("../../src/engine/redis/lua/both.lua");
                format!("{both}{written}")
            }
        }
    }

    /// Returns the hash that a server knows the script by.
    pub(crate) fn hash(self, written: &str) -> String {
        ::redis::Script::new(&self.of(written))
            .get_hash()
            .to_owned()
    }
}
