//! What a Redis user with an ACL needs, as the README lists it.

/// The commands. INFO, which servers for rent often forbid, is not among them.
pub(crate) fn commands() -> Vec<&'static str> {
    let readme = include_str!("../../README.md");
    let list = readme.split_once("and of the commands `");
    let (_, list) = list.expect("the README has the list");
    let (list, _) = list.split_once('`').expect("it ends");
    list.split_whitespace().collect()
}
