//! Keys that a lock would keep beside its own, with foreign content.

use super::Shape;

pub(crate) const SHAPES: &[Shape] = &[
    Shape {
        what: "text for a queue",
        key: "redisson_lock_queue:{side-1}",
        commands: &["SET redisson_lock_queue:{side-1} theirs"],
    },
    Shape {
        what: "a hash for a queue",
        key: "redisson_lock_queue:{side-2}",
        commands: &[
            "HSET redisson_lock_queue:{side-2} mode read",
            "EXPIRE redisson_lock_queue:{side-2} 86400",
        ],
    },
    Shape {
        what: "a hash for the times of a queue",
        key: "redisson_lock_timeout:{side-3}",
        commands: &["HSET redisson_lock_timeout:{side-3} order-1 1763463000"],
    },
    Shape {
        what: "text for a token",
        key: "redisson_lock_token:{side-4}",
        commands: &["SET redisson_lock_token:{side-4} v2-2026"],
    },
    Shape {
        what: "a list for a token",
        key: "redisson_lock_token:{side-5}",
        commands: &["RPUSH redisson_lock_token:{side-5} one two"],
    },
    Shape {
        what: "a token that has no end",
        key: "redisson_lock_token:{side-6}",
        commands: &["SET redisson_lock_token:{side-6} inf EX 86400"],
    },
    Shape {
        what: "a page for a token",
        key: "redisson_lock_token:{side-22}",
        commands: &["SETRANGE redisson_lock_token:{side-22} 4000000 end"],
    },
    Shape {
        what: "digits, and behind them text for a token",
        key: "redisson_lock_token:{side-23}",
        commands: &["SET redisson_lock_token:{side-23} -12345678901234567x"],
    },
    Shape {
        what: "nothing for a token",
        key: "redisson_lock_token:{side-24}",
        commands: &["SET redisson_lock_token:{side-24} ''"],
    },
    Shape {
        what: "a hash for undone acquires",
        key: "distlock_undone:{side-7}",
        commands: &["HSET distlock_undone:{side-7} order-1 1"],
    },
    Shape {
        what: "text for undone acquires",
        key: "distlock_undone:{side-8}",
        commands: &["SET distlock_undone:{side-8} theirs EX 86400"],
    },
    Shape {
        what: "text for who waits",
        key: "distlock_alive:{side-9}",
        commands: &["SET distlock_alive:{side-9} theirs"],
    },
    Shape {
        what: "a set for the writers",
        key: "distlock_writers:{side-10}",
        commands: &["SADD distlock_writers:{side-10} ann bob"],
    },
    Shape {
        what: "a hash for who waits for permits",
        key: "distlock_line:{side-11}",
        commands: &["HSET distlock_line:{side-11} order-1 1"],
    },
    Shape {
        what: "text for the clients that have permits",
        key: "distlock_clients:{side-12}",
        commands: &["SET distlock_clients:{side-12} theirs"],
    },
    Shape {
        what: "text for permits that are out",
        key: "{side-13}:timeout",
        commands: &["SET {side-13}:timeout 30"],
    },
    Shape {
        what: "a hash for permits that are out",
        key: "{side-14}:timeout",
        commands: &[
            "HSET {side-14}:timeout connect 30 read 60",
            "EXPIRE {side-14}:timeout 86400",
        ],
    },
    Shape {
        what: "a list for permits that are out",
        key: "side{15}:timeout",
        commands: &["RPUSH side{15}:timeout order-1 order-2"],
    },
    Shape {
        what: "a hash for what is known of a promotion",
        key: "distlock_promoted",
        commands: &["HSET distlock_promoted by ann at 1763463000"],
    },
    Shape {
        what: "orders in a list for a queue",
        key: "redisson_lock_queue:{side-17}",
        commands: &["RPUSH redisson_lock_queue:{side-17} order-1 order-2 order-3"],
    },
    Shape {
        what: "one order in a list for a queue",
        key: "redisson_lock_queue:{side-18}",
        commands: &[
            "RPUSH redisson_lock_queue:{side-18} order-1",
            "EXPIRE redisson_lock_queue:{side-18} 86400",
        ],
    },
    Shape {
        what: "owners, and behind them orders in a list for a queue",
        key: "redisson_lock_queue:{side-19}",
        commands: &[
            "EVAL \"for i = 1, 20 do redis.call('RPUSH', KEYS[1], '5c1f3b0e-52a1-4d04-9a2e-0b8f6e0f3f11:' .. i) end\" 1 redisson_lock_queue:{side-19}",
            "RPUSH redisson_lock_queue:{side-19} order-1 order-2",
        ],
    },
    Shape {
        what: "orders in a sorted set for the times of a queue",
        key: "redisson_lock_timeout:{side-20}",
        commands: &["ZADD redisson_lock_timeout:{side-20} 1763463000 order-1 1763463001 order-2"],
    },
    Shape {
        what: "orders for later in a sorted set for the times of a queue",
        key: "redisson_lock_timeout:{side-21}",
        commands: &[
            "EVAL \"for i = 1, 2000 do redis.call('ZADD', KEYS[1], 9999999999999 + i, 'order-' .. i) end\" 1 redisson_lock_timeout:{side-21}",
            "EXPIRE redisson_lock_timeout:{side-21} 86400",
        ],
    },
];
