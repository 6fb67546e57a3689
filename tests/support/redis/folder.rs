//! The folders of servers, which are removed however the test program ends: a server in a `static` is never dropped.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;

use tempfile::TempDir;

/// Returns a folder for one server, in the folder of this process.
pub(super) fn folder() -> TempDir {
    static ALL: LazyLock<Folders> = LazyLock::new(Folders::new);
    TempDir::with_prefix_in("", &ALL.path).expect("the temp folder is writable")
}

struct Folders {
    path: PathBuf,
    /// The shell that removes the folder. Its standard input ends with this process.
    _remover: Child,
}

impl Folders {
    fn new() -> Self {
        let folder = TempDir::with_prefix("distlock-redis-").expect("the temp folder is writable");
        let path = folder.keep();
        let mut remover = Command::new("sh");
        remover.args(["-c", REMOVE, "sh"]).arg(&path);
        remover.stdin(Stdio::piped());
        remover.stdout(Stdio::null()).stderr(Stdio::null());
        let _remover = remover.spawn().expect("there is a shell");
        Self { path, _remover }
    }
}

/// Ctrl-C reaches the shell as well, before there is anything to remove.
const REMOVE: &str = r#"trap '' INT TERM HUP; cat; rm -rf -- "$1""#;
