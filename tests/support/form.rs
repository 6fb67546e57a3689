//! The forms of a script: as it is written, and as it tells those who wait in a cluster. The only place in the tests that
//! knows them.

/// How those who wait are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// As it is written: whoever listens, wherever.
    Plain,
    /// Those who listen at the lock's own server.
    Sharded,
    /// The ones and the others.
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

    /// What a server knows it by.
    pub(crate) fn hash(self, written: &str) -> String {
        ::redis::Script::new(&self.of(written))
            .get_hash()
            .to_owned()
    }
}
