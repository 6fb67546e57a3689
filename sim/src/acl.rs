//! Users: their passwords, and the rules that change their permissions.

use crate::Value;
use crate::arguments::text;
use crate::commands::{Handler, table};
use crate::core::{Call, Core};
use crate::failure::{Failure, Reply};
use crate::permissions::{Denied, KeyPattern, Permissions};

/// A user.
#[derive(Clone, Debug)]
pub(crate) struct User {
    is_on: bool,
    needs_none: bool,
    passwords: Vec<Vec<u8>>,
    permissions: Permissions,
    /// The rules in the order in which they were set, as `ACL LIST` shows them.
    rules: Vec<String>,
}

impl User {
    /// Returns the user of connections that name none: it may do everything, without a password.
    pub(crate) fn default_user() -> Self {
        Self {
            is_on: true,
            needs_none: true,
            passwords: Vec::new(),
            permissions: Permissions::all(),
            rules: Vec::new(),
        }
    }

    fn new() -> Self {
        Self {
            is_on: false,
            needs_none: false,
            passwords: Vec::new(),
            permissions: Permissions::none(),
            rules: Vec::new(),
        }
    }

    /// Returns whether a new connection has this user without a password.
    pub(crate) const fn needs_no_password(&self) -> bool {
        self.is_on && self.needs_none
    }

    /// Checks whether a request may be executed.
    pub(crate) fn check(&self, number: usize, request: &[Vec<u8>]) -> Result<(), (Denied, String)> {
        self.permissions.check(number, request)
    }

    fn accepts(&self, password: &[u8]) -> bool {
        self.is_on && (self.needs_none || self.passwords.iter().any(|known| known == password))
    }

    /// Applies one rule of `ACL SETUSER`. The error is the reason of a refusal.
    fn apply(&mut self, rule: &[u8]) -> Result<(), &'static str> {
        let word = text(rule).to_ascii_lowercase();
        let permissions = &mut self.permissions;
        match word.as_str() {
            "" | "sanitize-payload" | "skip-sanitize-payload" | "clearselectors" => {}
            "on" => self.is_on = true,
            "off" => self.is_on = false,
            "nopass" => {
                self.needs_none = true;
                self.passwords.clear();
            }
            "resetpass" => {
                self.needs_none = false;
                self.passwords.clear();
            }
            "reset" => *self = Self::new(),
            "allkeys" | "~*" => {
                permissions.all_keys = true;
                permissions.keys.clear();
            }
            "resetkeys" => {
                permissions.all_keys = false;
                permissions.keys.clear();
            }
            "allchannels" | "&*" => {
                permissions.all_channels = true;
                permissions.channels.clear();
            }
            "resetchannels" => {
                permissions.all_channels = false;
                permissions.channels.clear();
            }
            "allcommands" => return self.apply(b"+@all"),
            "nocommands" => return self.apply(b"-@all"),
            _ => return self.apply_prefixed(rule, &word),
        }
        Ok(())
    }

    fn apply_prefixed(&mut self, rule: &[u8], word: &str) -> Result<(), &'static str> {
        let Some((&sign, rest)) = rule.split_first() else {
            return Ok(());
        };
        let permissions = &mut self.permissions;
        match sign {
            b'>' => {
                self.needs_none = false;
                if !self.passwords.iter().any(|known| known == rest) {
                    self.passwords.push(rest.to_vec());
                }
            }
            b'<' => {
                let Some(place) = self.passwords.iter().position(|known| known == rest) else {
                    return Err(
                        "The password you are trying to remove from the user does not exist",
                    );
                };
                self.passwords.remove(place);
            }
            b'~' | b'%' => {
                if permissions.all_keys {
                    return Err(
                        "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any \
                         effect. Try 'resetkeys' to start with an empty list of patterns",
                    );
                }
                permissions
                    .keys
                    .push(key_pattern(rule).ok_or("Syntax error")?);
            }
            b'&' => {
                if permissions.all_channels {
                    return Err(
                        "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any \
                         effect. Try 'resetchannels' to start with an empty list of channels",
                    );
                }
                permissions.channels.push(rest.to_vec());
            }
            b'+' | b'-' => return self.allow(&word[1..], sign == b'+'),
            _ => return Err("Syntax error"),
        }
        Ok(())
    }

    fn allow(&mut self, what: &str, allowed: bool) -> Result<(), &'static str> {
        const UNKNOWN: &str = "Unknown command or category name in ACL";
        let commands = &table().commands;
        let permissions = &mut self.permissions;
        if let Some(category) = what.strip_prefix('@') {
            if category != "all" && !CATEGORIES.contains(&category) {
                return Err(UNKNOWN);
            }
            for (number, command) in commands.iter().enumerate() {
                if category == "all" || command.categories.contains(&category) {
                    permissions.commands[number] = allowed;
                    permissions.first_arguments.remove(&number);
                }
            }
            return Ok(());
        }
        if let Some(number) = table().by_name(what.as_bytes()) {
            for (each, command) in commands.iter().enumerate() {
                if each == number || command.parent == Some(number) {
                    permissions.commands[each] = allowed;
                    permissions.first_arguments.remove(&each);
                }
            }
            return Ok(());
        }
        // The rule is for a command without subcommands, with its first argument.
        let (command, first) = what.split_once('|').ok_or(UNKNOWN)?;
        let number = table().by_name(command.as_bytes()).ok_or(UNKNOWN)?;
        if commands[number].has_subcommands || !allowed {
            return Err(UNKNOWN);
        }
        let known = permissions.first_arguments.entry(number).or_default();
        known.push(first.as_bytes().to_vec());
        Ok(())
    }
}

fn key_pattern(rule: &[u8]) -> Option<KeyPattern> {
    let tilde = rule.iter().position(|&byte| byte == b'~')?;
    let (rights, pattern) = (
        text(&rule[..tilde]).to_ascii_uppercase(),
        &rule[tilde + 1..],
    );
    let (reads, writes) = match rights.as_str() {
        "" | "%RW" | "%WR" => (true, true),
        "%R" => (true, false),
        "%W" => (false, true),
        _ => return None,
    };
    Some(KeyPattern {
        pattern: pattern.to_vec(),
        reads,
        writes,
    })
}

pub(crate) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "auth" => auth,
        "acl|whoami" => |core, call| {
            let user = core.client(call.client).user.clone();
            Ok(Value::bulk(user.unwrap_or_else(|| "default".to_owned())))
        },
        "acl|users" => |core, _| Ok(Value::bulks(core.users.keys())),
        "acl|setuser" => set_user,
        "acl|deluser" => delete_users,
        "acl|list" => list,
        "acl|log" => log,
        "acl|cat" => |_, _| Ok(Value::bulks(CATEGORIES)),
        _ => return None,
    })
}

impl Core {
    /// Checks whether a user may execute its request, and logs a denial.
    pub(crate) fn permit(
        &mut self,
        user: Option<&str>,
        number: usize,
        request: &[Vec<u8>],
    ) -> Result<(), Denied> {
        let Some(user) = user.and_then(|user| self.users.get(user)) else {
            return Ok(());
        };
        user.check(number, request).map_err(|(denied, object)| {
            if !self.denials.contains(&object) {
                self.denials.insert(0, object);
            }
            denied
        })
    }
}

/// Executes `ACL LOG`, which here lists only the objects of denials, each once.
fn log(core: &mut Core, call: &Call<'_>) -> Reply {
    if call.args.len() > 2 {
        core.denials.clear();
        return Ok(Value::OK);
    }
    let entries = core.denials.iter().map(|object| {
        let fields = [("count", "1"), ("reason", "command"), ("object", object)];
        let fields = fields.map(|(name, value)| (Value::bulk(name), Value::bulk(value)));
        Value::Map(fields.into())
    });
    Ok(Value::Array(entries.collect()))
}

/// Sets the user of a connection, if the password is right.
pub(crate) fn authenticate(
    core: &mut Core,
    client: u64,
    user: &[u8],
    password: &[u8],
) -> Result<(), Failure> {
    let user = text(user);
    let known = core.users.get(&user);
    if !known.is_some_and(|known| known.accepts(password)) {
        let text = "WRONGPASS invalid username-password pair or user is disabled.";
        return Err(Failure::coded(text));
    }
    core.client(client).user = Some(user);
    Ok(())
}

fn auth(core: &mut Core, call: &Call<'_>) -> Reply {
    match call.args {
        [_, password] => {
            if core
                .users
                .get("default")
                .is_some_and(|user| user.needs_none)
            {
                return Err(Failure::general(
                    "AUTH <password> called without any password configured for the default user. \
                     Are you sure your configuration is correct?",
                ));
            }
            authenticate(core, call.client, b"default", password)?;
        }
        [_, user, password] => authenticate(core, call.client, user, password)?,
        _ => return Err(Failure::syntax()),
    }
    Ok(Value::OK)
}

fn set_user(core: &mut Core, call: &Call<'_>) -> Reply {
    let name = text(&call.args[2]);
    let mut user = core.users.get(&name).cloned().unwrap_or_else(User::new);
    for rule in &call.args[3..] {
        user.apply(rule).map_err(|reason| {
            let rule = text(rule);
            Failure::general(format!("Error in ACL SETUSER modifier '{rule}': {reason}"))
        })?;
        user.rules.push(text(rule));
    }
    core.users.insert(name, user);
    Ok(Value::OK)
}

fn delete_users(core: &mut Core, call: &Call<'_>) -> Reply {
    let mut deleted = 0;
    for name in &call.args[2..] {
        let name = text(name);
        if name == "default" {
            return Err(Failure::general("The 'default' user cannot be removed"));
        }
        if core.users.remove(&name).is_none() {
            continue;
        }
        deleted += 1;
        // The connections of a deleted user are closed.
        let clients = core.clients.values_mut();
        for client in clients.filter(|client| client.user.as_deref() == Some(&name)) {
            client.user = None;
            client.end(client.id == call.client);
        }
    }
    Ok(Value::Integer(deleted))
}

fn list(core: &mut Core, _: &Call<'_>) -> Reply {
    let lines = core.users.iter().map(|(name, user)| {
        let state = if user.is_on { "on" } else { "off" };
        format!("user {name} {state} {}", user.rules.join(" "))
    });
    Ok(Value::bulks(lines))
}

/// The categories of commands.
const CATEGORIES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];
