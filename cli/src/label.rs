//! Who holds a lock, in words: `deploy@web1 pid 4242 since 2026-11-16T07:40:00Z: pg_dump app`, or `… fixed: …` if nobody
//! renews it.

use std::ffi::OsString;

use distlock::Holder;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use crate::date::Date;
use crate::out::shown;

/// Behind the time, in the labels of those who do not renew.
const FIXED: &str = " fixed";
/// As much of a command as a label carries, in characters: stores keep it in memory.
const LONGEST_COMMAND: usize = 120;

/// What this process calls itself while it holds a lock for a command; whether its lease is never renewed.
pub(crate) fn of_this_process(since: Date, fixed: bool, command: &[OsString]) -> String {
    let words = command.iter().map(|word| word.to_string_lossy());
    let command = without_passwords(&words.collect::<Vec<_>>().join(" "));
    let mut chars = command.chars();
    let mut command: String = chars.by_ref().take(LONGEST_COMMAND).collect();
    if !chars.as_str().is_empty() {
        command.push('…');
    }
    let pid = std::process::id();
    let fixed = if fixed { FIXED } else { "" };
    format!(
        "{}@{} pid {pid} since {since}{fixed}: {command}",
        user(),
        host()
    )
}

/// With `***` for each user and password in an address, as the library's messages have it: `redis://***@db/`,
/// `redis+unix:///run/db?pass=***`.
pub(crate) fn without_passwords(text: &str) -> String {
    let mut masked = String::new();
    for word in text.split_inclusive(char::is_whitespace) {
        let address = word.trim_end();
        masked.push_str(&without_parameter(&without_authority(address)));
        masked.push_str(&word[address.len()..]);
    }
    masked
}

fn without_authority(word: &str) -> String {
    let mut masked = String::new();
    let mut rest = word;
    while let Some((before, address)) = rest.split_once("://") {
        masked.push_str(before);
        masked.push_str("://");
        rest = address;
        let end = address.find(['/', '?', '#']).unwrap_or(address.len());
        let Some((user, secret)) = address[..end].split_once(':') else {
            continue;
        };
        // One that is no port may be a password with a slash in it, which some programs take.
        let is_port = secret.bytes().all(|b| b.is_ascii_digit());
        let host = match address[..end].rfind('@') {
            Some(at) => at,
            None if is_port => continue,
            None => match address.rfind('@') {
                Some(at) => at,
                None => continue,
            },
        };
        // `ann@db:6379` has none.
        if user.len() < host {
            masked.push_str("***");
            rest = &address[host..];
        }
    }
    masked + rest
}

fn without_parameter(word: &str) -> String {
    let mut parts = word.split_inclusive(['?', '&']);
    let mut masked = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let name = part.split('=').next().unwrap_or_default();
        if part.contains('=') && matches!(name, "pass" | "password" | "sentinel_pass") {
            masked.push_str(name);
            masked.push_str("=***");
            masked.push_str(if part.ends_with('&') { "&" } else { "" });
        } else {
            masked.push_str(part);
        }
    }
    masked
}

/// A holder, as far as it says who it is.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Who {
    /// `deploy@web1 pid 4242`, somebody else's label, or the owner's id.
    pub(crate) name: String,
    pub(crate) since: Option<Date>,
    /// Its lease ends when it says; else nobody knows whether it will be renewed.
    pub(crate) fixed: bool,
    pub(crate) command: Option<String>,
}

impl Who {
    pub(crate) fn new(label: Option<&str>, owner: &str) -> Self {
        let stranger = |name: &str| Self {
            name: shown(name),
            since: None,
            fixed: false,
            command: None,
        };
        let Some(label) = label else {
            return stranger(owner);
        };
        let ours = label.split_once(" since ").and_then(|(name, rest)| {
            let (since, command) = rest.split_once(": ")?;
            let unmarked = since.strip_suffix(FIXED);
            let since = Date::parse(unmarked.unwrap_or(since))?;
            Some((name, since, unmarked.is_some(), command))
        });
        ours.map_or_else(
            || stranger(label),
            |(name, since, fixed, command)| Self {
                name: shown(name),
                since: Some(since),
                fixed,
                command: Some(shown(command)),
            },
        )
    }

    pub(crate) fn of(holder: &Holder) -> Self {
        Self::new(holder.label.as_deref(), &holder.owner)
    }

    /// Whether it was a process of this machine, and is none any more.
    pub(crate) fn has_gone(&self) -> bool {
        let (user, pid) = self.name.rsplit_once(" pid ").unwrap_or_default();
        let here = user
            .rsplit_once('@')
            .is_some_and(|(_, on)| on == shown(&host()));
        let pid = pid.parse().ok().and_then(Pid::from_raw);
        here && pid.is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH))
    }
}

/// Without the time: that has a column of its own.
impl std::fmt::Display for Who {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.command {
            Some(command) => write!(f, "{}: {command}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// By name if the environment or the system knows it; a container may know neither.
fn user() -> String {
    let name = ["USER", "LOGNAME"].into_iter().find_map(|variable| {
        let name = std::env::var(variable).ok();
        name.filter(|name| !name.is_empty())
    });
    let uid = rustix::process::getuid().as_raw();
    let listed = || name_of(uid, &std::fs::read_to_string("/etc/passwd").ok()?);
    name.or_else(listed).unwrap_or_else(|| format!("uid{uid}"))
}

/// `name:password:uid:…`, a line each.
fn name_of(uid: u32, users: &str) -> Option<String> {
    let mut lines = users.lines().map(|line| line.split(':'));
    lines.find_map(|mut fields| {
        let name = fields.next().filter(|name| !name.is_empty())?;
        let same = fields.nth(1)?.parse() == Ok(uid);
        same.then(|| name.to_owned())
    })
}

fn host() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SINCE: &str = "2026-11-16T07:40:00Z";

    #[test]
    fn a_label_reads_back_as_it_was_written() {
        let since = Date::parse(SINCE).expect("a date");
        let command = ["sh", "-c", "echo a: b since c"].map(OsString::from);
        for fixed in [false, true] {
            let label = of_this_process(since, fixed, &command);
            let who = Who::new(Some(&label), "owner");
            assert_eq!((who.since, who.fixed), (Some(since), fixed));
            assert_eq!(who.command.as_deref(), Some("sh -c echo a: b since c"));
            let pid = format!("pid {}", std::process::id());
            assert!(who.name.ends_with(&pid), "{}", who.name);
            assert!(!who.has_gone());
        }
    }

    #[test]
    fn only_who_was_here_is_known_to_have_gone() {
        // No system has as many processes.
        let dead = i32::MAX;
        let who = |host: &str| {
            let label = format!("ann@{host} pid {dead} since {SINCE}: true");
            Who::new(Some(&label), "owner")
        };
        assert!(who(&host()).has_gone());
        assert!(!who("elsewhere").has_gone());
        for label in ["billing pid 7", "pid", "", "a@b pid x"] {
            assert!(!Who::new(Some(label), "owner").has_gone(), "{label}");
        }
    }

    #[test]
    fn a_user_without_a_variable_is_looked_up() {
        let users =
            "root:x:0:0::/root:/bin/sh\nbroken\n::7:\nann:x:1000:1000:Ann:/home/ann:/bin/sh\n";
        assert_eq!(name_of(0, users).as_deref(), Some("root"));
        assert_eq!(name_of(1000, users).as_deref(), Some("ann"));
        assert_eq!(name_of(7, users), None);
        assert_eq!(name_of(1, users), None);
    }

    #[test]
    fn no_label_has_a_password() {
        let since = Date::parse(SINCE).expect("a date");
        for (word, expected) in [
            ("redis://ann:secret@db/", "redis://***@db/"),
            ("--url=redis://:secret@db:1/0", "--url=redis://***@db:1/0"),
            ("x://a:s@b@c,x://d:e@f", "x://***@c,x://***@f"),
            ("x://a:s@b/,x://d:e@f/", "x://***@b/,x://***@f/"),
            ("x://a:se/cr?e#t@db/0", "x://***@db/0"),
            ("sh -c 'a x://u:p@h b'", "sh -c 'a x://***@h b'"),
            (
                "redis+unix:///s?user=a&pass=b&db=1",
                "redis+unix:///s?user=a&pass=***&db=1",
            ),
            ("x://h/?password=s", "x://h/?password=***"),
            (
                "redis-sentinel://u:s@h:1,i:2/m/0?sentinel_pass=t",
                "redis-sentinel://***@h:1,i:2/m/0?sentinel_pass=***",
            ),
        ] {
            let label = of_this_process(since, false, &[word.into()]);
            assert!(label.ends_with(&format!(": {expected}")), "{label}");
        }
        for word in [
            "git@host:a/b",
            "x://h:6379/a@b",
            "x://ann@h:6379/",
            "x://h/a:b",
            "redis-sentinel://h:1,i:2/m/0",
            "x://",
            "a?b=c&d",
            "a: b://c: d@e",
            " a\t b\n",
        ] {
            assert_eq!(without_passwords(word), word);
        }
        let cut = of_this_process(
            since,
            false,
            &[format!("x://a:{}@b", "s".repeat(500)).into()],
        );
        assert!(cut.ends_with(": x://***@b"), "{cut}");
    }

    #[test]
    fn a_long_command_is_cut() {
        let since = Date::parse(SINCE).expect("a date");
        let label = of_this_process(since, false, &["ü".repeat(1000).into()]);
        assert!(
            label.chars().count() < 300 && label.ends_with('…'),
            "{label}"
        );
    }

    #[test]
    fn the_labels_of_others_are_shown_as_they_are() {
        for label in ["billing-7", "since then: x", "a since b: c", ""] {
            let who = Who::new(Some(label), "owner");
            assert_eq!((who.to_string(), who.since), (label.to_owned(), None));
        }
        assert_eq!(Who::new(None, "owner").to_string(), "owner");
        assert_eq!(Who::new(Some("a\u{7}b"), "owner").to_string(), "a\\u{7}b");
    }
}
