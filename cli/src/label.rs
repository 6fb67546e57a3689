//! The label of a holder: `deploy@web1 pid 4242 since 2026-11-16T07:40:00Z: pg_dump app`, or `… fixed: …` if its lease
//! is not renewed.

use std::ffi::OsString;

use distlock::Holder;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use crate::date::Date;
use crate::out::shown;

/// Follows the time in labels of holders that do not renew.
const FIXED: &str = " fixed";
/// Upper bound of a command in a label, in characters: stores keep labels in memory.
const LONGEST_COMMAND: usize = 120;

/// Returns the label of this process while it holds a lock for a command; `fixed` if its lease is never renewed.
pub(crate) fn of_this_process(since: Date, fixed: bool, command: &[OsString]) -> String {
    let words = command.iter().map(|word| word.to_string_lossy());
    let command = without_passwords(&words.collect::<Vec<_>>());
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

/// Returns the words on one line, with `***` for everything that may be a user or a password in a url:
/// `redis://***@db/`, `redis+unix:///run/db?pass=***`.
///
/// A password may hold any unencoded character, also blanks, `/` and `@`. So all text between `://` and the last `@` of
/// a word may belong to one, and all text after `?pass=`.
pub(crate) fn without_passwords(words: &[impl AsRef<str>]) -> String {
    let mut masked = Vec::new();
    let mut words = words;
    while let [word, later @ ..] = words {
        let (mut shown, goes_on) = mask(word.as_ref());
        words = later;
        // An unquoted blank has split the password into several words.
        if goes_on && let Some(last) = later.iter().rposition(|word| word.as_ref().contains('@')) {
            shown.push_str(&mask(from_last_at(later[last].as_ref())).0);
            words = &later[last + 1..];
        }
        masked.push(shown);
    }
    masked.join(" ")
}

/// Returns a word with its passwords masked, and whether the masked text may continue in the next word.
fn mask(word: &str) -> (String, bool) {
    if let Some((before, address)) = word.split_once(SLASHES)
        && address.contains('@')
    {
        let begin = before.len() + SLASHES.len();
        let host = from_last_at(address);
        // That `@` may be a part of the parameter's value.
        if let Some(value) = parameter(&word[..word.len() - host.len()]) {
            return (format!("{}***", &word[..begin.min(value)]), false);
        }
        let (host, goes_on) = mask(host);
        return (format!("{}***{host}", &word[..begin]), goes_on);
    }
    let (odd, parameter) = (odd_authority(word), parameter(word));
    match odd.into_iter().chain(parameter).min() {
        Some(begin) => (format!("{}***", &word[..begin]), odd.is_some()),
        None => (word.to_owned(), false),
    }
}

const SLASHES: &str = "://";

fn from_last_at(text: &str) -> &str {
    text.rfind('@').map_or("", |at| &text[at..])
}

/// Returns where an authority begins that is not a list of hosts and their ports.
fn odd_authority(word: &str) -> Option<usize> {
    let begins = word.match_indices(SLASHES);
    let mut begins = begins.map(|(at, _)| at + SLASHES.len());
    begins.find(|begin| {
        let address = &word[*begin..];
        let end = address.find(|c: char| "/?#".contains(c) || c.is_whitespace());
        let authority = &address[..end.unwrap_or(address.len())];
        !authority.is_empty() && !authority.split(',').all(is_host)
    })
}

/// Returns whether the text has the form `db`, `db:6379` or `[::1]:6379`.
fn is_host(text: &str) -> bool {
    let (name, port) = match text.strip_prefix('[').and_then(|text| text.split_once(']')) {
        Some((name, "")) => (name, None),
        Some((name, port)) => (name, Some(port.strip_prefix(':').unwrap_or_default())),
        None => match text.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (text, None),
        },
    };
    !name.is_empty() && port.is_none_or(is_port)
}

fn is_port(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit()) && text.parse::<u16>().is_ok()
}

/// Returns where the value of the first parameter begins whose name is that of a password.
fn parameter(word: &str) -> Option<usize> {
    let begins = word.match_indices(['?', '&']);
    let mut begins = begins.map(|(at, mark)| at + mark.len());
    begins.find_map(|begin| {
        let (name, _) = word[begin..].split(['?', '&']).next()?.split_once('=')?;
        let called = name.to_ascii_lowercase();
        let is_secret = ["auth", "pass", "pwd", "secret", "token"]
            .iter()
            .any(|secret| called.contains(secret));
        is_secret.then(|| begin + name.len() + 1)
    })
}

/// A holder, as far as its label describes it.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct HolderInfo {
    /// `deploy@web1 pid 4242`, a label of another form, or the owner's id.
    pub(crate) name: String,
    pub(crate) since: Option<Date>,
    /// Whether the lease is never renewed; otherwise it may or may not be.
    pub(crate) fixed: bool,
    pub(crate) command: Option<String>,
}

impl HolderInfo {
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

    /// Returns whether the holder was a process of this machine that no longer exists.
    pub(crate) fn has_ended(&self) -> bool {
        let (user, pid) = self.name.rsplit_once(" pid ").unwrap_or_default();
        let here = user
            .rsplit_once('@')
            .is_some_and(|(_, on)| on == shown(&host()));
        let pid = pid.parse().ok().and_then(Pid::from_raw);
        here && pid.is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH))
    }
}

/// Omits the time, which has a column of its own.
impl std::fmt::Display for HolderInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.command {
            Some(command) => write!(f, "{}: {command}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// Returns the user's name from the environment or the system, or the uid: a container may know no name.
fn user() -> String {
    let name = ["USER", "LOGNAME"].into_iter().find_map(|variable| {
        let name = std::env::var(variable).ok();
        name.filter(|name| !name.is_empty())
    });
    let uid = rustix::process::getuid().as_raw();
    let listed = || name_of(uid, &std::fs::read_to_string("/etc/passwd").ok()?);
    name.or_else(listed).unwrap_or_else(|| format!("uid{uid}"))
}

/// Finds a user's name in lines of the form `name:password:uid:…`.
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
    fn a_label_round_trips() {
        let since = Date::parse(SINCE).expect("a date");
        let command = ["sh", "-c", "echo a: b since c"].map(OsString::from);
        for fixed in [false, true] {
            let label = of_this_process(since, fixed, &command);
            let who = HolderInfo::new(Some(&label), "owner");
            assert_eq!((who.since, who.fixed), (Some(since), fixed));
            assert_eq!(who.command.as_deref(), Some("sh -c echo a: b since c"));
            let pid = format!("pid {}", std::process::id());
            assert!(who.name.ends_with(&pid), "{}", who.name);
            assert!(!who.has_ended());
        }
    }

    #[test]
    fn only_processes_of_this_host_are_known_to_have_ended() {
        // No system has that many processes.
        let dead = i32::MAX;
        let who = |host: &str| {
            let label = format!("ann@{host} pid {dead} since {SINCE}: true");
            HolderInfo::new(Some(&label), "owner")
        };
        assert!(who(&host()).has_ended());
        assert!(!who("elsewhere").has_ended());
        for label in ["billing pid 7", "pid", "", "a@b pid x"] {
            assert!(
                !HolderInfo::new(Some(label), "owner").has_ended(),
                "{label}"
            );
        }
    }

    #[test]
    fn a_user_without_an_environment_variable_is_looked_up() {
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
            ("https://secret@h:443/a", "https://***@h:443/a"),
            ("x://a:s@b@c,x://d:e@f", "x://***@f"),
            ("x://a:se/cr?e#t@db/0", "x://***@db/0"),
            ("redis://:#secret@db/", "redis://***@db/"),
            ("redis://:/secret@db/", "redis://***@db/"),
            ("redis://:?secret@db/", "redis://***@db/"),
            ("redis://ann:#secret@db/", "redis://***@db/"),
            ("redis://ann:6379/secret@db/", "redis://***@db/"),
            ("redis://se/cret:a@db/", "redis://***@db/"),
            ("redis://ann:p@secret/cret@db/", "redis://***@db/"),
            ("redis://ann: se cret @db/0", "redis://***@db/0"),
            ("redis://:se\tcret\n@db/", "redis://***@db/"),
            ("x://a:s://cret@db/", "x://***@db/"),
            ("redis://ann:secret", "redis://***"),
            ("redis://:secret", "redis://***"),
            ("redis://:123", "redis://***"),
            ("redis://ann:+123", "redis://***"),
            ("redis://ann:/secret", "redis://***"),
            ("redis://ann:123456", "redis://***"),
            ("a x://h/ y://u:secret", "a x://h/ y://***"),
            ("x://a:b@h/ y://u:secret", "x://***@h/ y://***"),
            ("sh -c 'a x://u:p@h b'", "sh -c 'a x://***@h b'"),
            (
                "redis+unix:///s?user=a&pass=b&db=1",
                "redis+unix:///s?user=a&pass=***",
            ),
            ("x:///s?pass=a b&c=d@e:f", "x://***"),
            ("x:///s?pass=a b&c", "x:///s?pass=***"),
            ("x://h:1/?pass=#a?b/c", "x://h:1/?pass=***"),
            ("x://h/?Password=s", "x://h/?Password=***"),
            ("x://u:a?pass=b@h", "x://***"),
            ("a?token=secret x://u@h", "a?token=***"),
            (
                "redis-sentinel://u:s@h:1,i:2/m/0?sentinel_pass=t",
                "redis-sentinel://***@h:1,i:2/m/0?sentinel_pass=***",
            ),
        ] {
            let label = of_this_process(since, false, &[word.into()]);
            assert!(label.ends_with(&format!(": {expected}")), "{label}");
        }
        // An unquoted blank.
        for (words, expected) in [
            (
                &["a", "redis://:se", "cret@db", "b"][..],
                "a redis://***@db b",
            ),
            (&["redis://u:se", "c@r", "et@db", "b"], "redis://***@db b"),
            (&["redis://u:se", "cret"], "redis://*** cret"),
            (&["redis://h:1/", "ann@db"], "redis://h:1/ ann@db"),
        ] {
            assert_eq!(without_passwords(words), expected);
        }
        for word in [
            "git@host:a/b",
            "x://h:6379/a",
            "x://h/a:b",
            "x://[::1]/a",
            "x://[::1]:6379/a",
            "redis-sentinel://h:1,i:2/m/0",
            "unix:///run/db",
            "x://",
            "x://h/?a=b",
            "a?b=c&d",
            "echo a && b=c",
            "a: b c: d@e",
            " a\t b\n",
            "",
        ] {
            assert_eq!(without_passwords(&[word]), word);
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
    fn labels_of_other_programs_are_shown_unchanged() {
        for label in ["billing-7", "since then: x", "a since b: c", ""] {
            let who = HolderInfo::new(Some(label), "owner");
            assert_eq!((who.to_string(), who.since), (label.to_owned(), None));
        }
        assert_eq!(HolderInfo::new(None, "owner").to_string(), "owner");
        assert_eq!(
            HolderInfo::new(Some("a\u{7}b"), "owner").to_string(),
            "a\\u{7}b"
        );
    }
}
