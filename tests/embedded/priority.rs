//! The order in which one client's requests reach the file.

use std::sync::Arc;
use std::time::Duration;

use distlock::internals::engine::events::Events;
use distlock::internals::engine::sqlite::{Sqlite, SqliteSettings};
use distlock::internals::engine::{Engine, StoreError};
use distlock::internals::protocol::{
    Action, ClientId, Entry, Kind, OwnerId, PermitRequest, Reply, Request, Subject,
};

use super::{PATIENCE, StoreFile};

/// Requests of callers that are queued before the one that matters.
const CROWD: u32 = 1_000;

/// Each caller requests the state of the lock that the background request acquires: a reply that shows the lock as free was carried out
/// earlier.
#[test]
fn background_requests_overtake_queued_callers() {
    let place = StoreFile::new();
    let (runtime, engine) = connect(&place);
    let blocker = place.database();
    blocker.execute_batch("BEGIN IMMEDIATE").expect("no writer");
    let lock = Subject::new(Kind::Mutex, "a");
    let callers: Vec<_> = (0..CROWD)
        .map(|_| engine.call(lock.request(Action::Inspect)))
        .collect();
    let background = engine.clone().call_background(vec![acquire(&lock, 1)]);
    blocker.execute_batch("ROLLBACK").expect("it was begun");
    runtime.block_on(async {
        let replies = background.await;
        assert_eq!(replies, [Ok(Reply::Granted { token: None })]);
        let mut earlier = 0;
        for reply in callers {
            match reply.await.expect("the file works") {
                Reply::Inspected(None) => earlier += 1,
                Reply::Inspected(Some(_)) => {}
                other => panic!("{other:?}"),
            }
        }
        // One request was being carried out when the background request came.
        assert!(earlier <= 1, "{earlier} of {CROWD} came first");
    });
}

#[test]
fn abandoned_requests_are_skipped() {
    let place = StoreFile::new();
    let (runtime, engine) = connect(&place);
    let blocker = place.database();
    blocker.execute_batch("BEGIN IMMEDIATE").expect("no writer");
    for number in 0..CROWD {
        let lock = Subject::new(Kind::Mutex, &*format!("abandoned {number}"));
        drop(engine.call(acquire(&lock, i64::from(number))));
        drop(engine.clone().call_background(vec![acquire(&lock, 1)]));
    }
    let last = Subject::new(Kind::Mutex, "last");
    let last = engine.call(acquire(&last, 1));
    blocker.execute_batch("ROLLBACK").expect("it was begun");
    let reply: Result<Reply, StoreError> = runtime.block_on(last);
    assert_eq!(reply, Ok(Reply::Granted { token: None }));
    // The last one, and the one that was being carried out while its caller was dropped.
    let carried_out = place.rows("states");
    assert!(carried_out <= 2, "{carried_out} of {CROWD}");
}

fn connect(place: &StoreFile) -> (tokio::runtime::Runtime, Arc<Sqlite>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("there are threads");
    let settings = SqliteSettings {
        path: place.file(),
        prefix: "".into(),
        client: ClientId::new([7; 16]),
        release_on: distlock::ReleaseOn::Process,
        connect_timeout: PATIENCE,
        busy_timeout: PATIENCE,
        clock: Default::default(),
        events: Events::inline(),
    };
    let engine = runtime.block_on(Sqlite::connect(settings, runtime.handle()));
    (runtime, engine.expect("the file can be used"))
}

fn acquire(lock: &Subject, number: i64) -> Request {
    lock.request(Action::Acquire {
        owner: OwnerId::new(ClientId::new([7; 16]), number),
        entry: Entry::Fresh,
        lease: Duration::from_secs(600),
        min_token: None,
        waiter_ttl: None,
        other_side: None,
        bypass_writers: false,
        permits: PermitRequest::ONE,
    })
}
