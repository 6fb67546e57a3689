//! What an operator should know about the file.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rusqlite::Connection;

use super::failure::of_sqlite;
use crate::engine::{Failure, Finding};
use crate::protocol::Reply;

/// Examines an open file; one that cannot be used was refused when it was opened.
pub(super) fn examine(path: &Path, db: &Connection) -> Result<Vec<Finding>, Failure> {
    let failed = |error: rusqlite::Error| of_sqlite(path, &error);
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
        Finding::ok("file", found),
        permissions(fs::metadata(path).ok().map(|file| file.mode() & 0o777)),
        journal(&word("journal_mode").map_err(failed)?),
        integrity(&whole),
        Finding::ok("in use", format!("{locks} names, {clients} clients")),
    ])
}

/// What became of a trial's requests.
pub(super) fn locking(tried: [Result<Reply, Failure>; 2]) -> Finding {
    let what = "locking";
    let found = match tried {
        [Ok(Reply::Granted { .. }), Ok(Reply::Released { .. })] => {
            return Finding::ok(what, "a lock was taken and given back");
        }
        [Err(failure), _] | [_, Err(failure)] => failure.detail,
        [taken, given_back] => {
            format!("a lock was not taken and given back: {taken:?}, {given_back:?}")
        }
    };
    let advice =
        "see that the disk has room, and that this user may write to the file and beside it";
    Finding::fail(what, found, advice)
}

fn permissions(mode: Option<u32>) -> Finding {
    let what = "permissions";
    match mode {
        Some(mode) if mode & 0o077 == 0 => Finding::ok(what, format!("{mode:o}: this user only")),
        Some(mode) => {
            let found = format!("{mode:o}: other users may look at it");
            Finding::warn(what, found, "chmod go= it, if names are nobody's business")
        }
        None => Finding::fail(what, "the file is not there any more", "start anew"),
    }
}

fn journal(mode: &str) -> Finding {
    let what = "journal";
    if mode.eq_ignore_ascii_case("wal") {
        return Finding::ok(what, mode);
    }
    let advice =
        "another program has changed it; end all that use it, and `PRAGMA journal_mode=WAL`";
    Finding::warn(what, mode, advice)
}

fn integrity(said: &str) -> Finding {
    let what = "integrity";
    if said == "ok" {
        return Finding::ok(what, said);
    }
    let advice = "the file is damaged: restore it, or choose another with sqlite:PATH";
    Finding::fail(what, said, advice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Verdict;

    #[test]
    fn what_is_not_as_it_should_be_is_said() {
        assert_eq!(permissions(Some(0o600)).verdict, Verdict::Ok);
        assert_eq!(permissions(Some(0o644)).verdict, Verdict::Warn);
        assert_eq!(permissions(None).verdict, Verdict::Fail);
        assert_eq!(journal("wal").verdict, Verdict::Ok);
        assert_eq!(journal("delete").verdict, Verdict::Warn);
        assert_eq!(integrity("ok").verdict, Verdict::Ok);
        let released = Ok(Reply::Released { listeners: 0 });
        let tried = locking([Ok(Reply::Granted { token: None }), released.clone()]);
        assert_eq!(tried.verdict, Verdict::Ok);
        let full = Failure::new(crate::engine::Cause::Unready, "the disk is full");
        let tried = locking([Err(full), Ok(Reply::Gone)]);
        assert_eq!(
            (tried.verdict, &*tried.found),
            (Verdict::Fail, "the disk is full")
        );
        let tried = locking([Ok(Reply::Undone), released]);
        assert_eq!(tried.verdict, Verdict::Fail);
        assert_eq!(integrity("row 7 missing from index").verdict, Verdict::Fail);
    }
}
