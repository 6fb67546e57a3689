//! The directory beside the file, with a lock file and a wake socket for each client.

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

/// The directory of the clients' files.
#[derive(Debug)]
pub(super) struct ClientDir {
    path: PathBuf,
    /// Open, so that a path to the sockets can be short enough.
    dir: File,
    /// Whether this client created the directory.
    was_created: bool,
}

impl ClientDir {
    /// Opens the directory beside this file, and creates it if it is missing.
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

    /// Removes the directory if this client created it: nothing stays beside a file that turned out
    /// to be another program's.
    pub(super) fn remove_if_created(&self) {
        if self.was_created {
            // This removes only an empty directory.
            let _ = fs::remove_dir(&self.path);
        }
    }

    /// Creates a client's lock file. The client counts as alive for as long as the returned file is
    /// open: here, or in a child that has inherited it.
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

    /// Reports whether the database file has been created before: if it is empty now, it has lost
    /// its contents.
    pub(super) fn has_created_marker(&self) -> bool {
        // The marker is empty; a file with contents belongs to another program.
        let marker = fs::symlink_metadata(self.path.join(CREATED_MARKER));
        marker.is_ok_and(|marker| marker.is_file() && marker.len() == 0)
    }

    /// Removes the marker, since the database file is being created anew.
    pub(super) fn remove_created_marker(&self) {
        if self.has_created_marker() {
            let _ = fs::remove_file(self.path.join(CREATED_MARKER));
        }
    }

    /// Writes the marker, since the database file has been created.
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

    /// Reports whether a client that was alive has gone. A client whose lock file was removed may
    /// still be alive: its lease decides.
    pub(super) fn is_dead(&self, client: &str) -> bool {
        self.open_lock_file(client)
            .is_some_and(|file| is_unlocked(&file))
    }

    /// Reports whether a client may be alive. Only a lock file that is missing or unlocked shows
    /// that it is not.
    ///
    /// # Errors
    ///
    /// If its lock file cannot be opened or probed, e.g. since this process may open no more files:
    /// then it is not known.
    pub(super) fn may_be_alive(&self, client: &str) -> io::Result<bool> {
        let file = match File::open(self.path.join(client)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        probe(&file).map(|free| !free)
    }

    /// Opens a client's lock file, which can then be polled.
    pub(super) fn open_lock_file(&self, client: &str) -> Option<File> {
        File::open(self.path.join(client)).ok()
    }

    /// Removes the files that a client has left.
    pub(super) fn remove_files(&self, client: &str) {
        let _ = fs::remove_file(self.path.join(client));
        let _ = fs::remove_file(self.path.join(socket_name(client)));
    }

    /// Returns up to `most` clients that have left files here a while ago and are not alive.
    pub(super) fn stale_clients(&self, most: u32) -> Vec<String> {
        let Ok(files) = fs::read_dir(&self.path) else {
            return Vec::new();
        };
        let old = files.filter_map(|file| {
            let file = file.ok()?;
            let age = file.metadata().ok()?.modified().ok()?.elapsed().ok()?;
            let name = file.file_name().into_string().ok()?;
            let client = name.strip_suffix(SOCKET_SUFFIX).unwrap_or(&name);
            // A file with any other name belongs to another program.
            ClientId::parse(client)?;
            // A client that has just come may not be in the tables yet.
            (age > STALE_AFTER && matches!(self.may_be_alive(client), Ok(false)))
                .then(|| client.to_owned())
        });
        old.take(usize::try_from(most).unwrap_or(usize::MAX))
            .collect()
    }

    /// Returns the path of a client's wake socket. Addresses of sockets are short; a file's path
    /// may not be.
    pub(super) fn socket_path(&self, client: &str) -> PathBuf {
        let path = self.path.join(socket_name(client));
        if path.as_os_str().len() < MAX_SOCKET_ADDRESS {
            return path;
        }
        let folder = format!("/proc/self/fd/{}", self.dir.as_raw_fd());
        Path::new(&folder).join(socket_name(client))
    }
}

/// Reports whether this file is certainly not locked by any process.
pub(super) fn is_unlocked(file: &File) -> bool {
    probe(file).unwrap_or(false)
}

fn probe(file: &File) -> io::Result<bool> {
    // A shared lock, so that two clients that probe at once do not take each other for the owner of
    // the file.
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

/// The maximum length of a socket's address, with its terminator.
const MAX_SOCKET_ADDRESS: usize = 108;
