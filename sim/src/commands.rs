//! The table of commands: the properties that Redis 7.0.15 itself reports of each, and the function that executes it here.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use crate::core::{Call, Core};
use crate::failure::Reply;
use crate::keyspec::KeySpec;
use crate::{acl, clients, cluster_commands, configuration, generic, hashes, info, lists};
use crate::{monitor, pubsub, scan, sentinel_commands, sets, sorted_sets, strings};
use crate::{transactions, zrange};

/// Executes one command.
pub(crate) type Handler = fn(&mut Core, &Call<'_>) -> Reply;

/// The properties of a command or of one of its subcommands.
#[derive(Debug)]
pub(crate) struct Command {
    /// The name in lower case; a subcommand's follows its command's name and `|`.
    pub(crate) name: &'static str,
    /// The number of arguments, including the name; the least number if negative.
    pub(crate) arity: i64,
    flags: Vec<&'static str>,
    pub(crate) categories: Vec<&'static str>,
    pub(crate) keys: Vec<KeySpec>,
    /// The positions of the first and the last key, and the distance between two, as `COMMAND` reports them.
    pub(crate) range: [i64; 3],
    pub(crate) handler: Option<Handler>,
    /// The number of the command that this subcommand belongs to.
    pub(crate) parent: Option<usize>,
    pub(crate) has_subcommands: bool,
    pub(crate) is_write: bool,
    pub(crate) denies_oom: bool,
}

impl Command {
    pub(crate) fn has(&self, flag: &str) -> bool {
        self.flags.contains(&flag)
    }

    pub(crate) fn flags(&self) -> &[&'static str] {
        &self.flags
    }

    /// Returns whether a sentinel, or a server, knows the command.
    pub(crate) fn exists_in(&self, sentinel: bool) -> bool {
        let whole = self.name.split('|').next().unwrap_or_default();
        if sentinel {
            IN_SENTINELS.contains(&whole)
        } else {
            whole != "sentinel"
        }
    }

    pub(crate) fn takes(&self, arguments: usize) -> bool {
        let arguments = i64::try_from(arguments).unwrap_or(i64::MAX);
        if self.arity < 0 {
            arguments >= -self.arity
        } else {
            arguments == self.arity
        }
    }
}

/// The commands of a sentinel.
const IN_SENTINELS: [&str; 15] = [
    "acl",
    "auth",
    "client",
    "command",
    "hello",
    "info",
    "ping",
    "psubscribe",
    "publish",
    "punsubscribe",
    "role",
    "sentinel",
    "shutdown",
    "subscribe",
    "unsubscribe",
];

/// All commands, by number and by name.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) commands: Vec<Command>,
    // This is no hash map: the first of a process draws random numbers that would be missing in the next seed.
    numbers: BTreeMap<&'static str, usize>,
}

impl Table {
    /// Returns the number of the command or subcommand that a request names, in a server or in a sentinel.
    pub(crate) fn find(&self, request: &[Vec<u8>], in_sentinel: bool) -> Lookup {
        let name = request.first().map_or(&[][..], Vec::as_slice);
        let number = self.by_name(name);
        let Some(number) = number.filter(|&number| self.commands[number].exists_in(in_sentinel))
        else {
            return Lookup::Unknown;
        };
        if !self.commands[number].has_subcommands || request.len() == 1 {
            return Lookup::Found(number);
        }
        let whole = [name, b"|", &request[1]].concat();
        self.by_name(&whole)
            .map_or(Lookup::UnknownSubcommand(number), Lookup::Found)
    }

    /// Returns the number of a command by its name, which for a subcommand contains `|`, in any case of letters.
    pub(crate) fn by_name(&self, name: &[u8]) -> Option<usize> {
        let mut lower = [0; 40];
        let lower = lower.get_mut(..name.len())?;
        for (to, from) in lower.iter_mut().zip(name) {
            *to = from.to_ascii_lowercase();
        }
        let name = std::str::from_utf8(lower).ok()?;
        self.numbers.get(name).copied()
    }
}

/// The command that a request names.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lookup {
    Found(usize),
    Unknown,
    UnknownSubcommand(usize),
}

/// Returns the table.
pub(crate) fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut table = Table {
            commands: Vec::new(),
            numbers: BTreeMap::new(),
        };
        for line in include_str!("commands.txt").lines() {
            let command = parsed(line, &table);
            if let Some(parent) = command.parent {
                table.commands[parent].has_subcommands = true;
            }
            table.numbers.insert(command.name, table.commands.len());
            table.commands.push(command);
        }
        table
    })
}

fn parsed(line: &'static str, table: &Table) -> Command {
    let mut fields = line.split(' ');
    let mut field = || fields.next().unwrap_or_default();
    let name = field();
    let arity = field().parse().unwrap_or(-1);
    let list = |text: &'static str| -> Vec<&'static str> {
        let items = text.split(',').filter(|&item| item != "-");
        items.collect()
    };
    let flags = list(field());
    let mut range = [0; 3];
    for (to, from) in range.iter_mut().zip(field().split(':')) {
        *to = from.parse().unwrap_or(0);
    }
    let categories = list(field());
    let keys = field().split(';').filter_map(KeySpec::parse).collect();
    let parent = name
        .split_once('|')
        .and_then(|(parent, _)| table.numbers.get(parent).copied());
    Command {
        name,
        arity,
        is_write: flags.contains(&"write"),
        denies_oom: flags.contains(&"denyoom"),
        flags,
        categories,
        keys,
        range,
        handler: handler(name),
        parent,
        has_subcommands: false,
    }
}

fn handler(name: &str) -> Option<Handler> {
    let parts: [fn(&str) -> Option<Handler>; 17] = [
        acl::handler,
        clients::handler,
        cluster_commands::handler,
        configuration::handler,
        generic::handler,
        hashes::handler,
        info::handler,
        lists::handler,
        monitor::handler,
        pubsub::handler,
        scan::handler,
        sentinel_commands::handler,
        sets::handler,
        sorted_sets::handler,
        strings::handler,
        transactions::handler,
        zrange::handler,
    ];
    parts.into_iter().find_map(|part| part(name))
}
