//! `sqlite:`, and which file that is if none is named.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use percent_encoding::percent_decode_str;
use url::Url;

use super::{Connected, Store, masked};
use crate::driver::clock::Clock;
use crate::engine::sqlite::{Settings, Sqlite};
use crate::error::Error;
use crate::protocol::ClientId;
use crate::protocol::holds_end_with::HoldsEndWith;

pub(super) async fn connect(store: &Store<'_>, url: &Url) -> Result<Connected, Error> {
    let path = path(store, url)?;
    let name = masked(store.url).into();
    let background = store.background()?;
    let settings = Settings {
        path,
        prefix: store.prefix.clone(),
        client: ClientId::new(store.client.into_bytes()),
        holds_end_with: store.holds_end_with,
        connect_timeout: store.connect_timeout,
        patience: store.command_timeout,
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

fn path(store: &Store<'_>, url: &Url) -> Result<PathBuf, Error> {
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
        return Ok(own_file());
    }
    if named.starts_with("~") {
        let reason = "`~` is a shell's; write the path out, or leave it away for your own file";
        return Err(store.invalid(reason));
    }
    // A child in another folder, or we ourselves later, would mean another file.
    std::path::absolute(&named).map_err(|error| store.invalid(error.to_string()))
}

/// This user's own file. By nothing that differs between a shell and a cron job: two files would be two locks.
fn own_file() -> PathBuf {
    let user = rustix::process::geteuid().as_raw();
    let home = env::var_os("HOME").map(PathBuf::from);
    let home = home.filter(|home| home.is_absolute());
    let home =
        home.or_else(|| home_of(user, &fs::read_to_string("/etc/passwd").unwrap_or_default()));
    match home {
        Some(home) => home.join(".local/state/distlock/locks.db"),
        None => Path::new("/var/tmp")
            .join(format!("distlock-{user}"))
            .join("locks.db"),
    }
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
}
