//! The text of a script, and the hash the server knows it by.

use std::borrow::Cow;
use std::sync::OnceLock;

use crate::engine::redis::manner::Manner;

/// A script, in as many forms as there are ways to tell those who wait. It is written in the plain one.
#[derive(Debug)]
pub(crate) struct Script {
    plain: Form,
    sharded: OnceLock<Form>,
    both: OnceLock<Form>,
}

#[derive(Debug)]
struct Form {
    text: Cow<'static, str>,
    hash: String,
}

impl Form {
    fn new(text: Cow<'static, str>) -> Self {
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Self { text, hash }
    }
}

impl Script {
    pub(super) fn new(text: Cow<'static, str>) -> Self {
        #[cfg(distlock_planted)]
        let text = crate::planted::script(text);
        Self {
            plain: Form::new(text),
            sharded: OnceLock::new(),
            both: OnceLock::new(),
        }
    }

    /// As it is written.
    pub(super) fn as_written(&self) -> &str {
        &self.plain.text
    }

    pub(super) fn text(&self, manner: Manner) -> &str {
        &self.form(manner).text
    }

    pub(super) fn hash(&self, manner: Manner) -> &str {
        &self.form(manner).hash
    }

    fn form(&self, manner: Manner) -> &Form {
        let written = &self.plain.text;
        match manner {
            Manner::Plain => &self.plain,
            Manner::Sharded => self
                .sharded
                .get_or_init(|| Form::new(written.replace("'PUBLISH'", "'SPUBLISH'").into())),
            Manner::Both => self.both.get_or_init(|| {
                let both = include_str!("../lua/both.lua");
                Form::new(format!("{both}{written}").into())
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_tells_those_who_wait_in_every_manner() {
        let written = "return redis.call('PUBLISH', ARGV[1], '0')";
        let script = Script::new(Cow::Borrowed(written));
        assert_eq!(script.text(Manner::Plain), written);
        let sharded = "return redis.call('SPUBLISH', ARGV[1], '0')";
        assert_eq!(script.text(Manner::Sharded), sharded);
        assert!(script.text(Manner::Both).ends_with(written));
        let manners = [Manner::Plain, Manner::Sharded, Manner::Both];
        let hashes = manners.map(|manner| script.hash(manner).to_owned());
        assert!(hashes[0] != hashes[1] && hashes[1] != hashes[2] && hashes[2] != hashes[0]);
    }
}
