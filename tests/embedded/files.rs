//! Files and folders that cannot be used, and the permissions of new ones.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use distlock::blocking::Client;
use distlock::{Error, ReleaseOn};

use super::versions::known;
use super::{PATIENCE, StoreFile, once_within, wait_until};

/// Each name would have its own side files, and the users of one would not meet those of the other.
#[test]
fn a_file_with_two_names_is_refused() {
    let place = StoreFile::new();
    place.connect().close().expect("it answers");
    fs::hard_link(place.file(), place.folder.path().join("other.db")).expect("there is room");
    let said = refused(&place);
    assert!(said.contains("a hard link"), "{said}");
}

#[test]
fn an_emptied_file_is_rejected_and_a_removed_one_is_created_again() {
    let place = StoreFile::new();
    place.connect().close().expect("it answers");
    for end in ["-wal", "-shm"] {
        let _ = fs::remove_file(place.folder.path().join(format!("locks.db{end}")));
    }
    fs::write(place.file(), "").expect("it is ours");
    let said = refused(&place);
    assert!(said.contains("the file was emptied"), "{said}");
    fs::remove_file(place.file()).expect("it is ours");
    drop(place.connect());
}

/// Any program that cleans up may take the log for a left-over.
#[test]
fn a_forgotten_hold_is_not_only_in_the_write_ahead_log() {
    let place = StoreFile::new();
    let leaver =
        Client::connect_with(distlock::Client::builder(&place.url()).release_on(ReleaseOn::Lease));
    let leaver = leaver.expect("the file can be used");
    leaver.lock("a").acquire().expect("it is free").forget();
    leaver.close().expect("it answers");
    drop(leaver);
    for end in ["-wal", "-shm"] {
        let _ = fs::remove_file(place.folder.path().join(format!("locks.db{end}")));
    }
    let lock = place.connect().lock("a").try_acquire();
    assert!(lock.expect("it answers").is_none(), "it is still held");
}

#[test]
fn a_file_of_another_format_is_rejected_and_unchanged() {
    let place = StoreFile::new();
    let text = b"this is no database, and longer than a header of one would be: a hundred bytes and more, so that it counts";
    fs::write(place.file(), text).expect("there is room");
    let said = refused(&place);
    assert!(
        said.contains("choose another file with sqlite:PATH") && !said.contains("move"),
        "{said}"
    );
    assert_eq!(fs::read(place.file()).expect("it is there"), text);

    let place = StoreFile::new();
    let other = place.database();
    other
        .execute_batch("CREATE TABLE invoices (x)")
        .expect("there is room");
    let said = refused(&place);
    assert!(said.contains("another program"), "{said}");
    let tables: i64 = other
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .expect("it is there");
    assert_eq!(tables, 1);
}

#[test]
fn a_truncated_file_is_refused() {
    let place = StoreFile::new();
    let client = place.connect();
    for number in 0..200 {
        client
            .lock(format!("{number}"))
            .acquire()
            .expect("it is free")
            .forget();
    }
    client.close().expect("it answers");
    drop(client);
    let whole = place.database();
    let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
    whole
        .query_row(checkpoint, [], |_| Ok(()))
        .expect("it works");
    drop(whole);
    let file = fs::OpenOptions::new().write(true).open(place.file());
    let file = file.expect("it is ours");
    let length = file.metadata().expect("it is there").len();
    file.set_len(length / 2).expect("it is ours");
    drop(file);
    let said = refused(&place);
    assert!(
        said.contains("choose another file with sqlite:PATH") && !said.contains("move"),
        "{said}"
    );
}

#[test]
fn an_empty_file_is_as_good_as_none() {
    let place = StoreFile::new();
    fs::write(place.file(), b"").expect("there is room");
    fs::set_permissions(place.file(), Permissions::from_mode(0o600)).expect("it is ours");
    let client = place.connect();
    client
        .lock("a")
        .acquire()
        .expect("it is free")
        .release()
        .expect("it is ours");
}

#[test]
fn a_newer_version_is_refused() {
    let place = StoreFile::new();
    place.connect().close().expect("it answers");
    let newer = place.database();
    newer
        .pragma_update(None, "user_version", 99)
        .expect("it works");
    let said = refused(&place);
    assert!(
        said.contains("newer distlock") && said.contains("99"),
        "{said}"
    );
}

#[test]
fn a_newer_version_written_meanwhile_is_detected() {
    let place = StoreFile::new();
    let client = place.connect();
    let guard = client.lock("a").acquire().expect("it is free");
    let newer = place.database();
    newer
        .pragma_update(None, "user_version", 99)
        .expect("it works");
    let error = client
        .lock("b")
        .acquire()
        .expect_err("it may mean more by now");
    assert!(error.to_string().contains("newer distlock"), "{error}");
    newer
        .pragma_update(None, "user_version", known())
        .expect("it works");
    guard.release().expect("it is ours");
}

#[test]
fn an_invalid_row_is_reported() {
    let place = StoreFile::new();
    let client = place.connect();
    let spoil = "INSERT INTO states (name, state) VALUES ('a', ?1)";
    for nonsense in [
        "",
        "{",
        r#"{"queue":[]}"#,
        r#"{"held":{"mutex":{"owner":"me","count":1,"until":1}}}"#,
    ] {
        place
            .database()
            .execute(spoil, [nonsense])
            .expect("it works");
        let error = client.lock("a").acquire().expect_err("who holds it?");
        assert!(
            error.to_string().contains("the file is damaged"),
            "{nonsense}: {error}"
        );
        place
            .database()
            .execute("DELETE FROM states", [])
            .expect("it works");
    }
    assert!(
        client
            .lock("a")
            .try_acquire()
            .expect("it answers")
            .is_some()
    );
}

#[test]
fn an_unwritable_file_is_reported_with_a_remedy() {
    let said = refused_at("sqlite:/sys/locks.db");
    assert!(
        said.contains("/sys/locks.db") && said.contains("choose another"),
        "{said}"
    );
    let place = StoreFile::new();
    let said = refused_at(&format!("sqlite:{}", place.folder.path().display()));
    assert!(said.contains("not a regular file"), "{said}");
    fs::write(place.folder.path().join("file"), b"").expect("there is room");
    let below = place.folder.path().join("file/locks.db");
    let said = refused_at(&format!("sqlite:{}", below.display()));
    assert!(said.contains("file"), "{said}");
    for (url, why) in [
        ("sqlite://host/locks.db", "three slashes or none"),
        ("sqlite:locks.db?mode=ro", "no parameters"),
    ] {
        let error = Client::connect(url).expect_err("it makes no sense");
        assert!(matches!(error, Error::InvalidUrl { .. }), "{error:?}");
        assert!(error.to_string().contains(why), "{error}");
    }
}

/// The address of a socket is short; a waiter must be notified all the same.
#[test]
fn a_long_path_is_accepted() {
    let place = StoreFile::new();
    let folder = place.folder.path().join("f".repeat(150));
    let url = format!("sqlite:{}/locks%20of%20mine.db", folder.display());
    let (one, two) = (connect(&url), connect(&url));
    let file = rusqlite::Connection::open(folder.join("locks of mine.db")).expect("it is there");
    let listeners = || -> u32 {
        let count = file.query_row("SELECT count(*) FROM listeners", [], |row| row.get(0));
        count.expect("it can be read")
    };
    // A waiter that is not notified polls every two seconds.
    once_within(Duration::from_secs(1), "it is notified", || {
        let guard = one.lock("a").acquire().expect("it is free");
        let lock = two.lock("a");
        let waiter = std::thread::spawn(move || (lock.acquire_timeout(PATIENCE), Instant::now()));
        wait_until("it listens", || listeners() == 1);
        // The waiter polls once more after that, and then sleeps for two seconds.
        std::thread::sleep(Duration::from_millis(100));
        let released = Instant::now();
        guard.release().expect("it is ours");
        let (got, at) = waiter.join().expect("it does not panic");
        let got = got.expect("it answers").expect("it is free");
        got.release().expect("it is ours");
        wait_until("nobody listens", || listeners() == 0);
        at.duration_since(released)
    });
}

#[test]
fn the_removal_of_a_file_in_use_is_reported_to_its_holders() {
    // One missing file is enough: a client that connects later would read other files.
    let all = ["locks.db", "locks.db-wal", "locks.db-shm"];
    for gone in [&all[..], &all[1..2], &all[2..]] {
        let place = StoreFile::new();
        let builder = distlock::Client::builder(&place.url());
        let lease = distlock::Lease::KeepAlive(Duration::from_secs(1));
        let client = Client::connect_with(builder.default_lease(lease)).expect("it can be used");
        let guard = client.lock("a").acquire().expect("it is free");
        for file in gone {
            fs::remove_file(place.folder.path().join(file)).expect("it is there");
        }
        let lost = guard.wait_lost(PATIENCE);
        assert!(lost.is_some(), "others may hold it by now: {gone:?}");
        let error = client.lock("b").acquire().expect_err("the file has gone");
        assert!(error.to_string().contains("removed or replaced"), "{error}");
        drop((guard, client));
        // The new client succeeds as soon as the old one has closed the rest of its file.
        wait_until("a new client finds it free", || {
            let new = Client::connect(&place.url());
            new.is_ok_and(|new| matches!(new.lock("a").try_acquire(), Ok(Some(_))))
        });
    }
}

#[test]
fn opening_takes_no_longer_than_its_timeout() {
    let place = StoreFile::new();
    drop(place.connect());
    let other = place.database();
    other
        .execute_batch("BEGIN IMMEDIATE")
        .expect("nobody is writing");
    let begun = Instant::now();
    let builder = distlock::Client::builder(&place.url()).command_timeout(PATIENCE);
    let builder = builder.connect_timeout(Duration::from_millis(200));
    let error = Client::connect_with(builder).expect_err("somebody has it to itself");
    assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
    assert!(
        error.is_transient() && error.to_string().contains("locks.db"),
        "{error}"
    );
}

fn connect(url: &str) -> Client {
    Client::connect(url).expect("the file can be used")
}

/// Returns the error of connecting, and checks that no file that was there has changed.
pub(super) fn refused(place: &StoreFile) -> String {
    let before = all_of(place.folder.path());
    let said = refused_at(&place.url());
    let after = all_of(place.folder.path());
    // Readers record their position in the `-shm` file.
    let is_read = |path: &Path| path.to_str().is_some_and(|path| path.ends_with("-shm"));
    for (path, was) in before.iter().filter(|(path, _)| !is_read(path)) {
        let same = after.get(path) == Some(was);
        assert!(same, "{} was touched: {said}", path.display());
    }
    said
}

pub(super) fn refused_at(url: &str) -> String {
    let error = Client::connect(url).expect_err("it must be refused");
    let told = matches!(
        error,
        Error::Storage { .. } | Error::PermissionDenied { .. } | Error::OutOfMemory { .. }
    );
    assert!(told, "{error:?}");
    error.to_string()
}

/// Returns the content of a folder: each file's owner, mode and bytes.
fn all_of(folder: &Path) -> BTreeMap<PathBuf, (u32, u32, Vec<u8>)> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("it can be read") {
        let path = entry.expect("it can be read").path();
        let about = fs::symlink_metadata(&path).expect("it is there");
        let mut says = Vec::new();
        if about.is_dir() {
            all.extend(all_of(&path));
        } else if about.is_file() {
            says = fs::read(&path).expect("it can be read");
        }
        all.insert(path, (about.uid(), about.mode(), says));
    }
    all
}
