//! Keys of sessions and caches: Spring Session, Rails, Laravel, Django, Node, PHP; counters and limits.

use super::Shape;

pub(crate) const SHAPES: &[Shape] = &[
    Shape {
        what: "Spring Session: a session",
        key: "spring:session:sessions:33fdd1b6-b496-4b33-9f7d-df96679d32fe",
        commands: &[
            r#"HSET spring:session:sessions:33fdd1b6-b496-4b33-9f7d-df96679d32fe creationTime "\xac\xed\x00\x05sr\x00\x0ejava.lang.Long;\x8b\xe4"
               lastAccessedTime "\xac\xed\x00\x05sr\x00\x0ejava.lang.Long;\x8b\xe5" maxInactiveInterval "\xac\xed\x00\x05sr\x00\x11java.lang.Integer"
               sessionAttr:SPRING_SECURITY_CONTEXT "\xac\xed\x00\x05sr\x00=org.springframework.security" sessionAttr:mode dark"#,
            "EXPIRE spring:session:sessions:33fdd1b6-b496-4b33-9f7d-df96679d32fe 2100",
        ],
    },
    Shape {
        what: "Spring Session: a session whose values are JSON",
        key: "spring:session:sessions:33fdd1b6-b496-4b33-9f7d-df96679d32ff",
        commands: &[
            "HSET spring:session:sessions:33fdd1b6-b496-4b33-9f7d-df96679d32ff creationTime 1763463000000 lastAccessedTime 1763463000001 maxInactiveInterval 1800 sessionAttr:visits 3",
            "EXPIRE spring:session:sessions:33fdd1b6-b496-4b33-9f7d-df96679d32ff 2100",
        ],
    },
    Shape {
        what: "Spring Session: the sessions that end in a minute",
        key: "spring:session:expirations:1763463060000",
        commands: &[
            r#"SADD spring:session:expirations:1763463060000 "\xac\xed\x00\x05t\x00,expires:33fdd1b6-b496-4b33-9f7d-df96679d32fe""#,
            "EXPIRE spring:session:expirations:1763463060000 2100",
        ],
    },
    Shape {
        what: "Spring Session: the key that ends with a session, which is empty",
        key: "spring:session:sessions:expires:33fdd1b6-b496-4b33-9f7d-df96679d32fe",
        commands: &[
            "SET spring:session:sessions:expires:33fdd1b6-b496-4b33-9f7d-df96679d32fe '' EX 1800",
        ],
    },
    Shape {
        what: "Rails: a cached object",
        key: "views/products/1-20261118",
        commands: &[
            r#"SET views/products/1-20261118 "\x04\x08o: ActiveSupport::Cache::Entry\x08:\x0b@valueI\"\x0a<li>\x06:\x06ET:\x0d@version0" EX 3600"#,
        ],
    },
    Shape {
        what: "Rails: a cached counter",
        key: "cache:hits",
        commands: &["SET cache:hits 12 PX 3600000"],
    },
    Shape {
        what: "Laravel: a cached object",
        key: "laravel_cache:user.7",
        commands: &[
            r#"SET laravel_cache:user.7 'a:2:{s:2:"id";i:7;s:4:"mode";s:5:"write";}' EX 3600"#,
        ],
    },
    Shape {
        what: "Laravel: a cache lock",
        key: "laravel_cache:report",
        commands: &["SET laravel_cache:report kXq3PzYw0f7BvL1n NX EX 3600"],
    },
    Shape {
        what: "Django: a cached object",
        key: ":1:views.decorators.cache.cache_page.a7f.en-us.UTC",
        commands: &[
            r#"SET :1:views.decorators.cache.cache_page.a7f.en-us.UTC "\x80\x05\x95\x1a\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x04mode\x94\x8c\x04read\x94u." EX 600"#,
        ],
    },
    Shape {
        what: "Node: a session",
        key: "sess:9Qm2",
        commands: &[
            r#"SET sess:9Qm2 '{"cookie":{"originalMaxAge":86400000,"expires":"2026-11-19T13:00:00.000Z"},"user":7}' EX 86400"#,
        ],
    },
    Shape {
        what: "PHP: a session",
        key: "PHPREDIS_SESSION:4m1k",
        commands: &[
            r#"SET PHPREDIS_SESSION:4m1k 'user|a:2:{s:2:"id";i:7;s:4:"name";s:3:"ann";}' EX 1440"#,
        ],
    },
    Shape {
        what: "a limit of requests in a minute",
        key: "rate:10.0.0.7",
        commands: &["SET rate:10.0.0.7 17 EX 6000"],
    },
    Shape {
        what: "a limit by a sliding window",
        key: "rate:{user:7}",
        commands: &[
            "ZADD rate:{user:7} 1763463000123 1763463000123-1 1763463000456 1763463000456-2",
        ],
    },
    Shape {
        what: "a limit by a bucket of tokens",
        key: "bucket:{user:7}",
        commands: &[
            "HSET bucket:{user:7} tokens 9.5 ts 1763463000",
            "EXPIRE bucket:{user:7} 6000",
        ],
    },
    Shape {
        what: "a counter",
        key: "visits",
        commands: &["INCRBY visits 123456"],
    },
    Shape {
        what: "a counter below zero",
        key: "balance",
        commands: &["DECRBY balance 5"],
    },
    Shape {
        what: "a counter as great as counters can be",
        key: "greatest",
        commands: &["SET greatest 9223372036854775807"],
    },
    Shape {
        what: "a sum of money",
        key: "revenue",
        commands: &["INCRBYFLOAT revenue 1234.5"],
    },
    Shape {
        what: "a version",
        key: "schema_version",
        commands: &["SET schema_version 007"],
    },
    Shape {
        what: "a number in hexadecimal",
        key: "colour",
        commands: &["SET colour 0x10"],
    },
    Shape {
        what: "a number with an exponent",
        key: "budget",
        commands: &["SET budget 1e9"],
    },
    Shape {
        what: "a number that has no end",
        key: "limit",
        commands: &["SET limit inf"],
    },
    Shape {
        what: "a number behind a space",
        key: "padded",
        commands: &["SET padded ' 7'"],
    },
    Shape {
        what: "a number before a line break",
        key: "echoed",
        commands: &[r#"SET echoed "7\x0a""#],
    },
    Shape {
        what: "a flag",
        key: "feature:new-checkout",
        commands: &["SET feature:new-checkout on"],
    },
    Shape {
        what: "one byte that is no text",
        key: "byte",
        commands: &[r#"SET byte "\xff""#],
    },
    Shape {
        what: "settings as JSON",
        key: "settings:web",
        commands: &[r#"SET settings:web '{"mode":"read","limit":7,"owners":["a","b"]}'"#],
    },
    Shape {
        what: "a user of an application",
        key: "user:7",
        commands: &["HSET user:7 name Ann email ann@example.org visits 7 last_login 1763463000"],
    },
    Shape {
        what: "a shopping cart",
        key: "cart:7",
        commands: &["HSET cart:7 sku-1 2 sku-2 1", "EXPIRE cart:7 86400"],
    },
    Shape {
        what: "a leaderboard",
        key: "scores",
        commands: &["ZADD scores 100 ann 250.5 bob -3 eve"],
    },
];
