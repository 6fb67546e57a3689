//! The rights that `docs/connecting.md` lists for users behind sentinels.

use super::liars::channels_of;
use super::{PATIENCE, patient};
use crate::support::{RedisServer, Topology, eventually, rights, simulated};

/// Creates a user with these rights on all of these servers.
fn user(servers: &[RedisServer], rights: &[&str]) {
    for server in servers {
        server.cmd(&["ACL", "LOG", "RESET"]);
        let user = ["ACL", "SETUSER", "app", "reset", "on", ">word"];
        server.cmd(&[&user[..], rights].concat());
    }
}

/// A user with all of the rights is denied nothing; each of them is used.
#[test]
fn users_need_the_documented_rights() {
    simulated(async || {
        let topology = Topology::start().await;
        let at_servers = rights::added_for("a master behind sentinels");
        let at_sentinels = rights::at_sentinels();
        let is_right = |rule: &&&str| rule.starts_with(['+', '&']);
        let words = at_servers
            .iter()
            .chain(at_sentinels.iter().filter(is_right));
        for missing in words.copied().map(Some).chain([None]) {
            let without = |rules: &[&'static str]| -> Vec<&'static str> {
                let rules = rules.iter().copied();
                rules.filter(|rule| Some(*rule) != missing).collect()
            };
            let mut own = vec!["~*", "&*", "-@all"];
            own.extend(rights::line().iter().filter(|rule| rule.starts_with('+')));
            own.extend(rights::added_for("`distlock doctor`"));
            own.extend(without(&at_servers));
            user(topology.servers(), &own);
            user(topology.sentinels(), &without(&at_sentinels));
            let url = topology.url_as("app:word@") + "?sentinel_user=app&sentinel_pass=word";
            let denied = || {
                let all = topology.servers().iter().chain(topology.sentinels());
                all.flat_map(RedisServer::denied).collect::<Vec<_>>()
            };
            let connected = patient(&url).connect().await;
            let Some(missing) = missing else {
                let client = connected.expect("it may");
                let guard = client.lock("stock").acquire().await.expect("it is free");
                guard.release().await.expect("it is ours");
                client.admin().examine().await.expect("it is up");
                for sentinel in topology.sentinels() {
                    eventually(PATIENCE, "it is heard", async || {
                        channels_of(sentinel, "app").contains(&"sub=2".to_owned())
                    })
                    .await;
                }
                assert_eq!(denied(), Vec::<String>::new());
                continue;
            };
            if let Ok(client) = &connected {
                client.admin().examine().await.expect("it is up");
            }
            let what = format!("{missing} is asked for");
            eventually(PATIENCE, &what, async || !denied().is_empty()).await;
            let denied = denied();
            let expected = |denied: &String| missing.ends_with(denied);
            assert!(denied.iter().all(expected), "without {missing}: {denied:?}");
        }
    });
}
