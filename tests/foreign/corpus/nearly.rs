//! Keys that are nearly a lock: fields called `mode`, fields like owners, sorted sets called `timeout`.

use super::Shape;

/// A hash with these fields.
macro_rules! hash {
    ($what:literal, $key:literal, $fields:literal) => {
        Shape {
            what: $what,
            key: $key,
            commands: &[concat!("HSET ", $key, " ", $fields)],
        }
    };
    ($what:literal, $key:literal, $fields:literal, ends) => {
        Shape {
            what: $what,
            key: $key,
            commands: &[
                concat!("HSET ", $key, " ", $fields),
                concat!("EXPIRE ", $key, " 86400"),
            ],
        }
    };
}

/// A sorted set with these scores and members.
macro_rules! zset {
    ($what:literal, $key:literal, $members:literal) => {
        Shape {
            what: $what,
            key: $key,
            commands: &[concat!("ZADD ", $key, " ", $members)],
        }
    };
}

pub(crate) const SHAPES: &[Shape] = &[
    hash!("mode eco", "device:42", "mode eco updated_at 1763463000"),
    hash!(
        "mode eco, and an end",
        "device:43",
        "mode eco updated_at 1763463000",
        ends
    ),
    hash!(
        "mode production",
        "app:config",
        "mode production theme dark limit 7"
    ),
    hash!(
        "mode read beside a size",
        "file:1",
        "mode read size 4096 path /x"
    ),
    hash!(
        "mode read beside a size, and an end",
        "file:2",
        "mode read size 4096 path /x",
        ends
    ),
    hash!(
        "mode write beside a size",
        "file:3",
        "mode write size 4096 path /x"
    ),
    hash!(
        "mode write beside a size, and an end",
        "file:4",
        "mode write size 4096 path /x",
        ends
    ),
    hash!(
        "mode read beside numbers alone",
        "file:5",
        "mode read size 4096 blocks 8"
    ),
    hash!(
        "mode write beside numbers alone",
        "file:6",
        "mode write size 4096 blocks 8"
    ),
    hash!("mode r", "file:7", "mode r size 4096"),
    hash!("mode w", "file:8", "mode w size 4096"),
    hash!(
        "mode 0644",
        "file:9",
        "mode 0644 uid 1000 gid 1000 size 4096"
    ),
    hash!("a quoted mode", "file:10", r#"mode "'read'" size 4096"#),
    hash!("mode READ", "file:11", "mode READ size 4096"),
    hash!("a mode that is empty", "file:12", "mode '' size 4096"),
    hash!(
        "mode read, without an end to its level",
        "amp:1",
        "mode read level inf"
    ),
    hash!(
        "mode eco, without an end to its level",
        "amp:2",
        "mode eco level inf",
        ends
    ),
    hash!("a level in hexadecimal", "amp:3", "mode read level 0x10"),
    hash!("a level with an exponent", "amp:4", "mode write level 1e9"),
    hash!("a level that is no number", "amp:5", "mode read level nan"),
    hash!("a level below zero", "amp:6", "mode read level -1", ends),
    hash!(
        "a client's id without a thread",
        "presence:1",
        "71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11 1"
    ),
    hash!(
        "a client's id without a thread, and an end",
        "presence:2",
        "71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11 1",
        ends
    ),
    hash!(
        "a word for a thread",
        "presence:3",
        "71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:abc 1",
        ends
    ),
    hash!(
        "an id in upper case",
        "presence:4",
        "71B96CE8-2746-4C1E-9F3B-0A5C1C0F9C11:1 1"
    ),
    hash!(
        "an id without its hyphens",
        "presence:5",
        "71b96ce827464c1e9f3b0a5c1c0f9c11:1 1"
    ),
    hash!(
        "an id that is too short",
        "presence:6",
        "71b96ce8-2746-4c1e-9f3b-0a5c1c:1 1",
        ends
    ),
    hash!(
        "five words in hexadecimal",
        "presence:7",
        "a-b-c-d-e:1 1",
        ends
    ),
    hash!(
        "an owner behind a word",
        "presence:8",
        "user-71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:1 1"
    ),
    hash!(
        "an owner with an infinite count",
        "presence:9",
        "71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:1 inf"
    ),
    hash!(
        "an owner with a time for a count",
        "presence:10",
        "71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:1 1000000000000000",
        ends
    ),
    hash!(
        "an owner with a negative count",
        "presence:11",
        "71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:1 -1"
    ),
    hash!(
        "an owner with a fraction for a count",
        "presence:12",
        "71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:1 1.5",
        ends
    ),
    hash!(
        "an owner with a count in hexadecimal",
        "presence:13",
        "71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:1 0x1"
    ),
    hash!(
        "an owner with a word for a count",
        "presence:14",
        "71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:1 online",
        ends
    ),
    hash!(
        "an owner without a count",
        "presence:15",
        "71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:1 ''"
    ),
    hash!(
        "an owner beside other fields",
        "presence:16",
        "71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:1 1 theme dark"
    ),
    hash!(
        "an owner beside other fields, and an end",
        "presence:17",
        "71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:1 1 theme dark",
        ends
    ),
    hash!(
        "an owner beside another mode",
        "presence:18",
        "mode eco 71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:1 1"
    ),
    hash!(
        "a reader with a time for a count",
        "presence:19",
        "mode read 71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:1 1763463000",
        ends
    ),
    hash!(
        "a reader with an infinite count",
        "presence:20",
        "mode read 71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:1 inf"
    ),
    hash!(
        "a reader beside other fields",
        "presence:21",
        "mode read 71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:1 1 path /x",
        ends
    ),
    hash!(
        "a writer beside other fields",
        "presence:22",
        "mode write 71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:1:write 1 path /x"
    ),
    hash!(
        "a writer with a negative count",
        "presence:23",
        "mode write 71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:1:write -1"
    ),
    hash!(
        "a label for a mode",
        "presence:24",
        "mode 71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:1"
    ),
    zset!(
        "orders and when they end, in seconds",
        "x:timeout",
        "1795000000 order-1 1999999999 order-2"
    ),
    zset!(
        "the same between braces",
        "{orders}:timeout",
        "1795000000 order-1 1795000100 order-2 1999999999 order-3"
    ),
    zset!(
        "the same without a number beside it",
        "{carts}:timeout",
        "1795000000 cart-1 1795000100 cart-2"
    ),
    zset!(
        "the same in milliseconds",
        "{trips}:timeout",
        "1763463000123 trip-1 4102444800000 trip-2"
    ),
    zset!("the same behind a word", "app{1}:timeout", "5 x 6 y"),
    zset!(
        "ids of clients",
        "{peers}:timeout",
        "1763463000123 71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11"
    ),
    zset!(
        "ids of one byte too many",
        "{spans}:timeout",
        "1763463000123 trace-00000000001"
    ),
    zset!(
        "ids of 32 bytes that are not hexadecimal",
        "{keys}:timeout",
        "1763463000123 session-0123456789abcdef012345-xy"
    ),
    zset!(
        "ids of permits beside others",
        "{mixed}:timeout",
        "1763463000123 0123456789abcdef 1763463000124 order-1"
    ),
    zset!(
        "ids like those of permits, without a number",
        "{traces}:timeout",
        "1763463000123 0123456789abcdef 4102444800000 fedcba9876543210"
    ),
    zset!(
        "ends that never come",
        "{games}:timeout",
        "inf game-1 -inf game-2 0.5 game-3"
    ),
    Shape {
        what: "the number of orders",
        key: "orders",
        commands: &["SET orders 17"],
    },
    Shape {
        what: "the names of trips",
        key: "trips",
        commands: &["SADD trips trip-1 trip-2"],
    },
    Shape {
        what: "the number of mixed ids",
        key: "mixed",
        commands: &["SET mixed 3 EX 86400"],
    },
    Shape {
        what: "fields with long names",
        key: "index:1",
        commands: &[
            "EVAL \"for i = 1, 64 do redis.call('HSET', KEYS[1], i .. string.rep('word', 5000), 1) end\" 1 index:1",
        ],
    },
    Shape {
        what: "mode read beside fields with long names",
        key: "index:2",
        commands: &[
            "HSET index:2 mode read",
            "EVAL \"for i = 1, 63 do redis.call('HSET', KEYS[1], i .. string.rep('word', 5000), 1) end\" 1 index:2",
        ],
    },
    Shape {
        what: "long members",
        key: "{pages}:timeout",
        commands: &[
            "EVAL \"for i = 1, 64 do redis.call('ZADD', KEYS[1], 1763463000123, i .. string.rep('word', 5000)) end\" 1 {pages}:timeout",
        ],
    },
    Shape {
        what: "long members of a queue's times",
        key: "redisson_lock_timeout:{pages}",
        commands: &[
            "EVAL \"for i = 1, 64 do redis.call('ZADD', KEYS[1], i, i .. string.rep('word', 5000)) end\" 1 redisson_lock_timeout:{pages}",
        ],
    },
    Shape {
        what: "long entries for a queue",
        key: "redisson_lock_queue:{mails}",
        commands: &[
            "EVAL \"for i = 1, 64 do redis.call('RPUSH', KEYS[1], i .. string.rep('word', 5000)) end\" 1 redisson_lock_queue:{mails}",
        ],
    },
];
