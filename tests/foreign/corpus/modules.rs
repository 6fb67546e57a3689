//! Keys of a module's type, as RedisJSON, RedisTimeSeries and Bloom filters have them: only the module knows their content.

use super::Shape;

pub(crate) const SHAPES: &[Shape] = &[
    Shape {
        what: "a module: a document",
        key: "doc:1",
        commands: &[
            r#"FOREIGN.SET doc:1 '{"mode":"read","71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:1":1}'"#,
        ],
    },
    Shape {
        what: "a module: a document with an end",
        key: "doc:2",
        commands: &["FOREIGN.SET doc:2 '{}'", "EXPIRE doc:2 86400"],
    },
    Shape {
        what: "a module: a number",
        key: "filter:items",
        commands: &["FOREIGN.SET filter:items 7"],
    },
    Shape {
        what: "a module: an owner",
        key: "series:owner",
        commands: &["FOREIGN.SET series:owner 5c1f3b0e-52a1-4d04-9a2e-0b8f6e0f3f11:9"],
    },
    Shape {
        what: "a module: a document of 1 MB",
        key: "doc:3",
        commands: &[
            "EVAL \"return redis.call('FOREIGN.SET', KEYS[1], string.rep('read', 262144))\" 1 doc:3",
        ],
    },
    Shape {
        what: "a module: a document for a queue",
        key: "redisson_lock_queue:{module-1}",
        commands: &["FOREIGN.SET redisson_lock_queue:{module-1} one"],
    },
    Shape {
        what: "a module: a document for a token",
        key: "redisson_lock_token:{module-2}",
        commands: &["FOREIGN.SET redisson_lock_token:{module-2} 7"],
    },
    Shape {
        what: "a module: a document for undone acquires",
        key: "distlock_undone:{module-3}",
        commands: &["FOREIGN.SET distlock_undone:{module-3} {}"],
    },
    Shape {
        what: "a module: a document for permits",
        key: "{module-4}:timeout",
        commands: &[
            "FOREIGN.SET {module-4}:timeout {}",
            "EXPIRE {module-4}:timeout 86400",
        ],
    },
];
