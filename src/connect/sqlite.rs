//! `sqlite:`, and which file that is if none is named.

use std::env;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use percent_encoding::percent_decode_str;
use url::Url;

use super::{Connected, Store, masked};
use crate::driver::clock::Clock;
use crate::engine::boot::BootClock;
use crate::engine::sqlite::{Settings, Sqlite};
use crate::engine::{Cause, Failure};
use crate::error::Error;
use crate::protocol::ClientId;
use crate::protocol::holds_end_with::HoldsEndWith;

pub(super) async fn connect(store: &Store<'_>, url: &Url) -> Result<Connected, Error> {
    let name = masked(store.url).into();
    let path = path(store, url, &name)?;
    let background = store.background()?;
    let settings = Settings {
        path,
        prefix: store.prefix.clone(),
        client: ClientId::new(store.client.into_bytes()),
        holds_end_with: store.holds_end_with,
        connect_timeout: store.connect_timeout,
        patience: store.command_timeout,
        clock: BootClock::default(),
        events: background.events(),
    };
    let wakeups = background.wakeups();
    let engine = Sqlite::connect(settings, background.runtime());
    let engine = wakeups
        .shielded(engine)
        .await
        .map_err(|failure| Error::from_failure(&name, failure))?;
    Ok(Connected {
        engine,
        clock: Clock::Boot,
        background,
        has_peers: false,
        lapses: store.holds_end_with != HoldsEndWith::Children,
    })
}

fn path(store: &Store<'_>, url: &Url, name: &Arc<str>) -> Result<PathBuf, Error> {
    if url.host_str().is_some_and(|host| !host.is_empty()) {
        return Err(store.invalid("three slashes or none, please: sqlite:///path/to/file"));
    }
    if url.query().is_some() {
        return Err(store.invalid("a sqlite: address takes no parameters; `?` is written as %3F"));
    }
    let named: PathBuf = {
        use std::os::unix::ffi::OsStringExt;
        let bytes: Vec<u8> = percent_decode_str(url.path()).collect();
        std::ffi::OsString::from_vec(bytes).into()
    };
    if named.as_os_str().is_empty() {
        return own_file().map_err(|failure| Error::from_failure(name, failure));
    }
    if named.starts_with("~") {
        let reason = "`~` is a shell's; write the path out, or leave it away for your own file";
        return Err(store.invalid(reason));
    }
    // A child in another folder, or we ourselves later, would mean another file.
    std::path::absolute(&named).map_err(|error| store.invalid(error.to_string()))
}

/// This user's own file. By nothing that differs between a shell and a cron job: two files would be two locks.
fn own_file() -> Result<PathBuf, Failure> {
    let user = rustix::process::geteuid().as_raw();
    let users = || fs::read_to_string("/etc/passwd").unwrap_or_default();
    let home = env::var_os("HOME").map(PathBuf::from);
    let home = home.filter(|home| home.is_absolute());
    let Some(home) = home.or_else(|| home_of(user, &users())) else {
        let folder = Path::new("/var/tmp").join(format!("distlock-{user}"));
        return Ok(folder.join("locks.db"));
    };
    if let Some((folder, owner)) = anothers_folder(&home, user) {
        let users = users();
        let detail = format!(
            "`{}`: the home folder belongs to {}, and this process runs as {}; nothing was created in it; set HOME to \
             this user's own folder (`sudo -H`), or name the file with sqlite:PATH",
            folder.display(),
            known_as(owner, &users),
            known_as(user, &users)
        );
        return Err(Failure::new(Cause::Unusable, detail));
    }
    Ok(home.join(".local/state/distlock/locks.db"))
}

/// The closest folder on the way to this one that is there, and its owner, if that is another user: `sudo -E`. Not if it is
/// root: some users have a folder that all use, `/` or `/tmp`.
fn anothers_folder(home: &Path, user: u32) -> Option<(PathBuf, u32)> {
    let found = |folder: &Path| Some((folder.to_owned(), fs::metadata(folder).ok()?.uid()));
    let closest = home.ancestors().find_map(found);
    closest.filter(|(_, owner)| ![user, ROOT].contains(owner))
}

/// A user's folder, by the list of users.
fn home_of(user: u32, users: &str) -> Option<PathBuf> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let number = fields.nth(2)?;
        let home = Path::new(fields.nth(2)?);
        (number == user.to_string() && home.is_absolute()).then(|| home.to_owned())
    })
}

/// A user as a message calls them, by the list of users.
fn known_as(user: u32, users: &str) -> String {
    let named = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        (fields.nth(1)? == user.to_string()).then(|| format!("{name} (uid {user})"))
    });
    named.unwrap_or_else(|| format!("uid {user}"))
}

const ROOT: u32 = 0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_folder_is_found_by_number() {
        let users = "root:x:0:0:root:/root:/bin/bash\nada:x:1000:1000::/home/ada:/bin/sh\n";
        assert_eq!(home_of(1000, users), Some("/home/ada".into()));
        assert_eq!(home_of(0, users), Some("/root".into()));
        assert_eq!(home_of(7, users), None);
        assert_eq!(home_of(7, "garbage\n::7:\n"), None);
    }

    #[test]
    fn a_message_calls_users_by_name_where_they_have_one() {
        let users = "garbage\nroot:x:0:0:root:/root:/bin/bash\n:x:7:7::/:\n";
        assert_eq!(known_as(0, users), "root (uid 0)");
        assert_eq!(known_as(7, users), "uid 7");
        assert_eq!(known_as(8, users), "uid 8");
    }
}
