//! Classification of Redis errors.

use redis::{ErrorKind, RedisError, ServerErrorKind, Value};

use crate::engine::{StoreError, StoreErrorKind};

/// Classifies the error of a connection that could not be made: nothing was sent on it.
pub(crate) fn from_connect_error(error: &RedisError) -> StoreError {
    let mut failure = from_call_error(error);
    if failure.detail.starts_with("NOAUTH") {
        failure.detail = "the server requires a password: redis://user:password@host/".into();
    } else if failure.detail.starts_with("WRONGPASS") {
        failure.detail += " (special characters in an address must be percent-encoded)";
    }
    if error.kind() == ErrorKind::Parse {
        // A retry would not turn the peer into a Redis server.
        return failure;
    }
    match failure.kind {
        StoreErrorKind::Interrupted | StoreErrorKind::TimedOut | StoreErrorKind::Unexpected => {
            StoreError::new(StoreErrorKind::Unreachable, failure.detail)
        }
        StoreErrorKind::Denied
        | StoreErrorKind::PartiallyDenied
        | StoreErrorKind::InvalidName
        | StoreErrorKind::NotReplicated
        | StoreErrorKind::OutOfMemory
        | StoreErrorKind::Tls(_)
        | StoreErrorKind::Unreachable
        | StoreErrorKind::NotReady
        | StoreErrorKind::Unusable
        | StoreErrorKind::WrongKind => failure,
    }
}

/// Classifies the error of the first unencrypted connection over a network, with a hint at TLS. A server that has
/// accepted connections before and resets one is restarting, or has an idle limit, and gets no hint.
pub(crate) fn from_first_plain_connect_error(error: &RedisError) -> StoreError {
    let mut failure = from_connect_error(error);
    // A TLS server ends a connection that starts in the clear; so may a server that is shutting down.
    if failure.kind == StoreErrorKind::Unreachable
        && error.is_connection_dropped()
        && !error.is_connection_refusal()
    {
        failure.detail += TLS_HINT;
    }
    failure
}

/// Classifies the error of a call.
pub(crate) fn from_call_error(error: &RedisError) -> StoreError {
    let cause = match error.kind() {
        ErrorKind::Server(
            ServerErrorKind::BusyLoading
            | ServerErrorKind::MasterDown
            | ServerErrorKind::ReadOnly
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::Moved
            | ServerErrorKind::Ask
            | ServerErrorKind::TryAgain,
        ) => StoreErrorKind::NotReady,
        ErrorKind::AuthenticationFailed => StoreErrorKind::Denied,
        // A script passes on the error that stopped it, with the code in front of the text; so does EXEC.
        ErrorKind::Server(
            ServerErrorKind::ExecAbort | ServerErrorKind::NoPerm | ServerErrorKind::ResponseError,
        )
        | ErrorKind::Extension => return from_text(&text(error)),
        ErrorKind::Parse => {
            let why = "the server does not speak the Redis protocol (wrong port, or TLS, which needs rediss://?)";
            return StoreError::new(StoreErrorKind::Unexpected, why);
        }
        _ if error.is_timeout() => StoreErrorKind::TimedOut,
        ErrorKind::Io => StoreErrorKind::Interrupted,
        _ => StoreErrorKind::Unexpected,
    };
    StoreError::new(cause, trimmed(&text(error)))
}

/// Returns whether the error is one of a failover, and the call has certainly done nothing: at another server, or a
/// little later, it succeeds.
pub(crate) fn is_safe_to_retry(failure: &StoreError) -> bool {
    match failure.kind {
        StoreErrorKind::Unreachable => true,
        StoreErrorKind::NotReady => {
            // A server that is busy, or cannot write to its disk, is still the master.
            let lasting = ["BUSY", "MISCONF"];
            !lasting.iter().any(|code| failure.detail.starts_with(code))
        }
        StoreErrorKind::Denied
        | StoreErrorKind::PartiallyDenied
        | StoreErrorKind::Interrupted
        | StoreErrorKind::InvalidName
        | StoreErrorKind::NotReplicated
        | StoreErrorKind::OutOfMemory
        | StoreErrorKind::TimedOut
        | StoreErrorKind::Tls(_)
        | StoreErrorKind::Unexpected
        | StoreErrorKind::Unusable
        | StoreErrorKind::WrongKind => false,
    }
}

/// Returns whether a replica refused a call that only a master carries out.
pub(crate) fn is_read_only(failure: &StoreError) -> bool {
    failure.kind == StoreErrorKind::NotReady && failure.detail.starts_with(READ_ONLY)
}

/// Error codes of a cluster's server that does not have the key.
pub(crate) const REDIRECTS: [&str; 2] = ["ASK", "MOVED"];

/// Returns whether the call was redirected to another server.
pub(crate) fn is_redirection(failure: &StoreError) -> bool {
    let code = failure.detail.split(' ').next();
    failure.kind == StoreErrorKind::NotReady && code.is_some_and(|code| REDIRECTS.contains(&code))
}

/// Returns whether the error is about a slot: another server has it, or none.
pub(crate) fn is_slot_error(failure: &StoreError) -> bool {
    let unserved =
        failure.kind == StoreErrorKind::NotReady && failure.detail.starts_with("CLUSTERDOWN");
    unserved || is_redirection(failure)
}

/// Returns the error of a batch that found a replica: then none of its items has done anything.
pub(crate) fn find_read_only(reply: &Value) -> Option<StoreError> {
    let Value::Array(items) = reply else {
        return None;
    };
    let mut failures = items.iter().filter_map(|item| match item {
        Value::BulkString(text) => Some(from_text(std::str::from_utf8(text).ok()?)),
        _ => None,
    });
    failures.find(is_read_only)
}

/// The wordings of 6.2 and of later versions.
const NON_LOCAL_KEY: [&str; 3] = [
    "Lua script attempted to access a non local key",
    "Script attempted to access a non local key",
    "ERR Script attempted to access a non local key",
];
/// The beginning of the error in every version.
const READ_ONLY: &str = "READONLY You can't write against a read only";

/// Prefix of the reason for which EXEC itself was refused.
const ABORTED: &str = "EXECABORT Transaction discarded because of: ";

/// Classifies the text of a server's error.
pub(crate) fn from_text(text: &str) -> StoreError {
    let text = text.strip_prefix(ABORTED).unwrap_or(text);
    let (said, in_script) = strip_script_frames(text);
    let code = said.split(' ').next().unwrap_or(said);
    let cause = match code {
        "WRONGTYPE" => StoreErrorKind::WrongKind,
        "OOM" => StoreErrorKind::OutOfMemory,
        "NOPERM" if in_script => StoreErrorKind::PartiallyDenied,
        "NOPERM" | "NOAUTH" | "WRONGPASS" => StoreErrorKind::Denied,
        // Wordings of Redis up to 7.0, and of later versions. The script's earlier writes stay done.
        _ if said.starts_with("The user executing the script")
            || said.starts_with("ERR The user executing the script")
            || said.starts_with("ERR ACL failure in script") =>
        {
            StoreErrorKind::PartiallyDenied
        }
        // For SELECT, while a connection is made, only the text arrives.
        _ if is_permission_error(said) => StoreErrorKind::Denied,
        "BUSY" | "CLUSTERDOWN" | "LOADING" | "MASTERDOWN" | "MISCONF" | "NOREPLICAS"
        | "READONLY" | "TRYAGAIN" => StoreErrorKind::NotReady,
        // The slot was migrated while the script ran. The script's earlier writes stay done.
        _ if NON_LOCAL_KEY.iter().any(|words| said.starts_with(words)) => {
            StoreErrorKind::Interrupted
        }
        _ => StoreErrorKind::Unexpected,
    };
    let mut failure = StoreError::new(cause, trimmed(said));
    if matches!(
        cause,
        StoreErrorKind::Denied | StoreErrorKind::PartiallyDenied
    ) && code != "NOAUTH"
        && code != "WRONGPASS"
    {
        failure.detail += ACL_HINT;
    }
    failure
}

/// Returns whether a command was denied, judged by the text alone: to this user, or to a named one, whose name is one
/// word.
fn is_permission_error(said: &str) -> bool {
    let said = said.strip_prefix("ERR ").unwrap_or(said);
    let about = match said.strip_prefix("User ") {
        Some(named) => named.split_once(' ').map(|(_, about)| about),
        None => said.strip_prefix("this user "),
    };
    about.is_some_and(|about| about.starts_with("has no permissions to run the"))
}

/// Returns the error that stopped a script, without the prefix of servers before 7.0, and whether it came from a
/// script.
fn strip_script_frames(text: &str) -> (&str, bool) {
    let mut said = match text.strip_prefix(RUNNING) {
        Some(called) => called.split_once("): ").map_or(text, |(_, said)| said),
        None => text,
    };
    let mut placed = false;
    while let Some(place) = said.strip_prefix("@user_script:")
        && let Some((line, what)) = place.trim_start().split_once(": ")
        && line.bytes().all(|b| b.is_ascii_digit())
    {
        (said, placed) = (what, true);
    }
    if placed {
        return (said.trim_start_matches('-'), true);
    }
    (text, before_script_suffix(text).is_some())
}

/// Prefix of servers before 7.0 for the error of a script; the script's hash follows.
const RUNNING: &str = "ERR Error running script (call to f_";

/// Removes the details that only a script's author can use: its hash, its line, a full stop.
fn trimmed(text: &str) -> &str {
    let text = before_script_suffix(text).unwrap_or(text);
    text.trim_end_matches(['.', ',', ' ', '\r', '\n'])
}

/// Returns the text before the script that servers since 7.0 name at the end: its hash and the line, or since Valkey
/// 9.1 the line alone.
fn before_script_suffix(text: &str) -> Option<&str> {
    let (said, script) = text.rsplit_once(" script: ")?;
    if script.starts_with("on @user_script:") {
        return Some(said);
    }
    let hash = script.split([',', '.']).next().unwrap_or(script);
    let is_hash = hash
        .trim_start_matches("f_")
        .bytes()
        .all(|b| b.is_ascii_hexdigit());
    is_hash.then_some(said)
}

/// Returns the server's own words. The crate's errors carry no credentials; ours must not either.
fn text(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
    }
}

/// Returns the server's own words, for messages that give the advice separately.
pub(super) fn without_hint(failure: &StoreError) -> &str {
    let detail = &failure.detail;
    detail.strip_suffix(ACL_HINT).unwrap_or(detail)
}

/// Hint for a connection that the server has closed.
const TLS_HINT: &str = "; if this port uses TLS, use rediss://";
/// Hint for a command that the user may not run.
const ACL_HINT: &str =
    "; `ACL LOG` on the server shows the missing right; docs/connecting.md lists all of them";

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts are those of real servers: 6.2, 7.0, later Redis and Valkey.
    #[test]
    fn errors_of_every_server_version_are_classified() {
        let hash = "8e3d8b8d2f6a4c0e9b1d7a5c3e1f0d2b4a6c8e0f";
        let old = format!(
            "ERR Error running script (call to f_{hash}): @user_script:9: @user_script: 9: "
        );
        for (text, cause, detail) in [
            (
                format!("{old}-OOM command not allowed when used memory > 'maxmemory'."),
                StoreErrorKind::OutOfMemory,
                "OOM command not allowed when used memory > 'maxmemory'",
            ),
            (
                format!(
                    "OOM command not allowed when used memory > 'maxmemory'. script: {hash}, on @user_script:9."
                ),
                StoreErrorKind::OutOfMemory,
                "OOM command not allowed when used memory > 'maxmemory'",
            ),
            (
                format!("{old}The user executing the script can't run this command or subcommand"),
                StoreErrorKind::PartiallyDenied,
                "The user executing the script can't run this command or subcommand",
            ),
            (
                "ERR Error running script (call to f_0): @user_script:15: WRONGTYPE Operation against a key".into(),
                StoreErrorKind::WrongKind,
                "WRONGTYPE Operation against a key",
            ),
            (
                format!("{old}WRONGTYPE Operation against a key holding the wrong kind of value"),
                StoreErrorKind::WrongKind,
                "WRONGTYPE Operation against a key holding the wrong kind of value",
            ),
            (
                format!(
                    "ERR The user executing the script can't run this command or subcommand script: {hash}, on @user_script:9."
                ),
                StoreErrorKind::PartiallyDenied,
                "ERR The user executing the script can't run this command or subcommand",
            ),
            (
                format!(
                    "ERR ACL failure in script: User ZOOM has no permissions to run the 'pexpire' command script: {hash}, on @user_script:9."
                ),
                StoreErrorKind::PartiallyDenied,
                "ERR ACL failure in script: User ZOOM has no permissions to run the 'pexpire' command",
            ),
            (
                format!(
                    "{old}-NOPERM this user has no permissions to access one of the keys used as arguments"
                ),
                StoreErrorKind::PartiallyDenied,
                "NOPERM this user has no permissions to access one of the keys used as arguments",
            ),
            // Valkey 9.1.
            (
                "NOREPLICAS Not enough good replicas to write. script: on @user_script:49.".into(),
                StoreErrorKind::NotReady,
                "NOREPLICAS Not enough good replicas to write",
            ),
            (
                "NOPERM No permissions to access a key script: on @user_script:1.".into(),
                StoreErrorKind::PartiallyDenied,
                "NOPERM No permissions to access a key",
            ),
            (
                "NOPERM User BUSY has no permissions to run the 'evalsha' command".into(),
                StoreErrorKind::Denied,
                "NOPERM User BUSY has no permissions to run the 'evalsha' command",
            ),
            (
                "BUSY Redis is busy running a script. You can only call SCRIPT KILL.".into(),
                StoreErrorKind::NotReady,
                "BUSY Redis is busy running a script. You can only call SCRIPT KILL",
            ),
            (
                format!("{old}-NOREPLICAS Not enough good replicas to write.\r\n"),
                StoreErrorKind::NotReady,
                "NOREPLICAS Not enough good replicas to write",
            ),
            (
                format!("{old}-READONLY You can't write against a read only replica."),
                StoreErrorKind::NotReady,
                "READONLY You can't write against a read only replica",
            ),
            (
                "ERR unknown command".into(),
                StoreErrorKind::Unexpected,
                "ERR unknown command",
            ),
        ] {
            let failure = from_text(&text);
            assert_eq!(failure.kind, cause, "{text}");
            let denied = matches!(cause, StoreErrorKind::Denied | StoreErrorKind::PartiallyDenied);
            assert_eq!(failure.detail.ends_with(ACL_HINT), denied, "{text}");
            assert_eq!(without_hint(&failure), detail, "{text}");
        }
    }

    /// A name, a value or a user may contain any text.
    #[test]
    fn only_the_start_of_an_error_is_classified() {
        for text in [
            "ERR no such thing: READONLY You can't write against a read only replica",
            "ERR no such thing: @user_script: 1: -OOM command not allowed",
            "ERR no such thing: EXECABORT Transaction discarded because of: OOM no",
            "ERR the lock 'User x has no permissions to run the' is odd",
            "ERR the lock 'Script attempted to access a non local key' is odd",
        ] {
            let failure = from_text(text);
            assert_eq!(
                (failure.kind, &*failure.detail),
                (StoreErrorKind::Unexpected, text)
            );
        }
        for text in [
            "ERR User app has no permissions to run the 'select' command",
            "ERR this user has no permissions to run the 'select' command or its subcommand",
        ] {
            assert_eq!(from_text(text).kind, StoreErrorKind::Denied, "{text}");
        }
        for text in [
            "ERR Error running script (call to f_0): @user_script:1: @user_script: 1: Lua script attempted to access a non local key in a cluster node",
            "ERR Script attempted to access a non local key in a cluster node script: 0, on @user_script:1.",
        ] {
            assert_eq!(from_text(text).kind, StoreErrorKind::Interrupted, "{text}");
        }
    }

    /// Covers Redis 6.2 for a script, and every version without one.
    #[test]
    fn read_only_is_recognized_on_every_version() {
        let says = |words: &str| {
            let answer = redis::parse_redis_value(format!("-{words}\r\n").as_bytes());
            let error = answer.and_then(redis::Value::extract_error);
            is_read_only(&from_call_error(&error.expect_err("it is an error")))
        };
        let old = "ERR Error running script (call to f_0): @user_script:1: @user_script: 1: -";
        let read_only = "READONLY You can't write against a read only replica.";
        assert!(says(read_only));
        assert!(says(&format!("{read_only} script: 0, on @user_script:1.")));
        assert!(says(&format!("{old}{read_only}")));
        assert!(!says(&format!("{old}OOM READONLY ")));
        assert!(!says("ERR READONLY "));
    }
}
