//! Findings about a cluster as a whole, and the findings of all servers merged into one report.

use crate::engine::{Diagnostic, Severity};

/// With fewer masters, the loss of one leaves no majority.
const MIN_MEMBERS: usize = 3;

pub(crate) fn slots(missing: usize, masters: usize) -> Diagnostic {
    let what = "slots";
    if missing > 0 {
        return Diagnostic::fail(
            what,
            format!(
                "{missing} of 16384 slots have no server: locks in these slots cannot be acquired"
            ),
            "restart the servers that are down, or move their slots to other servers",
        );
    }
    let found = format!("all slots are served, by {masters} masters");
    if masters < MIN_MEMBERS {
        let advice = "run at least three masters: with fewer, the loss of one leaves no majority for a failover";
        return Diagnostic::warn(what, found, advice);
    }
    Diagnostic::ok(what, found)
}

/// Warns of the masters that have no replica to take their place.
pub(crate) fn replicas(without: &[String]) -> Diagnostic {
    let what = "replicas";
    if without.is_empty() {
        return Diagnostic::ok(what, "every master has a replica");
    }
    Diagnostic::warn(
        what,
        format!("no replica follows {}", without.join(", ")),
        "run a replica of each on another machine: only a replica can be promoted",
    )
}

/// Merges the findings of all servers: for each subject the most severe finding, with the servers that have it.
pub(crate) fn merge(each: Vec<(String, Vec<Diagnostic>)>) -> Vec<Diagnostic> {
    let mut all: Vec<(Diagnostic, Vec<(String, String)>)> = Vec::new();
    for (server, findings) in each {
        for finding in findings {
            let server_finding = (server.clone(), finding.found.clone());
            let known = all
                .iter_mut()
                .find(|(known, _)| known.subject == finding.subject);
            match known {
                Some((known, findings_by_server)) if known.severity == finding.severity => {
                    findings_by_server.push(server_finding)
                }
                // The more severe finding is more informative.
                Some(known) if known.0.severity < finding.severity => {
                    *known = (finding, vec![server_finding])
                }
                Some(_) => {}
                None => all.push((finding, vec![server_finding])),
            }
        }
    }
    let whole = |(finding, findings_by_server): (Diagnostic, Vec<_>)| {
        // If a check has passed, the servers do not matter.
        if finding.severity == Severity::Ok {
            return finding;
        }
        Diagnostic {
            found: by_server(&findings_by_server),
            ..finding
        }
    };
    all.into_iter().map(whole).collect()
}

/// Lists each text once, after the servers that it was found on.
fn by_server(server_finding: &[(String, String)]) -> String {
    let mut servers_by_finding: Vec<(Vec<&str>, &str)> = Vec::new();
    for (server, found) in server_finding {
        match servers_by_finding
            .iter_mut()
            .find(|(_, known)| known == found)
        {
            Some((servers, _)) => servers.push(server),
            None => servers_by_finding.push((vec![server], found)),
        }
    }
    let describe =
        |(servers, found): &(Vec<&str>, &str)| format!("{}: {found}", servers.join(", "));
    servers_by_finding
        .iter()
        .map(describe)
        .collect::<Vec<_>>()
        .join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worst_finding_names_all_its_servers() {
        let each = vec![
            (
                "a:1".to_owned(),
                vec![
                    Diagnostic::ok("version", "Redis 7"),
                    Diagnostic::warn("memory", "lru", "none"),
                ],
            ),
            (
                "b:2".to_owned(),
                vec![
                    Diagnostic::ok("version", "Redis 6"),
                    Diagnostic::fail("memory", "gone", "begin"),
                ],
            ),
            (
                "c:3".to_owned(),
                vec![
                    Diagnostic::ok("version", "Redis 7"),
                    Diagnostic::fail("memory", "full", "more"),
                ],
            ),
            (
                "d:4".to_owned(),
                vec![Diagnostic::fail("memory", "gone", "begin")],
            ),
        ];
        assert_eq!(
            merge(each),
            [
                Diagnostic::ok("version", "Redis 7"),
                Diagnostic::fail("memory", "b:2, d:4: gone; c:3: full", "begin"),
            ]
        );
    }
}
