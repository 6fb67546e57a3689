//! The folder beside the file: who is there, and where to ring for them.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::{FdFlags, fcntl_setfd};

use super::failure::{of_io, unusable};
use super::trust;
use crate::engine::Failure;
use crate::protocol::ClientId;
use crate::protocol::holds_end_with::HoldsEndWith;

/// A file and a socket for each client.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// Open, for a way to the sockets that is short enough.
    handle: File,
    /// Whether it was missing.
    is_new: bool,
}

impl Folder {
    /// The folder beside this file, made if it is missing.
    pub(super) fn beside(file: &Path) -> Result<Self, Failure> {
        let path = trust::beside(file, "-clients");
        let is_new = !path.exists();
        trust::folder(&path)?;
        let handle = File::open(&path).map_err(|error| of_io(&path, &error))?;
        Ok(Self {
            path,
            handle,
            is_new,
        })
    }

    /// Leaves nothing beside a file that turned out to be another program's.
    pub(super) fn take_back(&self) {
        if self.is_new {
            // Only an empty folder is removed.
            let _ = fs::remove_dir(&self.path);
        }
    }

    /// Says that a client is there, for as long as the file that comes back is open: here, or in a child that has
    /// it from us.
    pub(super) fn enter(&self, client: &str, end: HoldsEndWith) -> Result<File, Failure> {
        let path = self.path.join(client);
        let entered = || -> io::Result<File> {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .mode(trust::FILE_MODE)
                .open(&path)?;
            file.lock()?;
            if end == HoldsEndWith::Children {
                fcntl_setfd(&file, FdFlags::empty())?;
            }
            Ok(file)
        };
        let file = entered().map_err(|error| {
            self.clear(client);
            of_io(&path, &error)
        })?;
        if self.is_gone(client) {
            self.clear(client);
            let why =
                "file locks do not work here, as on some network mounts; choose a local folder";
            return Err(unusable(&self.path, why));
        }
        Ok(file)
    }

    /// Whether the file has been made before: an empty one has then lost what was in it.
    pub(super) fn is_of_a_made_file(&self) -> bool {
        // The note is empty; a file that is not is somebody else's.
        let note = fs::symlink_metadata(self.path.join(MADE));
        note.is_ok_and(|note| note.is_file() && note.len() == 0)
    }

    /// The file is being made anew.
    pub(super) fn forget_made(&self) {
        if self.is_of_a_made_file() {
            let _ = fs::remove_file(self.path.join(MADE));
        }
    }

    /// The file has been made.
    pub(super) fn note_made(&self) -> Result<(), Failure> {
        let path = self.path.join(MADE);
        let mut maker = OpenOptions::new();
        let maker = maker.write(true).create(true).mode(trust::FILE_MODE);
        let made = maker.truncate(false).open(&path);
        made.map(drop).map_err(|error| of_io(&path, &error))
    }

    /// Whether a client that was there has gone. One whose file somebody took away may still be there: its lease
    /// decides.
    pub(super) fn is_gone(&self, client: &str) -> bool {
        self.open(client).is_some_and(|file| is_free(&file))
    }

    /// Whether a client may be there. Only a file that is missing or unlocked says that it is not.
    ///
    /// # Errors
    ///
    /// If its file cannot be opened or probed, e.g. since this process may open no more files: then it is not known.
    pub(super) fn may_be_there(&self, client: &str) -> io::Result<bool> {
        let file = match File::open(self.path.join(client)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        probe(&file).map(|free| !free)
    }

    /// A client's file, to look at it again and again.
    pub(super) fn open(&self, client: &str) -> Option<File> {
        File::open(self.path.join(client)).ok()
    }

    /// Takes away what a client has left.
    pub(super) fn clear(&self, client: &str) {
        let _ = fs::remove_file(self.path.join(client));
        let _ = fs::remove_file(self.path.join(bell(client)));
    }

    /// Some clients that have left something here a while ago and are not there.
    pub(super) fn old_names(&self, most: u32) -> Vec<String> {
        let Ok(files) = fs::read_dir(&self.path) else {
            return Vec::new();
        };
        let old = files.filter_map(|file| {
            let file = file.ok()?;
            let age = file.metadata().ok()?.modified().ok()?.elapsed().ok()?;
            let name = file.file_name().into_string().ok()?;
            let client = name.strip_suffix(BELL).unwrap_or(&name);
            // A file of any other name is somebody else's.
            ClientId::parse(client)?;
            // One that has just come may not be in the tables yet.
            (age > A_WHILE && matches!(self.may_be_there(client), Ok(false)))
                .then(|| client.to_owned())
        });
        old.take(usize::try_from(most).unwrap_or(usize::MAX))
            .collect()
    }

    /// Where to ring for a client. Addresses of sockets are short; a file's path may not be.
    pub(super) fn socket(&self, client: &str) -> PathBuf {
        let path = self.path.join(bell(client));
        if path.as_os_str().len() < LONGEST_ADDRESS {
            return path;
        }
        let folder = format!("/proc/self/fd/{}", self.handle.as_raw_fd());
        Path::new(&folder).join(bell(client))
    }
}

/// Whether nobody has this file locked, for certain.
pub(super) fn is_free(file: &File) -> bool {
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

fn bell(client: &str) -> String {
    format!("{client}{BELL}")
}

const BELL: &str = ".bell";
const MADE: &str = ".made";
const A_WHILE: Duration = Duration::from_secs(60);

/// Of a socket's address, with its end.
const LONGEST_ADDRESS: usize = 108;
