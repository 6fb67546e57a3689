//! The tree of processes that a process has started, directly or indirectly.
//!
//! A group is not enough: a command on a terminal shares its group with all other processes that the shell put there,
//! and its children may make groups of their own. This process adopts orphans ([`adopt`]), so that all processes that
//! the command leaves behind stay below it.

use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, getpid, waitid};

/// One entry of the process table.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Process {
    pub(crate) pid: Pid,
    /// `None` for processes that the kernel has started.
    parent: Option<Pid>,
    /// `None` if the group was made outside of the visible container.
    pub(crate) group: Option<Pid>,
    /// Whether the process has ended and was not yet reaped by its parent.
    zombie: bool,
    /// The start time, in ticks since the boot of the machine.
    pub(crate) started: Option<u64>,
}

/// Makes this process the parent of its descendants' orphans, if the system supports it.
pub(crate) fn adopt() {
    #[cfg(target_os = "linux")]
    {
        // Without that support, processes that leave the command's group are left alone.
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    }
}

/// Returns whether every orphan that this process adopts will be a descendant of a process that it starts. To be called
/// before it has started any. Not so if it has children already (`server & exec distlock …`), whose orphans it adopts
/// as well, nor if it is the first process of a container, which adopts all orphans.
pub(crate) fn adopts_only_its_own() -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let childless = matches!(waitid(WaitId::All, options), Err(Errno::CHILD));
    childless && !getpid().is_init()
}

/// Returns the living processes below this one, through those of its children that are wanted; `None` if the system has
/// no process table.
pub(crate) fn below(top: Pid, wanted: impl Fn(&Process) -> bool) -> Option<Vec<Process>> {
    let mut table = table()?;
    table.retain(|process| process.parent != Some(top) || wanted(process));
    Some(descendants(top, &table))
}

/// Returns whether a process was started with this text in this variable of its environment. Unknown counts as no.
pub(crate) fn has_in_environment(pid: Pid, variable: &str, text: &str) -> bool {
    let environment = std::fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero()));
    environment.is_ok_and(|environment| mentions(&environment, variable, text))
}

/// Searches an environment of the form `NAME=value`, with a zero byte after each entry.
fn mentions(environment: &[u8], variable: &str, text: &str) -> bool {
    let mut entries = environment.split(|byte| *byte == 0).filter_map(|entry| {
        let (name, value) = std::str::from_utf8(entry).ok()?.split_once('=')?;
        (name == variable).then_some(value)
    });
    entries.any(|value| value.contains(text))
}

fn table() -> Option<Vec<Process>> {
    let entries = std::fs::read_dir("/proc").ok()?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let pids = names.filter(|name| name.bytes().all(|b| b.is_ascii_digit()));
    // A process that has ended since it was listed has no entry any more.
    let stats = pids.filter_map(|pid| std::fs::read(format!("/proc/{pid}/stat")).ok());
    let stats = stats.map(|stat| String::from_utf8_lossy(&stat).into_owned());
    let table: Vec<_> = stats.filter_map(|stat| parse(&stat)).collect();
    // Other systems have other files in that directory, or none.
    (!table.is_empty()).then_some(table)
}

/// Parses `pid (name) state parent group …`, with the start time after 16 other fields; the name may contain any
/// character, also parentheses.
fn parse(stat: &str) -> Option<Process> {
    let (pid, rest) = stat.split_once(" (")?;
    let (_, rest) = rest.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?;
    // If a process is reaped while its entry is read, the system reports -1 as its group.
    let natural = |number: &i32| *number >= 0;
    let number = |text: &str| text.parse().ok().filter(natural).map(Pid::from_raw);
    Some(Process {
        pid: number(pid)??,
        parent: number(fields.next()?)?,
        group: number(fields.next()?)?,
        zombie: matches!(state, "Z" | "X"),
        started: fields.nth(16).and_then(|ticks| ticks.parse().ok()),
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
    fn a_proc_entry_is_parsed_for_any_process_name() {
        let process = parse("42 (a) b (c) S 7 40 40 0 -1 4194304").expect("an entry");
        assert_eq!((process.pid, process.parent), (pid(42), Some(pid(7))));
        assert_eq!((process.group, process.zombie), (Some(pid(40)), false));
        assert_eq!(process.started, None);
        let whole = "42 (a) S 7 40 40 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 81234 99";
        let process = parse(whole).expect("an entry");
        assert_eq!(process.started, Some(81_234));
        assert!(parse("42 (a) Z 7 40 40").expect("an entry").zombie);
        let outsider = parse("2 (kthreadd) S 0 0 0").expect("an entry");
        assert_eq!((outsider.parent, outsider.group), (None, None));
        // The entry of a process that was reaped while it was read: it is in no group any more.
        assert_eq!(parse("42 (a) X 0 -1 -1 0 -1 4194304"), None);
        assert_eq!(parse("42"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn descendants_of_exited_processes_are_found() {
        let process = |number, parent, zombie| Process {
            pid: pid(number),
            parent: Some(pid(parent)),
            group: None,
            zombie,
            started: None,
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

    #[test]
    fn a_text_is_found_only_in_its_variable() {
        let environment = b"A=1\0HELD=[{\"owner\":\"u:1\"}]\0B=u:2\0\xff=u:3\0";
        assert!(mentions(environment, "HELD", "\"u:1\""));
        assert!(!mentions(environment, "HELD", "u:2"));
        assert!(!mentions(environment, "A", "u:1"));
        assert!(!mentions(b"", "HELD", "u:1"));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_is_a_descendant_of_its_parent() {
        let parent = rustix::process::getppid().expect("tests have a parent");
        let us = rustix::process::getpid();
        let are_we = |process: &Process| process.pid == us;
        let all = below(parent, |_| true).expect("there is a table");
        let found = all.into_iter().find(are_we).expect("we are there");
        assert_eq!(found.group, Some(rustix::process::getpgrp()));
        let but = below(parent, |child| child.pid != us).expect("there is a table");
        assert!(!but.iter().any(are_we));
    }
}
