//! The ACL rules that a Redis user needs, as the documentation lists them.

use std::sync::atomic::{AtomicU64, Ordering};

use super::RedisServer;

/// Makes a user whose rules start from all rights and end with these, and returns its address.
pub(crate) fn user(server: &RedisServer, rules: &[&str]) -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let user = format!("user{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    let mut words = vec![
        "ACL", "SETUSER", &user, "on", ">secret", "~*", "&*", "+@all",
    ];
    words.extend(rules);
    server.cmd(&words);
    format!("redis://{user}:secret@127.0.0.1:{}/", server.port())
}

/// Returns the documented rules, without the password, for all kinds of locks with names that begin with `app:`.
pub(crate) fn line() -> Vec<&'static str> {
    copied("ACL SETUSER app on >s3cr/et ")
}

/// Returns the rules of a user that only reads.
pub(crate) fn reader() -> Vec<&'static str> {
    copied("ACL SETUSER reader on >s3cr/et ")
}

/// Returns the rules of a reader at a server that has no `EVAL_RO`, or that denies it to this user.
pub(crate) fn reader_by_eval() -> Vec<&'static str> {
    let mut rules = reader();
    rules.retain(|rule| !rule.ends_with("_ro"));
    let instead = listed(CONNECTING, "\nRedis 6.2 has no `EVAL_RO`: `");
    [rules, instead].concat()
}

/// Returns the rules of a user of the sentinels that may also run `distlock doctor`.
pub(crate) fn at_sentinels() -> Vec<&'static str> {
    let doctor = listed_behind(CONNECTING, "\n- `distlock doctor`", "at sentinels `");
    [copied("ACL SETUSER app on >w0rd "), doctor].concat()
}

/// Returns the rules that the page adds for a purpose, given by the first words of its line there.
pub(crate) fn added_for(what: &str) -> Vec<&'static str> {
    listed_behind(CONNECTING, &format!("\n- {what}"), ": `")
}

/// Returns all commands that the page allows to a user, at a server of a cluster or at another.
pub(crate) fn every_command(in_cluster: bool) -> Vec<&'static str> {
    let added = FURTHER.iter().flat_map(|what| added_for(what));
    let mut rules: Vec<&str> = line().into_iter().chain(added).collect();
    if in_cluster {
        rules.extend(added_for(CLUSTER));
    }
    rules.retain(|rule| rule.starts_with('+'));
    rules
}

/// The purposes for which rules can be added on any server.
pub(crate) const FURTHER: [&str; 10] = [
    "names with a brace",
    "a database other than 0",
    "`admin().list`",
    "`watch`",
    "the warning",
    "`durability`",
    "`failover_delay`",
    "`distlock doctor`",
    "a master behind sentinels",
    WITHOUT_SCRIPTS,
];
/// The purpose of the rules for a cluster. Servers before 7.0 do not know all of these commands.
pub(crate) const CLUSTER: &str = "a cluster";
pub(crate) const WITHOUT_SCRIPTS: &str = "`?scripts=off`";

/// Returns the commands of plain locks. INFO is not among them: hosted servers often forbid it.
pub(crate) fn commands() -> Vec<&'static str> {
    listed(CONNECTING, "and of the commands `")
}

/// Returns the rules that simple locks need in addition.
pub(crate) fn of_simple_locks() -> Vec<&'static str> {
    listed(SIMPLE, "the simple lock needs `")
}

/// Returns the rules that fair locks need in addition.
pub(crate) fn of_fair_locks() -> Vec<&'static str> {
    let (_, section) = REDISSON
        .split_once("the fair lock needs")
        .expect("the page has the list");
    let rules = ["the commands\n`", "the keys\n`"];
    rules
        .iter()
        .flat_map(|before| listed(section, before))
        .collect()
}

/// Returns the rules that reading the wait queue needs in addition.
pub(crate) fn of_seeing_the_line() -> [&'static str; 2] {
    let (_, section) = REDISSON
        .split_once("it also\nneeds `")
        .expect("the page has the list");
    let mut rules = section.split('`');
    let mut next = || rules.next().expect("the page has the list");
    let command = next();
    next();
    [command, next()]
}

/// Returns the commands that fenced locks need in addition, with scripts. Without scripts they need none.
pub(crate) fn of_fenced_locks() -> Vec<&'static str> {
    listed(FENCED, "and the commands `")
}

/// Returns the rules that read/write locks need in addition, with the keys of the lock of this name.
pub(crate) fn of_rw_locks(name: &str) -> Vec<String> {
    let rules = ["the commands `", "the keys `", "the channel `"];
    let (_, section) = REDISSON
        .split_once("the read/write lock needs")
        .expect("the page has the list");
    let rules = rules.iter().flat_map(|before| listed(section, before));
    rules.map(|rule| rule.replace("NAME", name)).collect()
}

/// Returns the rules that semaphores need in addition, with the keys of the semaphore of this name.
pub(crate) fn of_semaphores(name: &str) -> Vec<String> {
    let rules = ["the commands `", "the keys `", "the channel `"];
    let (_, section) = REDISSON
        .split_once("the semaphore needs")
        .expect("the page has the list");
    let rules = rules.iter().flat_map(|before| listed(section, before));
    rules.map(|rule| rule.replace("NAME", name)).collect()
}

/// Returns the rules that latches and counting semaphores need in addition.
pub(crate) fn of_counting() -> Vec<&'static str> {
    let (_, section) = REDISSON
        .split_once("semaphores that only count need")
        .expect("the page has the list");
    let rules = ["the commands\n`", "the keys\n`", "the channels\n`"];
    rules
        .iter()
        .flat_map(|before| listed(section, before))
        .collect()
}

/// Returns the rules that setting a label and reading other clients' labels need.
pub(crate) fn of_labels() -> Vec<&'static str> {
    listed(CONNECTING, "For a label also `")
}

/// Returns the commands that locks of other kinds need in place of all that, without scripts.
pub(crate) fn without_scripts() -> Vec<&'static str> {
    listed(SIMPLE, "list: `")
}

const CONNECTING: &str = include_str!("../../docs/connecting.md");
const FENCED: &str = include_str!("../../docs/fencing.md");
const REDISSON: &str = include_str!("../../docs/redisson-wire.md");
const SIMPLE: &str = include_str!("../../docs/simple-lock.md");

fn copied(begin: &str) -> Vec<&'static str> {
    let line = CONNECTING.lines().find_map(|line| line.strip_prefix(begin));
    let line = line.expect("the page has the line");
    line.split_whitespace().collect()
}

fn listed_behind(page: &'static str, section: &str, before: &str) -> Vec<&'static str> {
    let (_, section) = page.split_once(section).expect("the page has the section");
    listed(section, before)
}

fn listed(page: &'static str, before: &str) -> Vec<&'static str> {
    let list = page.split_once(before);
    let (_, list) = list.expect("the page has the list");
    let (list, _) = list.split_once('`').expect("it ends");
    list.split_whitespace().collect()
}
