//! `sqlite:` urls, and the default file.

use std::env;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use percent_encoding::percent_decode_str;
use url::Url;

use super::{Connected, StoreConfig, masked};
use crate::driver::clock::Clock;
use crate::engine::boot::BootClock;
use crate::engine::sqlite::{Sqlite, SqliteSettings};
use crate::engine::{StoreError, StoreErrorKind};
use crate::error::Error;
use crate::protocol::ClientId;
use crate::protocol::release_on::ReleaseOn;

pub(super) async fn connect(store: &StoreConfig<'_>, url: &Url) -> Result<Connected, Error> {
    let name = masked(store.url).into();
    let path = path(store, url, &name)?;
    let background = store.background()?;
    let settings = SqliteSettings {
        path,
        prefix: store.prefix.clone(),
        client: ClientId::new(store.client.into_bytes()),
        release_on: store.release_on,
        connect_timeout: store.connect_timeout,
        busy_timeout: store.command_timeout,
        clock: BootClock::default(),
        events: background.events(),
    };
    let waker_executor = background.waker_executor();
    let engine = Sqlite::connect(settings, background.runtime());
    let engine = waker_executor
        .with_waker_proxy(engine)
        .await
        .map_err(|failure| Error::from_failure(&name, failure))?;
    Ok(Connected {
        engine,
        clock: Clock::Boot,
        background,
        is_shared_with_redisson: false,
        leases_expire: store.release_on != ReleaseOn::Children,
    })
}

fn path(store: &StoreConfig<'_>, url: &Url, name: &Arc<str>) -> Result<PathBuf, Error> {
    if url.host_str().is_some_and(|host| !host.is_empty()) {
        return Err(store.invalid("the url needs three slashes or none: sqlite:///path/to/file"));
    }
    if url.query().is_some() {
        return Err(store.invalid("a sqlite: url has no parameters; write `?` as %3F"));
    }
    let given: PathBuf = {
        use std::os::unix::ffi::OsStringExt;
        let bytes: Vec<u8> = percent_decode_str(url.path()).collect();
        std::ffi::OsString::from_vec(bytes).into()
    };
    if given.as_os_str().is_empty() {
        return default_file().map_err(|failure| Error::from_failure(name, failure));
    }
    if given.starts_with("~") {
        let reason =
            "only a shell expands `~`; write out the path, or omit it to use your default file";
        return Err(store.invalid(reason));
    }
    // An absolute path: with a relative one, a child in another directory, or this process later,
    // would use another file.
    std::path::absolute(&given).map_err(|error| store.invalid(error.to_string()))
}

/// Returns this user's default file. Nothing that differs between a shell and a cron job decides
/// it: two files would be two locks.
fn default_file() -> Result<PathBuf, StoreError> {
    let user = rustix::process::geteuid().as_raw();
    let users = || fs::read_to_string("/etc/passwd").unwrap_or_default();
    let home = env::var_os("HOME").map(PathBuf::from);
    let home = home.filter(|home| home.is_absolute());
    let Some(home) = home.or_else(|| home_of_uid(user, &users())) else {
        let folder = Path::new("/var/tmp").join(format!("distlock-{user}"));
        return Ok(folder.join("locks.db"));
    };
    if let Some((folder, owner)) = foreign_home(&home, user) {
        let users = users();
        let detail = format!(
            "`{}`: the home folder belongs to {}, but this process runs as {}; nothing was created in it; set HOME to \
             the home folder of this user (`sudo -H`), or name the file with sqlite:PATH",
            folder.display(),
            user_name(owner, &users),
            user_name(user, &users)
        );
        return Err(StoreError::new(StoreErrorKind::Unusable, detail));
    }
    Ok(home.join(".local/state/distlock/locks.db"))
}

/// Returns the closest existing directory on the way to this one, and its owner, if that is another
/// user, as with `sudo -E`. Root does not count: some users have a home directory that all users
/// share, `/` or `/tmp`.
fn foreign_home(home: &Path, user: u32) -> Option<(PathBuf, u32)> {
    let found = |folder: &Path| Some((folder.to_owned(), fs::metadata(folder).ok()?.uid()));
    let closest = home.ancestors().find_map(found);
    closest.filter(|(_, owner)| ![user, ROOT].contains(owner))
}

/// Returns a user's home directory, according to `/etc/passwd`.
fn home_of_uid(user: u32, users: &str) -> Option<PathBuf> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let number = fields.nth(2)?;
        let home = Path::new(fields.nth(2)?);
        (number == user.to_string() && home.is_absolute()).then(|| home.to_owned())
    })
}

/// Returns a user as a message names it, according to `/etc/passwd`.
fn user_name(user: u32, users: &str) -> String {
    let given = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        (fields.nth(1)? == user.to_string()).then(|| format!("{name} (uid {user})"))
    });
    given.unwrap_or_else(|| format!("uid {user}"))
}

const ROOT: u32 = 0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_folder_is_found_by_number() {
        let users = "root:x:0:0:root:/root:/bin/bash\nada:x:1000:1000::/home/ada:/bin/sh\n";
        assert_eq!(home_of_uid(1000, users), Some("/home/ada".into()));
        assert_eq!(home_of_uid(0, users), Some("/root".into()));
        assert_eq!(home_of_uid(7, users), None);
        assert_eq!(home_of_uid(7, "garbage\n::7:\n"), None);
    }

    #[test]
    fn a_message_names_users_that_have_a_name() {
        let users = "garbage\nroot:x:0:0:root:/root:/bin/bash\n:x:7:7::/:\n";
        assert_eq!(user_name(0, users), "root (uid 0)");
        assert_eq!(user_name(7, users), "uid 7");
        assert_eq!(user_name(8, users), "uid 8");
    }
}
