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
pub(crate) struct Process {
    pub(crate) pid: Pid,
    /// None for those that the kernel has started.
    parent: Option<Pid>,
    /// None if it was made outside of the container that we see.
    pub(crate) group: Option<Pid>,
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
    below.into_iter().map(|process| process.pid).collect()
}

/// The living below this process, but for these and what is below them; none where the system has no such table.
pub(crate) fn below(top: Pid, but: &HashSet<Pid>) -> Option<Vec<Process>> {
    let mut table = table()?;
    table.retain(|process| !but.contains(&process.pid));
    Some(descendants(top, &table))
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

/// `pid (name) state parent group …`; the name may hold anything, brackets included.
fn parse(stat: &str) -> Option<Process> {
    let (pid, rest) = stat.split_once(" (")?;
    let (_, rest) = rest.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?;
    // Of a process that is buried while it is read the system says that its group is -1.
    let natural = |number: &i32| *number >= 0;
    let number = |text: &str| text.parse().ok().filter(natural).map(Pid::from_raw);
    Some(Process {
        pid: number(pid)??,
        parent: number(fields.next()?)?,
        group: number(fields.next()?)?,
        zombie: matches!(state, "Z" | "X"),
    })
}

fn descendants(top: Pid, table: &[Process]) -> Vec<Process> {
    let mut parents = vec![top];
    let mut found = Vec::new();
    while let Some(parent) = parents.pop() {
        let children = table
            .iter()
            .filter(|process| process.parent == Some(parent));
        for child in children {
            parents.push(child.pid);
            if !child.zombie {
                found.push(*child);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pid(number: i32) -> Pid {
        Pid::from_raw(number).expect("nobody's is 0")
    }

    #[test]
    fn an_entry_is_read_whatever_the_process_is_called() {
        let process = parse("42 (a) b (c) S 7 40 40 0 -1 4194304").expect("an entry");
        assert_eq!((process.pid, process.parent), (pid(42), Some(pid(7))));
        assert_eq!((process.group, process.zombie), (Some(pid(40)), false));
        assert!(parse("42 (a) Z 7 40 40").expect("an entry").zombie);
        let outsider = parse("2 (kthreadd) S 0 0 0").expect("an entry");
        assert_eq!((outsider.parent, outsider.group), (None, None));
        // One that was buried while it was read: it is in no group any more.
        assert_eq!(parse("42 (a) X 0 -1 -1 0 -1 4194304"), None);
        assert_eq!(parse("42"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn descendants_are_found_through_the_dead() {
        let process = |number, parent, zombie| Process {
            pid: pid(number),
            parent: Some(pid(parent)),
            group: None,
            zombie,
        };
        let table = [
            process(5, 4, false),
            process(2, 1, false),
            process(3, 2, true),
            process(4, 3, false),
            process(9, 8, false),
        ];
        let found = descendants(pid(1), &table).into_iter();
        let mut pids: Vec<_> = found.map(|process| process.pid.as_raw_pid()).collect();
        pids.sort_unstable();
        assert_eq!(pids, [2, 4, 5]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_is_below_its_parent() {
        let parent = rustix::process::getppid().expect("tests have a parent");
        let us = rustix::process::getpid();
        let are_we = |process: &Process| process.pid == us;
        let all = below(parent, &HashSet::new()).expect("there is a table");
        let found = all.into_iter().find(are_we).expect("we are there");
        assert_eq!(found.group, Some(rustix::process::getpgrp()));
        let but = below(parent, &HashSet::from([us])).expect("there is a table");
        assert!(!but.iter().any(are_we));
    }
}
