//! Names: any text of a reasonable length.

use std::time::Duration;

use distlock::{Client, Error, Lease, Lock};
use tokio::task::JoinSet;

use super::support::RedisServer;
use super::{PATIENCE, checked_message, connect};

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
                lock.run(async |_| ()).await.unwrap_err().into(),
                admin.inspect(&name).await.unwrap_err(),
                admin.force_release(&name).await.unwrap_err(),
            ] {
                let error = checked_message(error);
                assert!(matches!(error, Error::InvalidName { .. }), "{error:?}");
                assert!(error.to_string().contains(why), "{error}");
                assert!(!error.is_transient());
            }
        }
    }
    assert_eq!(server.keys(), Vec::<String>::new());
}

#[tokio::test]
async fn an_error_names_its_lock_on_one_line_and_not_in_a_megabyte() {
    let server = RedisServer::start();
    let long = "ü".repeat(32 * 1024);
    for url in ["memory:", &server.url()] {
        let client = connect(url).await;
        let too_short = Lease::Fixed(Duration::ZERO);
        for name in ["stock", "new\nline", &long] {
            let stranger = connect(url).await.new_owner();
            let kept = client.lock(name).acquire().await.unwrap();
            let lock = client.lock(name);
            for error in [
                kept.extend(PATIENCE).await.unwrap_err(),
                kept.extend(Duration::ZERO).await.unwrap_err(),
                lock.clone()
                    .with_lease(too_short)
                    .acquire()
                    .await
                    .unwrap_err(),
                lock.clone()
                    .with_max_hold(Duration::ZERO)
                    .acquire()
                    .await
                    .unwrap_err(),
                lock.clone()
                    .with_owner(&stranger)
                    .acquire()
                    .await
                    .unwrap_err(),
            ] {
                let about =
                    matches!(&error, Error::InvalidOption { name: Some(of), .. } if **of == *name);
                assert!(about, "{error:?}");
                let begins: String = name.escape_debug().take(150).collect();
                let text = checked_message(error).to_string();
                assert!(text.starts_with(&format!("`{begins}")), "{text}");
                assert!(text.chars().count() < 400, "{text}");
            }
            kept.release().await.unwrap();
        }
        let far_too_long = client.lock("x".repeat(1 << 20)).acquire().await;
        let error = far_too_long.unwrap_err();
        assert!(format!("{error:?}").len() < 1000, "{error:?}");
        assert!(error.to_string().starts_with("`xxx"), "{error}");
        let builder = Client::builder(url).default_lease(too_short);
        let error = builder.connect().await.unwrap_err();
        assert!(
            matches!(error, Error::InvalidOption { name: None, .. }),
            "{error:?}"
        );
    }
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
                // The lock is under the key where Redisson expects it, with the value that it expects.
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
            // A waiter is notified of the release, on whatever channel that is.
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
