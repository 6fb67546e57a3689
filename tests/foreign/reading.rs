//! The server's counters before and after an operation: how much work it has done, and whether anything has changed.

use redis::Connection;

/// Counters of the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// The commands that the server has run, including those of scripts.
    commands: u64,
    /// The number of writes.
    writes: u64,
    /// The bytes that the server has sent.
    sent: u64,
    /// The bytes that scripts have in memory.
    in_scripts: u64,
    /// The bytes of the reply with these counters, which are sent afterwards.
    own: u64,
}

/// The work that an operation caused at the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) commands: u64,
    pub(crate) writes: u64,
    pub(crate) sent: u64,
    pub(crate) in_scripts: u64,
}

impl Reading {
    pub(crate) fn take(connection: &mut Connection) -> Self {
        let mut sections = redis::pipe();
        for section in SECTIONS {
            sections.cmd("INFO").arg(section);
        }
        let info: Vec<String> = sections.query(connection).expect("the server answers");
        let info = info.concat();
        let number = |name: &str| -> u64 {
            let mut values = info.lines().filter_map(|line| line.strip_prefix(name));
            let value = values.next().and_then(|value| value.trim().parse().ok());
            value.unwrap_or_else(|| panic!("the server does not say {name}"))
        };
        let calls = info.lines().filter_map(|line| {
            let (_, calls) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            calls.split(',').next()?.parse::<u64>().ok()
        });
        Self {
            commands: calls.sum(),
            writes: number("rdb_changes_since_last_save:"),
            sent: number("total_net_output_bytes:"),
            in_scripts: number("used_memory_lua:"),
            own: info.len() as u64,
        }
    }

    pub(crate) fn until(self, later: Self) -> Cost {
        Cost {
            commands: (later.commands - self.commands).saturating_sub(SECTIONS.len() as u64),
            writes: later.writes - self.writes,
            sent: (later.sent - self.sent).saturating_sub(self.own),
            in_scripts: later.in_scripts.saturating_sub(self.in_scripts),
        }
    }
}

const SECTIONS: [&str; 4] = ["commandstats", "persistence", "stats", "memory"];
