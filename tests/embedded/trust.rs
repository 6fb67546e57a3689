//! The checks of the owner of a file, of the users who may write to it, and of the users who may replace it.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use distlock::blocking::Client;

use super::StoreFile;
use super::files::{refused, refused_at};

#[test]
fn files_are_made_for_this_user_only() {
    let place = StoreFile::new();
    let url = format!(
        "sqlite:{}/new/folder/locks.db",
        place.folder.path().display()
    );
    let client = Client::connect(&url).expect("folders are made");
    let _guard = client.lock("a").acquire().expect("it is free");
    let folder = place.folder.path().join("new/folder");
    assert_eq!(mode(&place.folder.path().join("new")), 0o700);
    assert_eq!(mode(&folder), 0o700);
    assert_eq!(mode(&folder.join("locks.db-clients")), 0o700);
    for file in ["locks.db", "locks.db-wal", "locks.db-shm"] {
        assert_eq!(mode(&folder.join(file)), 0o600, "{file}");
    }
    for file in fs::read_dir(folder.join("locks.db-clients")).expect("it is there") {
        assert_eq!(mode(&file.expect("it can be read").path()), 0o600);
    }
}

#[test]
fn a_file_that_others_can_write_is_refused() {
    for others in [0o620, 0o602, 0o666] {
        let place = StoreFile::new();
        place.connect().close().expect("it answers");
        fs::set_permissions(place.file(), Permissions::from_mode(others)).expect("it is ours");
        let said = refused(&place);
        assert!(said.contains("other users can write to it"), "{said}");
        assert!(said.contains(&place.file().display().to_string()), "{said}");
        assert!(said.contains("chmod go-w"), "{said}");
    }
}

#[test]
fn a_folder_where_others_can_replace_the_file_is_refused() {
    let place = StoreFile::new();
    let folder = place.folder.path();
    fs::set_permissions(folder, Permissions::from_mode(0o777)).expect("it is ours");
    let said = refused(&place);
    assert!(said.contains("can replace files in this folder"), "{said}");
    // As in /tmp: every user may write, and only the owner may remove or replace a file.
    fs::set_permissions(folder, Permissions::from_mode(0o1777)).expect("it is ours");
    drop(place.connect());
}

/// A user who may rename a folder further up can put another in its place.
#[test]
fn a_folder_that_others_can_replace_as_a_whole_is_refused() {
    let place = StoreFile::new();
    let above = place.folder.path().join("above");
    let url = format!("sqlite:{}/mine/locks.db", above.display());
    Client::connect(&url).expect("folders are made");
    fs::set_permissions(&above, Permissions::from_mode(0o777)).expect("it is ours");
    let said = refused_at(&url);
    assert!(said.contains("can replace files in this folder"), "{said}");
    assert!(said.contains(&above.display().to_string()), "{said}");
    fs::set_permissions(&above, Permissions::from_mode(0o1777)).expect("it is ours");
    drop(Client::connect(&url).expect("nobody else may rename what is in it"));
}

#[test]
fn another_users_file_is_refused() {
    // A file of root's is another user's file unless the test runs as root; then one is made.
    let place = StoreFile::new();
    let said = if rustix::process::geteuid().is_root() {
        place.connect().close().expect("it answers");
        std::os::unix::fs::chown(place.file(), Some(65_534), None).expect("root may");
        refused(&place)
    } else {
        refused_at("sqlite:/etc/hostname")
    };
    assert!(said.contains("belongs to another user"), "{said}");
}

#[test]
fn a_link_is_followed_before_any_check() {
    let (place, elsewhere) = (StoreFile::new(), StoreFile::new());
    drop(elsewhere.connect());
    std::os::unix::fs::symlink(elsewhere.file(), place.file()).expect("there is room");
    let folder = elsewhere.folder.path();
    fs::set_permissions(folder, Permissions::from_mode(0o777)).expect("it is ours");
    let said = refused(&place);
    assert!(said.contains("can replace files in this folder"), "{said}");
    fs::set_permissions(folder, Permissions::from_mode(0o700)).expect("it is ours");
    let (one, two) = (place.connect(), elsewhere.connect());
    let _guard = one.lock("a").acquire().expect("it is free");
    let other = two.lock("a").try_acquire().expect("it answers");
    assert!(other.is_none(), "one file, two names");
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").mode() & 0o7777
}
