//! Each of the server's own data types, small and large.

use super::Shape;

pub(crate) const SHAPES: &[Shape] = &[
    Shape {
        what: "a list",
        key: "list",
        commands: &["RPUSH list one two three"],
    },
    Shape {
        what: "a set",
        key: "set",
        commands: &["SADD set one two three"],
    },
    Shape {
        what: "a set of numbers",
        key: "numbers",
        commands: &["SADD numbers 1 2 3", "EXPIRE numbers 86400"],
    },
    Shape {
        what: "a hash of bytes that are no text",
        key: "bytes",
        commands: &[r#"HSET bytes "\xff\xfe" "\xfd" mode "\xff""#],
    },
    Shape {
        what: "a stream that a group reads",
        key: "stream",
        commands: &[
            "XADD stream 1-1 temperature 21.5 mode read",
            "XGROUP CREATE stream readers 0",
            "XREADGROUP GROUP readers ann COUNT 1 STREAMS stream >",
        ],
    },
    Shape {
        what: "a hyperloglog",
        key: "visitors",
        commands: &["PFADD visitors ann bob eve"],
    },
    Shape {
        what: "a geographic index",
        key: "shops",
        commands: &["GEOADD shops 13.361389 38.115556 Palermo 15.087269 37.502669 Catania"],
    },
    Shape {
        what: "a bitmap",
        key: "active:2026-11-18",
        commands: &[
            "SETBIT active:2026-11-18 70000 1",
            "EXPIRE active:2026-11-18 86400",
        ],
    },
    Shape {
        what: "counters in a bit field",
        key: "bits",
        commands: &["BITFIELD bits SET u8 0 49 SET u8 8 50"],
    },
    Shape {
        what: "a string of 5 MB",
        key: "export.csv",
        commands: &[
            "EVAL \"return redis.call('SET', KEYS[1], string.rep('12345,67', 655360))\" 1 export.csv",
        ],
    },
    Shape {
        what: "digits only, 100,000 of them",
        key: "pi",
        commands: &[
            "EVAL \"return redis.call('SET', KEYS[1], string.rep('3141592653', 10000))\" 1 pi",
        ],
    },
    Shape {
        what: "a hash of 100,000 fields",
        key: "sessions",
        commands: &[
            "EVAL \"for i = 1, 100000 do redis.call('HSET', KEYS[1], 'session:' .. i, i) end\" 1 sessions",
        ],
    },
    Shape {
        what: "a hash of 100,000 fields, with a mode and an end",
        key: "shadows",
        commands: &[
            "EVAL \"for i = 1, 100000 do redis.call('HSET', KEYS[1], 'device:' .. i, i) end\" 1 shadows",
            "HSET shadows mode read",
            "EXPIRE shadows 86400",
        ],
    },
    Shape {
        what: "a hash of 5,000 fields that look like owners, and a mode",
        key: "devices",
        commands: &[
            "EVAL \"for i = 1, 5000 do redis.call('HSET', KEYS[1], '71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:' .. i, i) end\" 1 devices",
            "HSET devices mode read",
        ],
    },
    Shape {
        what: "a hash whose one value has 1 MB",
        key: "document:7",
        commands: &[
            "EVAL \"return redis.call('HSET', KEYS[1], 'mode', string.rep('read', 262144))\" 1 document:7",
        ],
    },
    Shape {
        what: "a list of 20,000",
        key: "log",
        commands: &[
            "EVAL \"for i = 1, 20000 do redis.call('RPUSH', KEYS[1], 'line ' .. i) end\" 1 log",
        ],
    },
    Shape {
        what: "a sorted set of 20,000",
        key: "{sessions}:timeout",
        commands: &[
            "EVAL \"for i = 1, 20000 do redis.call('ZADD', KEYS[1], 1763463000 + i, 'session:' .. i) end\" 1 {sessions}:timeout",
        ],
    },
];
