//! The program of a real server, and a command that ends with the process that started it. The differential test of `sim/`
//! uses this file, too.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns a command that is killed when this process ends, for whatever reason, on systems that support this.
pub(crate) fn killed_on_exit(program: &Path) -> Command {
    let Some(setpriv) = find("setpriv") else {
        return Command::new(program);
    };
    let mut command = Command::new(setpriv);
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

/// Returns the server's program: the one that the environment names, or else the one on the `PATH`.
pub(crate) fn program() -> PathBuf {
    match env::var_os(PROGRAM) {
        Some(named) => {
            let named = PathBuf::from(named);
            assert!(named.is_file(), "{PROGRAM} names no file: {named:?}");
            named
        }
        None => find("redis-server").unwrap_or_else(|| {
            panic!("there is no redis-server on the PATH; `scripts/test` installs it")
        }),
    }
}

fn find(program: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?)
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
}

/// Names the variable for the server's program; `scripts/matrix` uses it, too.
pub(crate) const PROGRAM: &str = "DISTLOCK_REDIS_SERVER";
