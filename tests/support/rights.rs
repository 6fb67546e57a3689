//! What a Redis user with an ACL needs, as the documentation lists it.

/// The commands of plain locks. INFO, which servers for rent often forbid, is not among them.
pub(crate) fn commands() -> Vec<&'static str> {
    listed(include_str!("../../README.md"), "and of the commands `")
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

/// What fenced locks need beside that: with scripts, and without.
pub(crate) fn of_fenced_locks() -> [Vec<&'static str>; 2] {
    ["and the commands `", "and the command `"].map(|before| listed(FENCED, before))
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

/// What locks of other kinds need in place of all that, without scripts.
pub(crate) fn without_scripts() -> Vec<&'static str> {
    listed(SIMPLE, "list: `")
}

const FENCED: &str = include_str!("../../docs/fencing.md");
const REDISSON: &str = include_str!("../../docs/redisson.md");
const SIMPLE: &str = include_str!("../../docs/simple-lock.md");

fn listed(page: &'static str, before: &str) -> Vec<&'static str> {
    let list = page.split_once(before);
    let (_, list) = list.expect("the page has the list");
    let (list, _) = list.split_once('`').expect("it ends");
    list.split_whitespace().collect()
}
