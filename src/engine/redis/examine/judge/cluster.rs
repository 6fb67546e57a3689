//! What a cluster as a whole means for locks, and what its servers say, in one report.

use crate::engine::{Finding, Verdict};

/// With fewer masters, one that is gone leaves no majority.
const ENOUGH: usize = 3;

pub(crate) fn slots(missing: usize, masters: usize) -> Finding {
    let what = "slots";
    if missing > 0 {
        return Finding::fail(
            what,
            format!("nobody has {missing} of 16384: a lock in one of those cannot be had"),
            "see to the servers that are down, or give their slots to others",
        );
    }
    let found = format!("all are served, by {masters} masters");
    if masters < ENOUGH {
        let advice = "run three: when one of fewer is gone no majority puts a replica in its place";
        return Finding::warn(what, found, advice);
    }
    Finding::ok(what, found)
}

/// Of these masters there is nobody to take the place.
pub(crate) fn followers(without: &[String]) -> Finding {
    let what = "replicas";
    if without.is_empty() {
        return Finding::ok(what, "every master has one");
    }
    Finding::warn(
        what,
        format!("none follows {}", without.join(", ")),
        "run one for each, on a machine of its own: nobody else can take its place",
    )
}

/// Of each thing the worst that was found, and at which servers.
pub(crate) fn together(each: Vec<(String, Vec<Finding>)>) -> Vec<Finding> {
    let mut all: Vec<(Finding, Vec<(String, String)>)> = Vec::new();
    for (server, findings) in each {
        for finding in findings {
            let told = (server.clone(), finding.found.clone());
            let known = all
                .iter_mut()
                .find(|(known, _)| known.subject == finding.subject);
            match known {
                Some((known, told_by)) if known.verdict == finding.verdict => told_by.push(told),
                // One that is worse says more.
                Some(known) if known.0.verdict < finding.verdict => *known = (finding, vec![told]),
                Some(_) => {}
                None => all.push((finding, vec![told])),
            }
        }
    }
    let whole = |(finding, told_by): (Finding, Vec<_>)| {
        // Where it is as it should be, it does not matter at which server.
        if finding.verdict == Verdict::Ok {
            return finding;
        }
        Finding {
            found: by_server(&told_by),
            ..finding
        }
    };
    all.into_iter().map(whole).collect()
}

/// What was found, each once, behind the servers where it was.
fn by_server(told: &[(String, String)]) -> String {
    let mut said: Vec<(Vec<&str>, &str)> = Vec::new();
    for (server, found) in told {
        match said.iter_mut().find(|(_, known)| known == found) {
            Some((servers, _)) => servers.push(server),
            None => said.push((vec![server], found)),
        }
    }
    let line = |(servers, found): &(Vec<&str>, &str)| format!("{}: {found}", servers.join(", "));
    said.iter().map(line).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_is_told_with_all_servers_where_it_was_found() {
        let each = vec![
            (
                "a:1".to_owned(),
                vec![
                    Finding::ok("version", "Redis 7"),
                    Finding::warn("memory", "lru", "none"),
                ],
            ),
            (
                "b:2".to_owned(),
                vec![
                    Finding::ok("version", "Redis 6"),
                    Finding::fail("memory", "gone", "begin"),
                ],
            ),
            (
                "c:3".to_owned(),
                vec![
                    Finding::ok("version", "Redis 7"),
                    Finding::fail("memory", "full", "more"),
                ],
            ),
            (
                "d:4".to_owned(),
                vec![Finding::fail("memory", "gone", "begin")],
            ),
        ];
        assert_eq!(
            together(each),
            [
                Finding::ok("version", "Redis 7"),
                Finding::fail("memory", "b:2, d:4: gone; c:3: full", "begin"),
            ]
        );
    }
}
