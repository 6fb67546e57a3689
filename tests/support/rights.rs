//! What a Redis user with an ACL needs, as the documentation lists it.

use std::sync::atomic::{AtomicU64, Ordering};

use super::RedisServer;

/// Makes a user with these rules beside all rights, and returns its address.
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

/// The line to copy, for all kinds of locks of whoever has names that begin with `app:`: what follows the password.
pub(crate) fn line() -> Vec<&'static str> {
    copied("ACL SETUSER app on >s3cr/et ")
}

/// The line for one who only reads.
pub(crate) fn reader() -> Vec<&'static str> {
    copied("ACL SETUSER reader on >s3cr/et ")
}

/// The same where a server has no `EVAL_RO`, or does not allow it to this user.
pub(crate) fn reader_by_eval() -> Vec<&'static str> {
    let mut rules = reader();
    rules.retain(|rule| !rule.ends_with("_ro"));
    let instead = listed(CONNECTING, "\nRedis 6.2 has no `EVAL_RO`: `");
    [rules, instead].concat()
}

/// The same for a user of the sentinels, who may be asking as a doctor.
pub(crate) fn at_sentinels() -> Vec<&'static str> {
    let doctor = listed_behind(CONNECTING, "\n- `distlock doctor`", "at sentinels `");
    [copied("ACL SETUSER app on >w0rd "), doctor].concat()
}

/// What is to be added to the line; the page says what for, in words that begin like this.
pub(crate) fn added_for(what: &str) -> Vec<&'static str> {
    listed_behind(CONNECTING, &format!("\n- {what}"), ": `")
}

/// All commands that the page allows to a user of a server that is in no cluster, or is in one.
pub(crate) fn every_command(in_cluster: bool) -> Vec<&'static str> {
    let added = FURTHER.iter().flat_map(|what| added_for(what));
    let mut rules: Vec<&str> = line().into_iter().chain(added).collect();
    if in_cluster {
        rules.extend(added_for(CLUSTER));
    }
    rules.retain(|rule| rule.starts_with('+'));
    rules
}

/// What can be added on any server.
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
/// Servers before 7.0 do not know all of these.
pub(crate) const CLUSTER: &str = "a cluster";
pub(crate) const WITHOUT_SCRIPTS: &str = "`?scripts=off`";

/// The commands of plain locks. INFO, which servers for rent often forbid, is not among them.
pub(crate) fn commands() -> Vec<&'static str> {
    listed(CONNECTING, "and of the commands `")
}

/// What simple locks need beside that.
pub(crate) fn of_simple_locks() -> Vec<&'static str> {
    listed(SIMPLE, "the simple lock needs `")
}

/// What fair locks need beside that.
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

/// And what one needs to see who waits.
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

/// What fenced locks need beside that, with scripts. Without, they need no further command.
pub(crate) fn of_fenced_locks() -> Vec<&'static str> {
    listed(FENCED, "and the commands `")
}

/// What read/write locks need beside that, the keys of one of this name among it.
pub(crate) fn of_rw_locks(name: &str) -> Vec<String> {
    let rules = ["the commands `", "the keys `", "the channel `"];
    let (_, section) = REDISSON
        .split_once("the read/write lock needs")
        .expect("the page has the list");
    let rules = rules.iter().flat_map(|before| listed(section, before));
    rules.map(|rule| rule.replace("NAME", name)).collect()
}

/// What semaphores need beside that, the keys of one of this name among it.
pub(crate) fn of_semaphores(name: &str) -> Vec<String> {
    let rules = ["the commands `", "the keys `", "the channel `"];
    let (_, section) = REDISSON
        .split_once("the semaphore needs")
        .expect("the page has the list");
    let rules = rules.iter().flat_map(|before| listed(section, before));
    rules.map(|rule| rule.replace("NAME", name)).collect()
}

/// What latches and semaphores that only count need beside that.
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

/// What it takes to say what one is called, and to see that of others.
pub(crate) fn of_labels() -> Vec<&'static str> {
    listed(CONNECTING, "For a label also `")
}

/// What locks of other kinds need in place of all that, without scripts.
pub(crate) fn without_scripts() -> Vec<&'static str> {
    listed(SIMPLE, "list: `")
}

const CONNECTING: &str = include_str!("../../docs/connecting.md");
const FENCED: &str = include_str!("../../docs/fencing.md");
const REDISSON: &str = include_str!("../../docs/redisson.md");
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
