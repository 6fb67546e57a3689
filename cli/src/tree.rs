//! All that a process has started, and what that has started.
//!
//! A group is not enough: a command on a terminal shares its group with whatever else the shell put there,
//! and what it starts may make groups of its own. Orphans come back to us, because we ask for them
//! ([`adopt`]), so that whatever the command leaves behind stays below us.

use std::collections::HashSet;

use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, getpid, waitid};

/// One entry of the process table.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Process {
    pid: i32,
    parent: i32,
    /// Dead, and not yet buried by its parent.
    zombie: bool,
}

/// Makes this process the parent of its descendants' orphans, where the system can.
pub(crate) fn adopt() {
    #[cfg(target_os = "linux")]
    {
        // Without it, what runs away from its group is left alone.
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    }
}

/// Who is below this process before it has started anybody.
pub(crate) fn there_already() -> HashSet<Pid> {
    // Hardly ever anybody, and then the table, which is long, need not be read.
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    if matches!(waitid(WaitId::All, look), Err(Errno::CHILD)) {
        return HashSet::new();
    }
    let below = below(getpid(), &HashSet::new()).unwrap_or_default();
    below.into_iter().collect()
}

/// The living below this process, but for these and what is below them; none where the system has no such table.
pub(crate) fn below(top: Pid, but: &HashSet<Pid>) -> Option<Vec<Pid>> {
    let mut table = table()?;
    table.retain(|process| Pid::from_raw(process.pid).is_none_or(|pid| !but.contains(&pid)));
    let found = descendants(top.as_raw_nonzero().get(), &table);
    Some(found.into_iter().filter_map(Pid::from_raw).collect())
}

fn table() -> Option<Vec<Process>> {
    let entries = std::fs::read_dir("/proc").ok()?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let pids = names.filter(|name| name.bytes().all(|b| b.is_ascii_digit()));
    // One that has gone since it was listed has no entry any more.
    let stats = pids.filter_map(|pid| std::fs::read(format!("/proc/{pid}/stat")).ok());
    let stats = stats.map(|stat| String::from_utf8_lossy(&stat).into_owned());
    let table: Vec<_> = stats.filter_map(|stat| parse(&stat)).collect();
    // Other systems have other things in that folder, or nothing.
    (!table.is_empty()).then_some(table)
}

/// `pid (name) state parent …`; the name may hold anything, brackets included.
fn parse(stat: &str) -> Option<Process> {
    let (pid, rest) = stat.split_once(" (")?;
    let (_, rest) = rest.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?;
    Some(Process {
        pid: pid.parse().ok()?,
        parent: fields.next()?.parse().ok()?,
        zombie: matches!(state, "Z" | "X"),
    })
}

fn descendants(top: i32, table: &[Process]) -> Vec<i32> {
    let mut parents = vec![top];
    let mut found = Vec::new();
    while let Some(parent) = parents.pop() {
        let children = table.iter().filter(|process| process.parent == parent);
        for child in children {
            parents.push(child.pid);
            if !child.zombie {
                found.push(child.pid);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_whatever_the_process_is_called() {
        let process = parse("42 (a) b (c) S 7 40 40 0 -1 4194304").expect("an entry");
        assert_eq!((process.pid, process.parent), (42, 7));
        assert!(!process.zombie);
        assert!(parse("42 (a) Z 7 40 40").expect("an entry").zombie);
        assert_eq!(parse("42"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn descendants_are_found_through_the_dead() {
        let process = |pid, parent, zombie| Process {
            pid,
            parent,
            zombie,
        };
        let table = [
            process(5, 4, false),
            process(2, 1, false),
            process(3, 2, true),
            process(4, 3, false),
            process(9, 8, false),
        ];
        let mut pids = descendants(1, &table);
        pids.sort_unstable();
        assert_eq!(pids, [2, 4, 5]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_is_below_its_parent() {
        let parent = rustix::process::getppid().expect("tests have a parent");
        let us = rustix::process::getpid();
        let all = below(parent, &HashSet::new()).expect("there is a table");
        assert!(all.contains(&us));
        let but = below(parent, &HashSet::from([us])).expect("there is a table");
        assert!(!but.contains(&us));
    }
}
