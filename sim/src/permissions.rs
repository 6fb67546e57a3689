//! The permissions of a user: commands, keys and channels.

use std::collections::BTreeMap;

use crate::arguments::text;
use crate::commands::table;
use crate::failure::Failure;
use crate::glob;

/// The part of a request that its user is not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    Command,
    Key,
    Channel,
}

impl Denied {
    /// Returns the error of a request.
    pub(crate) fn failure(self, command: &str) -> Failure {
        let what = match self {
            Self::Command => format!("run the '{command}' command"),
            Self::Key => "access one of the keys used as arguments".to_owned(),
            Self::Channel => "access one of the channels used as arguments".to_owned(),
        };
        Failure::coded(format!("NOPERM this user has no permissions to {what}"))
    }

    /// Returns the error of a command within a transaction that was allowed when it was queued.
    pub(crate) fn since_queued(self) -> Failure {
        let reason = match self {
            Self::Command => "no permission to execute the command or subcommand",
            Self::Key => "no permission to touch the specified keys",
            Self::Channel => "no permission to access one of the channels used as arguments",
        };
        Failure::coded(format!(
            "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. \
             This command is no longer allowed for the following reason: {reason}"
        ))
    }

    /// Returns the error of a command within a script, without its code.
    pub(crate) const fn in_script(self) -> &'static str {
        match self {
            Self::Command => "The user executing the script can't run this command or subcommand",
            Self::Key => {
                "The user executing the script can't access at least one of the keys mentioned in the command arguments"
            }
            Self::Channel => {
                "The user executing the script can't publish to the channel mentioned in the command"
            }
        }
    }
}

/// A pattern of keys, and the kind of access that it allows.
#[derive(Clone, Debug)]
pub(crate) struct KeyPattern {
    pub(crate) pattern: Vec<u8>,
    pub(crate) reads: bool,
    pub(crate) writes: bool,
}

/// The permissions of a user.
#[derive(Clone, Debug)]
pub(crate) struct Permissions {
    /// Whether each command is allowed, by its number.
    pub(crate) commands: Vec<bool>,
    /// The first arguments with which commands are allowed that otherwise are not.
    pub(crate) first_arguments: BTreeMap<usize, Vec<Vec<u8>>>,
    pub(crate) all_keys: bool,
    pub(crate) keys: Vec<KeyPattern>,
    pub(crate) all_channels: bool,
    pub(crate) channels: Vec<Vec<u8>>,
}

impl Permissions {
    pub(crate) fn none() -> Self {
        Self {
            commands: vec![false; table().commands.len()],
            first_arguments: BTreeMap::new(),
            all_keys: false,
            keys: Vec::new(),
            all_channels: false,
            channels: Vec::new(),
        }
    }

    pub(crate) fn all() -> Self {
        Self {
            commands: vec![true; table().commands.len()],
            all_keys: true,
            all_channels: true,
            ..Self::none()
        }
    }

    /// Checks whether a request may be executed. The error is the denied part, and its name.
    pub(crate) fn check(&self, number: usize, request: &[Vec<u8>]) -> Result<(), (Denied, String)> {
        let command = &table().commands[number];
        if !self.commands[number] {
            let allowed = self.first_arguments.get(&number).map(Vec::as_slice);
            let first = request.get(1).map_or(&[][..], Vec::as_slice);
            let mut allowed = allowed.unwrap_or_default().iter();
            if !allowed.any(|argument| argument.eq_ignore_ascii_case(first)) {
                return Err((Denied::Command, command.name.to_owned()));
            }
        }
        if !self.all_keys {
            for spec in &command.keys {
                // SET reads only if it is to return the old value.
                let mut options = request.iter().skip(3);
                let returns = options.any(|option| option.eq_ignore_ascii_case(b"get"));
                let reads = spec.reads && (command.name != "set" || returns);
                let keys = spec.keys(request);
                let mut keys = keys.into_iter();
                if let Some(key) = keys.find(|key| !self.allows_key(key, reads, spec.writes)) {
                    return Err((Denied::Key, text(key)));
                }
            }
        }
        if !self.all_channels {
            let (channels, are_patterns) = match command.name {
                "publish" | "spublish" => (&request[1..2], false),
                "subscribe" | "ssubscribe" => (&request[1..], false),
                "psubscribe" => (&request[1..], true),
                _ => (&[][..], false),
            };
            let mut channels = channels.iter();
            let denied = channels.find(|channel| !self.allows_channel(channel, are_patterns));
            if let Some(channel) = denied {
                return Err((Denied::Channel, text(channel)));
            }
        }
        Ok(())
    }

    fn allows_key(&self, key: &[u8], reads: bool, writes: bool) -> bool {
        self.keys.iter().any(|allowed| {
            (allowed.reads || !reads)
                && (allowed.writes || !writes)
                && glob::matches(&allowed.pattern, key)
        })
    }

    /// Returns whether a channel is allowed. A pattern has to be literally one of those that are allowed.
    fn allows_channel(&self, channel: &[u8], is_pattern: bool) -> bool {
        self.channels.iter().any(|allowed| {
            if is_pattern {
                allowed == channel
            } else {
                glob::matches(allowed, channel)
            }
        })
    }
}
