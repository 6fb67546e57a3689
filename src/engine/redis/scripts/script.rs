//! The text of a script, and the hash by which the server knows it.

use std::borrow::Cow;
use std::sync::OnceLock;

use crate::engine::redis::pubsub_mode::PubSubMode;

/// A script, with one variant for each [`PubSubMode`]. Its file is the plain variant.
#[derive(Debug)]
pub(crate) struct Script {
    plain: ScriptVariant,
    sharded: OnceLock<ScriptVariant>,
    both: OnceLock<ScriptVariant>,
}

#[derive(Debug)]
struct ScriptVariant {
    text: Cow<'static, str>,
    hash: String,
}

impl ScriptVariant {
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
            plain: ScriptVariant::new(text),
            sharded: OnceLock::new(),
            both: OnceLock::new(),
        }
    }

    /// Returns the text of the file.
    pub(super) fn as_written(&self) -> &str {
        &self.plain.text
    }

    pub(super) fn text(&self, mode: PubSubMode) -> &str {
        &self.variant(mode).text
    }

    pub(super) fn hash(&self, mode: PubSubMode) -> &str {
        &self.variant(mode).hash
    }

    fn variant(&self, mode: PubSubMode) -> &ScriptVariant {
        let written = &self.plain.text;
        match mode {
            PubSubMode::Plain => &self.plain,
            PubSubMode::Sharded => self.sharded.get_or_init(|| {
                ScriptVariant::new(written.replace("'PUBLISH'", "'SPUBLISH'").into())
            }),
            PubSubMode::Both => self.both.get_or_init(|| {
                let both = include_str!("../lua/both.lua");
                ScriptVariant::new(format!("{both}{written}").into())
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_publishes_in_every_pubsub_mode() {
        let written = "return redis.call('PUBLISH', ARGV[1], '0')";
        let script = Script::new(Cow::Borrowed(written));
        assert_eq!(script.text(PubSubMode::Plain), written);
        let sharded = "return redis.call('SPUBLISH', ARGV[1], '0')";
        assert_eq!(script.text(PubSubMode::Sharded), sharded);
        assert!(script.text(PubSubMode::Both).ends_with(written));
        let modes = [PubSubMode::Plain, PubSubMode::Sharded, PubSubMode::Both];
        let hashes = modes.map(|mode| script.hash(mode).to_owned());
        assert!(hashes[0] != hashes[1] && hashes[1] != hashes[2] && hashes[2] != hashes[0]);
    }
}
