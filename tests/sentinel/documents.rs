//! What `docs/connecting.md` says that users need who go by sentinels.

use super::liars::heard_by;
use super::support::{RedisServer, Topology, eventually, rights};
use super::{PATIENCE, beside, patient};

/// A user of all of these who may do this much.
fn user(servers: &[RedisServer], rights: &[&str]) {
    for server in servers {
        server.cmd(&["ACL", "LOG", "RESET"]);
        let user = ["ACL", "SETUSER", "app", "reset", "on", ">word"];
        server.cmd(&[&user[..], rights].concat());
    }
}

/// Whoever has all of it is denied nothing; each of them is asked for.
#[tokio::test(flavor = "multi_thread")]
async fn users_need_what_the_page_lists() {
    let topology = Topology::start();
    let at_servers = rights::added_for("a master behind sentinels");
    let at_sentinels = rights::at_sentinels();
    let is_right = |rule: &&&str| rule.starts_with(['+', '&']);
    let words = at_servers
        .iter()
        .chain(at_sentinels.iter().filter(is_right));
    let words = words.copied().map(Some).chain([None]);
    for missing in words {
        let without = |rules: &[&'static str]| -> Vec<&'static str> {
            let rules = rules.iter().copied();
            rules.filter(|rule| Some(*rule) != missing).collect()
        };
        let mut own = vec!["~*", "&*", "-@all"];
        own.extend(rights::line().iter().filter(|rule| rule.starts_with('+')));
        own.extend(rights::added_for("`distlock doctor`"));
        own.extend(without(&at_servers));
        beside(|| {
            user(topology.servers(), &own);
            user(topology.sentinels(), &without(&at_sentinels));
        });
        let url = topology.url_as("app:word@") + "?sentinel_user=app&sentinel_pass=word";
        let denied = || {
            let all = topology.servers().iter().chain(topology.sentinels());
            beside(|| all.flat_map(RedisServer::denied).collect::<Vec<_>>())
        };
        let connected = patient(&url).connect().await;
        let Some(missing) = missing else {
            let client = connected.expect("it may");
            let guard = client.lock("stock").acquire().await.expect("it is free");
            guard.release().await.expect("it is ours");
            client.admin().examine().await.expect("it is up");
            for sentinel in topology.sentinels() {
                eventually(PATIENCE, "it is heard", async || {
                    beside(|| heard_by(sentinel, "app")).contains(&"sub=2".to_owned())
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
        // Before Redis 7.0 it is not said which of a command's several forms it was.
        let any_form = missing.starts_with("+sentinel").then_some("sentinel");
        let expected = |denied: &String| missing.ends_with(denied) || any_form == Some(denied);
        assert!(denied.iter().all(expected), "without {missing}: {denied:?}");
    }
}
