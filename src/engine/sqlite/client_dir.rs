//! The folder beside the file: who is there, and where to ring for them.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::{FdFlags, fcntl_setfd};

use super::error::{from_io, unusable};
use super::file_checks;
use crate::engine::StoreError;
use crate::protocol::ClientId;
use crate::protocol::release_on::ReleaseOn;

/// A file and a socket for each client.
#[derive(Debug)]
pub(super) struct ClientDir {
    path: PathBuf,
    /// Open, for a way to the sockets that is short enough.
    dir: File,
    /// Whether it was missing.
    was_created: bool,
}

impl ClientDir {
    /// The folder beside this file, made if it is missing.
    pub(super) fn for_file(file: &Path) -> Result<Self, StoreError> {
        let path = file_checks::with_suffix(file, "-clients");
        let was_created = !path.exists();
        file_checks::prepare_dir(&path)?;
        let dir = File::open(&path).map_err(|error| from_io(&path, &error))?;
        Ok(Self {
            path,
            dir,
            was_created,
        })
    }

    /// Leaves nothing beside a file that turned out to be another program's.
    pub(super) fn remove_if_created(&self) {
        if self.was_created {
            // Only an empty folder is removed.
            let _ = fs::remove_dir(&self.path);
        }
    }

    /// Says that a client is there, for as long as the file that comes back is open: here, or in a child that has
    /// it from us.
    pub(super) fn create_lock_file(
        &self,
        client: &str,
        end: ReleaseOn,
    ) -> Result<File, StoreError> {
        let path = self.path.join(client);
        let created = || -> io::Result<File> {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .mode(file_checks::FILE_MODE)
                .open(&path)?;
            file.lock()?;
            if end == ReleaseOn::Children {
                fcntl_setfd(&file, FdFlags::empty())?;
            }
            Ok(file)
        };
        let file = created().map_err(|error| {
            self.remove_files(client);
            from_io(&path, &error)
        })?;
        if self.is_dead(client) {
            self.remove_files(client);
            let why =
                "file locks do not work here, as on some network mounts; choose a local folder";
            return Err(unusable(&self.path, why));
        }
        Ok(file)
    }

    /// Whether the file has been made before: an empty one has then lost what was in it.
    pub(super) fn has_created_marker(&self) -> bool {
        // The note is empty; a file that is not is somebody else's.
        let note = fs::symlink_metadata(self.path.join(CREATED_MARKER));
        note.is_ok_and(|note| note.is_file() && note.len() == 0)
    }

    /// The file is being made anew.
    pub(super) fn remove_created_marker(&self) {
        if self.has_created_marker() {
            let _ = fs::remove_file(self.path.join(CREATED_MARKER));
        }
    }

    /// The file has been made.
    pub(super) fn write_created_marker(&self) -> Result<(), StoreError> {
        let path = self.path.join(CREATED_MARKER);
        let mut options = OpenOptions::new();
        let options = options
            .write(true)
            .create(true)
            .mode(file_checks::FILE_MODE);
        let made = options.truncate(false).open(&path);
        made.map(drop).map_err(|error| from_io(&path, &error))
    }

    /// Whether a client that was there has gone. One whose file somebody took away may still be there: its lease
    /// decides.
    pub(super) fn is_dead(&self, client: &str) -> bool {
        self.open_lock_file(client)
            .is_some_and(|file| is_unlocked(&file))
    }

    /// Whether a client may be there. Only a file that is missing or unlocked says that it is not.
    ///
    /// # Errors
    ///
    /// If its file cannot be opened or probed, e.g. since this process may open no more files: then it is not known.
    pub(super) fn may_be_alive(&self, client: &str) -> io::Result<bool> {
        let file = match File::open(self.path.join(client)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        probe(&file).map(|free| !free)
    }

    /// A client's file, to look at it again and again.
    pub(super) fn open_lock_file(&self, client: &str) -> Option<File> {
        File::open(self.path.join(client)).ok()
    }

    /// Takes away what a client has left.
    pub(super) fn remove_files(&self, client: &str) {
        let _ = fs::remove_file(self.path.join(client));
        let _ = fs::remove_file(self.path.join(socket_name(client)));
    }

    /// Some clients that have left something here a while ago and are not there.
    pub(super) fn stale_clients(&self, most: u32) -> Vec<String> {
        let Ok(files) = fs::read_dir(&self.path) else {
            return Vec::new();
        };
        let old = files.filter_map(|file| {
            let file = file.ok()?;
            let age = file.metadata().ok()?.modified().ok()?.elapsed().ok()?;
            let name = file.file_name().into_string().ok()?;
            let client = name.strip_suffix(SOCKET_SUFFIX).unwrap_or(&name);
            // A file of any other name is somebody else's.
            ClientId::parse(client)?;
            // One that has just come may not be in the tables yet.
            (age > STALE_AFTER && matches!(self.may_be_alive(client), Ok(false)))
                .then(|| client.to_owned())
        });
        old.take(usize::try_from(most).unwrap_or(usize::MAX))
            .collect()
    }

    /// Where to ring for a client. Addresses of sockets are short; a file's path may not be.
    pub(super) fn socket_path(&self, client: &str) -> PathBuf {
        let path = self.path.join(socket_name(client));
        if path.as_os_str().len() < MAX_SOCKET_ADDRESS {
            return path;
        }
        let folder = format!("/proc/self/fd/{}", self.dir.as_raw_fd());
        Path::new(&folder).join(socket_name(client))
    }
}

/// Whether nobody has this file locked, for certain.
pub(super) fn is_unlocked(file: &File) -> bool {
    probe(file).unwrap_or(false)
}

fn probe(file: &File) -> io::Result<bool> {
    // Shared, so that those who look do not take each other for the one who is there.
    match file.try_lock_shared() {
        Ok(()) => {
            let _ = file.unlock();
            Ok(true)
        }
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn socket_name(client: &str) -> String {
    format!("{client}{SOCKET_SUFFIX}")
}

const SOCKET_SUFFIX: &str = ".bell";
const CREATED_MARKER: &str = ".made";
const STALE_AFTER: Duration = Duration::from_secs(60);

/// Of a socket's address, with its end.
const MAX_SOCKET_ADDRESS: usize = 108;
