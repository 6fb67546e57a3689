//! Files that older versions have written.
//!
//! `versions/N.sql` is the file of version N, checked in when it was made and never changed since. All of them say the same: `nightly` is
//! held twice by [`OWNER`], and a listener has undone an acquire of its own.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::StoreFile;

const OWNER: &str = "71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:1";
const LISTENER: &str = "c0ffee00-2746-4c1e-9f3b-0a5c1c0f9c22:7";

#[test]
fn every_version_loads_and_its_holds_are_kept() {
    for (version, sql) in versions() {
        let place = written(&sql);
        let client = place.connect();
        assert_eq!(user_version(&place), known(), "version {version}");
        let lock = client.lock("nightly").try_acquire().expect("it answers");
        assert!(lock.is_none(), "version {version}: it was held");
        let held = client.admin().inspect("nightly").expect("it answers");
        let held = held.expect("it is held");
        let [holder] = &*held.holders else {
            panic!("version {version}: {held:?}")
        };
        assert_eq!((&*holder.owner, holder.hold_count), (OWNER, 2));
        let label = holder.label.as_deref();
        assert_eq!(label, Some("ada@web1 pid 4242: ./backup.sh"));

        assert!(client.admin().force_release("nightly").expect("it answers"));
        let left = format!(
            r#"{{"marks":[{{"owner":"{LISTENER}","attempt":1,"until":1000000300000000000}}]}}"#
        );
        assert_eq!(line(&place), left, "version {version}");
        // The listener has gone: the release notified it, and the next client finds that it has gone.
        let free = client.lock("nightly").try_acquire().expect("it answers");
        assert!(free.is_some(), "version {version}: it was given back");
        assert_eq!(place.rows("listeners"), 0, "version {version}");
    }
}

#[test]
fn there_is_a_file_of_every_version() {
    let numbers: Vec<i64> = versions().into_iter().map(|(number, _)| number).collect();
    let all: Vec<i64> = (1..=known()).collect();
    assert_eq!(
        numbers, all,
        "a new step in the schema wants a new file in tests/embedded/versions"
    );
}

/// The previous version could not read a new field, and would report that instead of asking for an upgrade.
#[test]
#[cfg(feature = "internals")]
fn the_written_format_is_that_of_the_last_version() {
    use std::time::Duration;

    use distlock::internals::protocol::permit::permit_owner;
    use distlock::internals::protocol::state::{ApplyContext, State};
    use distlock::internals::protocol::store_queue::MemoryQueue;
    use distlock::internals::protocol::tombstones::TOMBSTONE_TTL;
    use distlock::internals::protocol::{
        Action, CounterOp, Entry, FencingToken, IdempotencyKey, Kind, Moment, OwnerId,
        PermitRequest, SemaphoreOp, Subject,
    };

    let (_, newest) = versions().pop().expect("there is one");
    let newest = written(&newest);
    let owner = |text: &str| text.parse::<OwnerId>().expect("an owner");
    let acquire = |text, entry, waiter_ttl| Action::Acquire {
        owner: owner(text),
        entry,
        lease: TOMBSTONE_TTL,
        min_token: None,
        waiter_ttl,
        other_side: None,
        bypass_writers: false,
        permits: PermitRequest::ONE,
    };
    let again = Entry::Reentry {
        attempt: 2,
        count: 2,
    };
    let late = Action::Undo {
        owner: owner(LISTENER),
        entry: Entry::Fresh,
    };
    let nightly = [
        (Kind::Fenced, acquire(OWNER, Entry::Fresh, None)),
        (Kind::Fenced, acquire(OWNER, again, None)),
        (Kind::Fenced, late),
    ];
    let waits = Some(TOMBSTONE_TTL);
    let prices = [
        (Kind::Read, acquire(OWNER, Entry::Fresh, None)),
        (Kind::Write, acquire(LISTENER, Entry::Fresh, waits)),
    ];
    let client = owner(OWNER).client();
    let exports = [
        (Kind::Semaphore, Action::SemaphoreOp(SemaphoreOp::Set(3))),
        (
            Kind::Semaphore,
            Action::Acquire {
                owner: permit_owner(client, 1, 1),
                entry: Entry::Fresh,
                lease: TOMBSTONE_TTL,
                min_token: None,
                waiter_ttl: None,
                other_side: None,
                bypass_writers: false,
                permits: PermitRequest::ONE,
            },
        ),
    ];
    let alter = |number, change| Action::CounterOp {
        key: IdempotencyKey {
            id: OwnerId::new(client, number),
            acked_below: 1,
        },
        change,
    };
    let take = CounterOp::Take {
        queue_owner: owner(LISTENER),
        count: 2,
        waiter_ttl: None,
    };
    let undone = Action::Undo {
        owner: OwnerId::new(client, 3),
        entry: Entry::Fresh,
    };
    let slots = [
        (Kind::Counting, alter(1, CounterOp::SetOnce(5))),
        (Kind::Counting, alter(2, take)),
        (Kind::Counting, undone),
    ];
    let loaded = [(Kind::Latch, alter(1, CounterOp::SetOnce(4)))];
    for (name, actions) in [
        ("nightly", &nightly[..]),
        ("prices", &prices),
        ("exports", &exports),
        ("slots", &slots),
        ("loaded", &loaded),
    ] {
        let mut state = State::default();
        for (kind, action) in actions {
            let ctx = ApplyContext {
                now: Moment::at(Duration::from_secs(1_000_000_000)),
                subscribers: 0,
                next_token: FencingToken::new(1_794_832_496_000_001),
            };
            let request = Subject::new(*kind, name).request(action.clone());
            state.apply(&request, &ctx, &mut MemoryQueue::default());
        }
        let today = serde_json::to_string(&state).expect("it is text");
        assert_eq!(
            today,
            line_of(&newest, name),
            "a new field of `State` wants a new step in the schema, and a file of it"
        );
    }
}

/// The format version that this version writes.
pub(crate) fn known() -> i64 {
    let place = StoreFile::new();
    drop(place.connect());
    user_version(&place)
}

/// All format versions ever written, the oldest first.
fn versions() -> Vec<(i64, String)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/embedded/versions");
    let files = fs::read_dir(folder).expect("it is checked in");
    let mut versions: Vec<_> = files
        .map(|file| {
            let path = file.expect("it can be read").path();
            let number = path.file_stem().and_then(|name| name.to_str());
            let number = number.and_then(|name| name.parse().ok());
            let sql = fs::read_to_string(&path).expect("it is text");
            (number.expect("its name is a number"), sql)
        })
        .collect();
    versions.sort();
    versions
}

/// Makes a file with this content, as of the current boot of the machine.
fn written(sql: &str) -> StoreFile {
    let place = StoreFile::new();
    let file = place.database();
    // Up to version 5, the boot and the clock were one text.
    let (id, link, clock) = boot();
    let boot = if sql.contains("'CLOCK'") { id } else { link };
    file.execute_batch(&sql.replace("BOOT", &boot).replace("CLOCK", &clock))
        .expect("it was written once");
    let ours = Permissions::from_mode(0o600);
    fs::set_permissions(place.file(), ours).expect("it is ours");
    place
}

/// Returns the id of the boot; the same with its time namespace; the offset of its clock.
fn boot() -> (String, String, String) {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("this is Linux");
    let link = fs::read_link("/proc/self/ns/time").unwrap_or_default();
    let id = id.trim().to_owned();
    let link = format!("{id} {}", link.display());
    let offsets = fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    let offset = offsets.lines().find(|line| line.starts_with("boottime"));
    let offset = offset.unwrap_or("boottime 0 0").split_whitespace();
    (id, link, offset.collect::<Vec<_>>().join(" "))
}

/// Returns the state of `nightly` in the file.
fn line(place: &StoreFile) -> String {
    line_of(place, "nightly")
}

fn line_of(place: &StoreFile, name: &str) -> String {
    let sql = "SELECT state FROM states WHERE name = ?1";
    let line = place.database().query_row(sql, [name], |row| row.get(0));
    line.expect("it is there")
}

fn user_version(place: &StoreFile) -> i64 {
    let version = place
        .database()
        .query_row("PRAGMA user_version", [], |row| row.get(0));
    version.expect("it says")
}
