//! Names: anything that is text, of a reasonable length.

use distlock::{Error, Lock};
use tokio::task::JoinSet;

use super::support::RedisServer;
use super::{PATIENCE, connect, well_said};

#[tokio::test]
async fn a_name_that_is_empty_or_far_too_long_is_refused() {
    let server = RedisServer::start();
    for url in ["memory:", &server.url()] {
        let client = connect(url).await;
        for (name, why) in [
            ("".to_owned(), "empty"),
            ("x".repeat(1 << 20), "longer than 64 KiB"),
        ] {
            let lock = client.lock(name.clone());
            let (owner, admin) = (client.new_owner(), client.admin());
            for error in [
                lock.acquire().await.unwrap_err(),
                lock.try_acquire().await.unwrap_err(),
                lock.acquire_timeout(PATIENCE).await.unwrap_err(),
                lock.clone().with_owner(&owner).acquire().await.unwrap_err(),
                lock.run(async |_| ()).await.unwrap_err(),
                admin.inspect(&name).await.unwrap_err(),
                admin.force_release(&name).await.unwrap_err(),
            ] {
                let error = well_said(error);
                assert!(matches!(error, Error::InvalidName { .. }), "{error:?}");
                assert!(error.to_string().contains(why), "{error}");
                assert!(!error.is_transient());
            }
        }
    }
    assert_eq!(server.keys(), Vec::<String>::new());
}

#[tokio::test]
async fn any_other_text_is_a_name() {
    let server = RedisServer::start();
    let longest = "ü".repeat(32 * 1024);
    let names = [
        "\0",
        "a\0b",
        "new\nline",
        "\r\n",
        " ",
        "\u{feff}",
        "🔒",
        "naïve",
        "{",
        "}",
        "{}",
        "{}x",
        "a{b}c",
        "a}b{c",
        "{{a}}",
        "foo{bar",
        "foo}bar",
        "*",
        "?",
        "[a-z]",
        "\\",
        "a:b",
        "%s",
        "'\"",
        "redisson_lock__channel:{x}",
        "-1",
        "0",
        &longest,
    ];
    for url in ["memory:".to_owned(), server.url()] {
        let on_redis = url.starts_with("redis");
        let (ours, theirs) = (connect(&url).await, connect(&url).await);
        for name in names {
            let guard = ours.lock(name).acquire().await.unwrap();
            assert_eq!(guard.name(), name);
            if on_redis {
                assert_eq!(server.keys(), [name]);
                // Where Redisson would look for it, with the value it would expect.
                assert_eq!(server.hgetall(name).get(&guard.owner()).unwrap(), "1");
                assert!(theirs.lock(name).try_acquire().await.unwrap().is_none());
            }
            let seen = ours
                .admin()
                .inspect(name)
                .await
                .unwrap()
                .expect("it is held");
            assert_eq!((seen.name.as_str(), seen.holders.len()), (name, 1));
            let all = ours.admin().list("*").await.unwrap();
            assert_eq!(all.len(), 1, "{name:?}");
            assert_eq!(all[0].name, name);
            // Somebody who waits hears of the release, on whatever channel that is.
            let mut waiting = JoinSet::new();
            waiting.spawn(once(ours.lock(name)));
            if on_redis {
                waiting.spawn(once(theirs.lock(name)));
            }
            guard.release().await.unwrap();
            let served = tokio::time::timeout(PATIENCE, waiting.join_all()).await;
            served.unwrap_or_else(|_| panic!("nobody heard of {name:?}"));
            assert!(ours.admin().inspect(name).await.unwrap().is_none());
        }
    }
    assert_eq!(server.keys(), Vec::<String>::new());
}

async fn once(lock: Lock) {
    lock.acquire().await.unwrap().release().await.unwrap();
}
