//! Checks that a file and its directory belong to this user alone, and are on a file system where
//! locks work.

use std::fs::{self, DirBuilder, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::error::{from_io, unusable};
use crate::engine::StoreError;

const DIR_MODE: u32 = 0o700;
pub(super) const FILE_MODE: u32 = 0o600;
/// The group and others may write.
const GROUP_OR_OTHERS_WRITE: u32 = 0o022;
/// All users may write.
const ANYONE_WRITE: u32 = 0o002;
/// Only the owner of an entry may rename or remove it.
const STICKY: u32 = 0o1000;

/// Creates the file and its parent directories where they are missing, for this user only, and
/// refuses what other users could change: a user that can write to the file decides which client
/// holds a lock.
///
/// Returns the file's real path, and whether it was created just now.
pub(super) fn prepare_file(path: &Path) -> Result<(PathBuf, bool), StoreError> {
    let path = &resolve(path)?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    for (height, folder) in folder.ancestors().enumerate() {
        check_parent_dir(folder, height == 0)?;
    }
    check_local(folder)?;
    let made = create_file(path)?;
    let file = fs::metadata(path).map_err(|error| from_io(path, &error))?;
    if !file.is_file() {
        return Err(unusable(
            path,
            "not a regular file; name a file with sqlite:PATH",
        ));
    }
    if file.nlink() > 1 {
        let why = "the file has another name (a hard link), whose users would not share these locks; remove one, \
                   or use a symbolic link";
        return Err(unusable(path, why));
    }
    check_owner(path, &file)?;
    // In a directory where all users may create files, another user may have created these.
    for end in ["-wal", "-shm", "-journal"] {
        let path = with_suffix(path, end);
        if let Ok(file) = fs::symlink_metadata(&path) {
            check_owner(&path, &file)?;
        }
    }
    Ok((path.clone(), made))
}

/// Refuses a directory whose entries other users may replace. For directories further up the group
/// is trusted.
fn check_parent_dir(folder: &Path, closest: bool) -> Result<(), StoreError> {
    let found = fs::metadata(folder).map_err(|error| from_io(folder, &error))?;
    let foreign = found.uid() != effective_uid() && found.uid() != ROOT;
    let writers = if closest {
        GROUP_OR_OTHERS_WRITE
    } else {
        ANYONE_WRITE
    };
    let open = found.mode() & writers != 0 && found.mode() & STICKY == 0;
    if !(open || foreign && closest) {
        return Ok(());
    }
    let why =
        "other users can replace files in this folder; choose a folder that only you can write to";
    Err(unusable(folder, why))
}

/// Returns the path of the file with this suffix.
pub(super) fn with_suffix(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

/// Resolves links, so that the path that is checked is the one that is used.
fn resolve(path: &Path) -> Result<PathBuf, StoreError> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    create_dir(folder)?;
    let found = match path.canonicalize() {
        Ok(found) => Ok(found),
        Err(_) => folder.canonicalize().map(|folder| match path.file_name() {
            Some(name) => folder.join(name),
            None => folder,
        }),
    };
    found.map_err(|error| from_io(path, &error))
}

/// Creates the file if it is missing; reports whether it did.
fn create_file(path: &Path) -> Result<bool, StoreError> {
    // One thread at a time, and the file is closed before the next one goes on: closing a file ends
    // all locks that this process has on it, also those of SQLite in another client.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut options = OpenOptions::new();
    let options = options.write(true).create_new(true).mode(FILE_MODE);
    match options.open(path) {
        Ok(file) => {
            drop(file);
            Ok(true)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(from_io(path, &error)),
    }
}

/// Creates a directory if it is missing, and refuses one that does not belong to this user alone.
pub(super) fn prepare_dir(path: &Path) -> Result<(), StoreError> {
    create_dir(path)?;
    let folder = fs::symlink_metadata(path).map_err(|error| from_io(path, &error))?;
    if !folder.is_dir() {
        return Err(unusable(
            path,
            "not a folder, although one is needed there; choose another file with sqlite:PATH",
        ));
    }
    check_owner(path, &folder)
}

fn create_dir(path: &Path) -> Result<(), StoreError> {
    if path.is_dir() {
        return Ok(());
    }
    let mut options = DirBuilder::new();
    let made = options.recursive(true).mode(DIR_MODE).create(path);
    made.map_err(|error| from_io(path, &error))
}

fn check_owner(path: &Path, found: &Metadata) -> Result<(), StoreError> {
    if found.uid() != effective_uid() {
        let why = "it belongs to another user; choose another file with sqlite:PATH";
        return Err(unusable(path, why));
    }
    if others_write(found) {
        let why = format!(
            "other users can write to it (mode {:o}); remove that permission with `chmod go-w`",
            found.mode() & 0o777
        );
        return Err(unusable(path, &why));
    }
    Ok(())
}

fn others_write(found: &Metadata) -> bool {
    found.mode() & GROUP_OR_OTHERS_WRITE != 0
}

/// Refuses a network file system: processes of several machines share no clock and, often, no file
/// locks.
fn check_local(folder: &Path) -> Result<(), StoreError> {
    let Ok(system) = rustix::fs::statfs(folder) else {
        return Ok(());
    };
    // The width of the type depends on the machine; 32 bits of it tell file systems apart.
    let kind = u32::try_from(system.f_type & 0xffff_ffff).unwrap_or_default();
    match network_file_system(kind) {
        Some(name) => {
            let why = format!(
                "it is on a file system ({name}) that other machines may use as well; choose a local folder, or redis://"
            );
            Err(unusable(folder, &why))
        }
        None => Ok(()),
    }
}

/// Returns the name of the network file system with this number, if it is one.
fn network_file_system(kind: u32) -> Option<&'static str> {
    NETWORK
        .iter()
        .find(|(number, _)| *number == kind)
        .map(|(_, name)| *name)
}

fn effective_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

const ROOT: u32 = 0;

/// Numbers of network file systems, from `statfs(2)`.
const NETWORK: [(u32, &str); 15] = [
    (0x0000_517b, "SMB"),
    (0x0000_564c, "NCP"),
    (0x0000_6969, "NFS"),
    (0x00c3_6400, "Ceph"),
    (0x0102_1997, "9p"),
    (0x0116_1970, "GFS2"),
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x5346_414f, "AFS"),
    (0x6573_5546, "FUSE"),
    (0x6b41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x7461_636f, "OCFS2"),
    (0xfe53_4d42, "SMB"),
    (0xff53_4d42, "CIFS"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_known_by_their_numbers() {
        assert_eq!(network_file_system(0x6969), Some("NFS"));
        assert_eq!(network_file_system(0xff53_4d42), Some("CIFS"));
        assert_eq!(network_file_system(0xef53), None, "ext4 is local");
    }
}
