//! The checks that tell Redisson's formats from other programs' data, run on the server as every script runs them.

use super::support::RedisServer;

const CLIENT: &str = "71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11";
const TRANSACTION: &str = "00112233445566778899aabbccddeeff";

const LOCK: &str = concat!(
    include_str!("../../src/engine/redis/lua/format/owner.lua"),
    include_str!("../../src/engine/redis/lua/format/lock.lua"),
    "return is_lock(KEYS[1]) and 1 or 0"
);
const READ_WRITE: &str = concat!(
    include_str!("../../src/engine/redis/lua/format/owner.lua"),
    include_str!("../../src/engine/redis/lua/format/read_write.lua"),
    "return read_write_mode(KEYS[1]) and 1 or 0"
);
const NUMBER: &str = concat!(
    include_str!("../../src/engine/redis/lua/format/number.lua"),
    "local number, wrong = stored_number(KEYS[1]) return not wrong and 1 or 0"
);
const PERMITS: &str = concat!(
    include_str!("../../src/engine/redis/lua/format/permits.lua"),
    "return are_permits(KEYS[1]) and 1 or 0"
);
const SIMPLE: &str = concat!(
    include_str!("../../src/engine/redis/lua/format/simple.lua"),
    "local holder, wrong = simple_holder(KEYS[1]) return not wrong and 1 or 0"
);

/// Writes the key with one command, and runs the check on it.
fn accepts(server: &RedisServer, check: &str, write: &[&str]) -> bool {
    server.cmd(&["DEL", "key"]);
    server.cmd(&[&[write[0], "key"], &write[1..]].concat());
    server.query::<i64>(&["EVAL", check, "1", "key"]) == 1
}

fn owner(rest: &str) -> String {
    format!("{CLIENT}:{rest}")
}

#[test]
fn owners_of_every_version_of_redisson_are_locks() {
    let server = RedisServer::start();
    let in_transaction = format!("47:{TRANSACTION}");
    for thread in ["47", "0", "-1", "-9223372036854775808", &in_transaction] {
        let owner = owner(thread);
        for count in ["1", "2", "999999999"] {
            assert!(
                accepts(&server, LOCK, &["HSET", &owner, count]),
                "{owner} {count}"
            );
        }
    }
}

#[test]
fn hashes_of_other_programs_are_no_locks() {
    let server = RedisServer::start();
    let plain = owner("47");
    for field in [
        "visits",
        "",
        CLIENT,
        &owner(""),
        &owner("x"),
        &owner("+1"),
        &owner("01"),
        &owner("1:"),
        &owner("1:write"),
        &owner("1:expire_time"),
        &owner("1:lock_count"),
        &owner("123456789012345678901"),
        &owner("47").to_uppercase(),
        &format!("x{plain}"),
        &format!("{plain}\n"),
        &format!("{plain}:{TRANSACTION}0"),
    ] {
        assert!(!accepts(&server, LOCK, &["HSET", field, "1"]), "{field:?}");
    }
    let long = "1".repeat(100_000);
    for count in [
        "", "0", "-1", "01", "1.0", "1e9", "inf", "0x10", " 1", "read", &long,
    ] {
        assert!(
            !accepts(&server, LOCK, &["HSET", &plain, count]),
            "{count:?}"
        );
    }
    // One field of another program makes the whole hash foreign, and so do very many owners.
    assert!(!accepts(
        &server,
        LOCK,
        &["HSET", &plain, "1", "visits", "7"]
    ));
    let mut crowd = vec!["HSET".to_owned()];
    for number in 0..40 {
        crowd.extend([owner(&number.to_string()), "1".to_owned()]);
    }
    let crowd: Vec<_> = crowd.iter().map(String::as_str).collect();
    assert!(!accepts(&server, LOCK, &crowd));
}

#[test]
fn read_write_locks_are_distinguished_from_hashes_with_a_mode() {
    let server = RedisServer::start();
    let (reader, writer) = (owner("-3"), owner("4:write"));
    let in_transaction = owner(&format!("4:write:{TRANSACTION}"));
    let mut crowd = vec!["HSET".to_owned(), "mode".to_owned(), "read".to_owned()];
    for number in 0..2000 {
        crowd.extend([owner(&number.to_string()), "1".to_owned()]);
    }
    let crowd: Vec<_> = crowd.iter().map(String::as_str).collect();
    for lock in [
        &["HSET", "mode", "read", &reader, "1"][..],
        &["HSET", "mode", "write", &writer, "2", &reader, "300"],
        &["HSET", "mode", "write", &in_transaction, "1"],
        &crowd,
    ] {
        assert!(accepts(&server, READ_WRITE, lock), "{lock:?}");
    }
    for other in [
        &["HSET", "mode", "eco", "updated_at", "1763463000"][..],
        &["HSET", "mode", "read"],
        &["HSET", "mode", "read", "size", "4096"],
        &["HSET", "mode", "write", &writer, "1", "size", "1"],
        &["HSET", "mode", "w", &writer, "1"],
        &["HSET", "mode", "read", &reader, "inf"],
        &["HSET", "mode", "read", &reader, "301"],
        &["HSET", "mode", "read", &reader, "1e9"],
        &["HSET", &reader, "1"],
    ] {
        assert!(!accepts(&server, READ_WRITE, other), "{other:?}");
    }
}

#[test]
fn numbers_are_exact_integers() {
    let server = RedisServer::start();
    for number in ["0", "7", "-7", "9007199254740991", "-9007199254740991"] {
        assert!(accepts(&server, NUMBER, &["SET", number]), "{number}");
    }
    let long = "1".repeat(1 << 20);
    for other in [
        "",
        "-0",
        "07",
        "+7",
        " 7",
        "7 ",
        "7.0",
        "7e3",
        "0x7",
        "inf",
        "nan",
        "9007199254740992",
        &long,
    ] {
        assert!(!accepts(&server, NUMBER, &["SET", other]), "{other:.20}");
    }
    server.cmd(&["DEL", "key"]);
    assert_eq!(
        server.query::<i64>(&["EVAL", NUMBER, "1", "key"]),
        1,
        "no key"
    );
}

#[test]
fn permits_have_ids_and_end_in_milliseconds() {
    let server = RedisServer::start();
    let hex = TRANSACTION;
    for (score, id) in [
        ("1763463000123", "0123456789abcdef"),
        ("922337203685477", "\u{1}\u{2}\u{3}456789abcdef0"),
        ("1763463000123", hex),
    ] {
        assert!(accepts(&server, PERMITS, &["ZADD", score, id]), "{id:?}");
    }
    for (score, id) in [
        ("1763463000", "0123456789abcdef"),
        ("1763463000123456", "0123456789abcdef"),
        ("1763463000123.5", "0123456789abcdef"),
        ("-inf", "0123456789abcdef"),
        ("inf", "0123456789abcdef"),
        ("1763463000123", "order-1"),
        ("1763463000123", &hex.to_uppercase()),
        ("1763463000123", &"z".repeat(32)),
    ] {
        assert!(
            !accepts(&server, PERMITS, &["ZADD", score, id]),
            "{score} {id}"
        );
    }
    // The member that is not a permit is found wherever its score sorts it to.
    let mut many = vec!["ZADD".to_owned()];
    for number in 0..500 {
        many.extend([
            format!("{}", 1_763_463_000_000_u64 + number),
            format!("{number:016}"),
        ]);
    }
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    assert!(accepts(&server, PERMITS, &many));
    for score in ["5", "1763463000600", "1763463000123456"] {
        let with_another = [&many[..], &[score, "order-1"]].concat();
        assert!(!accepts(&server, PERMITS, &with_another), "{score}");
    }
    server.cmd(&["DEL", "key"]);
    assert_eq!(
        server.query::<i64>(&["EVAL", PERMITS, "1", "key"]),
        1,
        "no key"
    );
}

#[test]
fn simple_locks_of_any_library_are_short() {
    let server = RedisServer::start();
    let (short, long) = ("x".repeat(256), "x".repeat(257));
    let ours = owner("1");
    for holder in ["", "1", "ADDED:2026-11-18T12:00:00Z@host", &ours, &short] {
        assert!(accepts(&server, SIMPLE, &["SET", holder]), "{holder}");
    }
    assert!(!accepts(&server, SIMPLE, &["SET", &long]));
}
