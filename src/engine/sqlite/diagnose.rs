//! The diagnostics of a file, for its operator.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rusqlite::Connection;

use super::error::from_sqlite;
use crate::engine::{Diagnostic, StoreError};
use crate::protocol::Reply;

/// Examines an open file; a file that cannot be used was refused when it was opened.
pub(super) fn diagnose(path: &Path, db: &Connection) -> Result<Vec<Diagnostic>, StoreError> {
    let failed = |error: rusqlite::Error| from_sqlite(path, &error);
    let word = |name: &str| db.pragma_query_value(None, name, |row| row.get::<_, String>(0));
    let number = |sql: &str| db.query_row(sql, [], |row| row.get::<_, i64>(0));
    let (locks, clients) = (
        number("SELECT count(*) FROM states").map_err(failed)?,
        number("SELECT count(*) FROM clients").map_err(failed)?,
    );
    let whole: String = db
        .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
        .map_err(failed)?;
    let found = path.display().to_string();
    Ok(vec![
        Diagnostic::ok("file", found),
        permissions(fs::metadata(path).ok().map(|file| file.mode() & 0o777)),
        journal(&word("journal_mode").map_err(failed)?),
        integrity(&whole),
        Diagnostic::ok("in use", format!("{locks} names, {clients} clients")),
    ])
}

/// Creates a diagnostic from the replies to a probe's requests.
pub(super) fn locking(tried: [Result<Reply, StoreError>; 2]) -> Diagnostic {
    let what = "locking";
    let found = match tried {
        [Ok(Reply::Granted { .. }), Ok(Reply::Released { .. })] => {
            return Diagnostic::ok(what, "a lock was acquired and released");
        }
        [Err(failure), _] | [_, Err(failure)] => failure.detail,
        [taken, given_back] => {
            format!("a lock was not acquired and released: {taken:?}, {given_back:?}")
        }
    };
    let advice =
        "check that the disk has space, and that this user may write to the file and its folder";
    Diagnostic::fail(what, found, advice)
}

fn permissions(mode: Option<u32>) -> Diagnostic {
    let what = "permissions";
    match mode {
        Some(mode) if mode & 0o077 == 0 => {
            Diagnostic::ok(what, format!("{mode:o}: this user only"))
        }
        Some(mode) => {
            let found = format!("{mode:o}: other users may read the file");
            Diagnostic::warn(
                what,
                found,
                "run `chmod go=` on the file if the names of the locks are private",
            )
        }
        None => Diagnostic::fail(
            what,
            "the file no longer exists",
            "restart all programs that use it",
        ),
    }
}

fn journal(mode: &str) -> Diagnostic {
    let what = "journal";
    if mode.eq_ignore_ascii_case("wal") {
        return Diagnostic::ok(what, mode);
    }
    let advice = "another program changed the mode; end all users of the file, run `PRAGMA journal_mode=WAL`";
    Diagnostic::warn(what, mode, advice)
}

fn integrity(said: &str) -> Diagnostic {
    let what = "integrity";
    if said == "ok" {
        return Diagnostic::ok(what, said);
    }
    let advice = "the file is damaged: restore it, or choose another one with sqlite:PATH";
    Diagnostic::fail(what, said, advice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Severity;

    #[test]
    fn problems_are_reported_with_their_severity() {
        assert_eq!(permissions(Some(0o600)).severity, Severity::Ok);
        assert_eq!(permissions(Some(0o644)).severity, Severity::Warn);
        assert_eq!(permissions(None).severity, Severity::Fail);
        assert_eq!(journal("wal").severity, Severity::Ok);
        assert_eq!(journal("delete").severity, Severity::Warn);
        assert_eq!(integrity("ok").severity, Severity::Ok);
        let released = Ok(Reply::Released { subscribers: 0 });
        let tried = locking([Ok(Reply::Granted { token: None }), released.clone()]);
        assert_eq!(tried.severity, Severity::Ok);
        let full = StoreError::new(crate::engine::StoreErrorKind::NotReady, "the disk is full");
        let tried = locking([Err(full), Ok(Reply::Gone)]);
        assert_eq!(
            (tried.severity, &*tried.found),
            (Severity::Fail, "the disk is full")
        );
        let tried = locking([Ok(Reply::Undone), released]);
        assert_eq!(tried.severity, Severity::Fail);
        assert_eq!(
            integrity("row 7 missing from index").severity,
            Severity::Fail
        );
    }
}
