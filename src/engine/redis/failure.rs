//! What a Redis error lets one conclude.

use redis::{ErrorKind, RedisError, ServerErrorKind, Value};

use crate::engine::{Cause, Failure};

/// A connection that could not be made: nothing was sent on it.
pub(crate) fn of_connecting(error: &RedisError) -> Failure {
    let mut failure = of_calling(error);
    if failure.detail.starts_with("NOAUTH") {
        failure.detail = "it asks for a password: redis://user:password@host/".into();
    } else if failure.detail.starts_with("WRONGPASS") {
        failure.detail += " (special characters in an address must be percent-encoded)";
    }
    if error.kind() == ErrorKind::Parse {
        // Trying again would not make a Redis server of it.
        return failure;
    }
    match failure.cause {
        Cause::Interrupted | Cause::TimedOut | Cause::Unexpected => {
            Failure::new(Cause::Unreachable, failure.detail)
        }
        Cause::Denied
        | Cause::DeniedInPart
        | Cause::NoName
        | Cause::NotReplicated
        | Cause::OutOfMemory
        | Cause::Tls(_)
        | Cause::Unreachable
        | Cause::Unready
        | Cause::Unusable
        | Cause::WrongKind => failure,
    }
}

/// The same, over a network, unencrypted, where no connection was made before: a server that has answered before and resets a
/// connection restarts, or has an idle limit.
pub(crate) fn of_first_connecting_openly(error: &RedisError) -> Failure {
    let mut failure = of_connecting(error);
    // One that speaks TLS ends the connection when it is spoken to in the clear; so may one that is on its way down.
    if failure.cause == Cause::Unreachable
        && error.is_connection_dropped()
        && !error.is_connection_refusal()
    {
        failure.detail += SPEAKS_TLS;
    }
    failure
}

/// A call that brought an error.
pub(crate) fn of_calling(error: &RedisError) -> Failure {
    let cause = match error.kind() {
        ErrorKind::Server(
            ServerErrorKind::BusyLoading
            | ServerErrorKind::MasterDown
            | ServerErrorKind::ReadOnly
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::Moved
            | ServerErrorKind::Ask
            | ServerErrorKind::TryAgain,
        ) => Cause::Unready,
        ErrorKind::AuthenticationFailed => Cause::Denied,
        // A script passes on what stopped it, with the code in front of the text; so does EXEC.
        ErrorKind::Server(
            ServerErrorKind::ExecAbort | ServerErrorKind::NoPerm | ServerErrorKind::ResponseError,
        )
        | ErrorKind::Extension => return from_text(&text(error)),
        ErrorKind::Parse => {
            let why = "what answers there does not speak Redis' protocol (wrong port, or TLS, which is rediss://?)";
            return Failure::new(Cause::Unexpected, why);
        }
        _ if error.is_timeout() => Cause::TimedOut,
        ErrorKind::Io => Cause::Interrupted,
        _ => Cause::Unexpected,
    };
    Failure::new(cause, tidied(&text(error)))
}

/// Whether it is what one meets on the way from one master to the next, and has certainly done nothing: at another server,
/// or a little later, it works.
pub(crate) fn is_of_a_failover(failure: &Failure) -> bool {
    match failure.cause {
        Cause::Unreachable => true,
        Cause::Unready => {
            // A server that is busy, or cannot write to its disk, is the master all the same.
            let lasting = ["BUSY", "MISCONF"];
            !lasting.iter().any(|code| failure.detail.starts_with(code))
        }
        Cause::Denied
        | Cause::DeniedInPart
        | Cause::Interrupted
        | Cause::NoName
        | Cause::NotReplicated
        | Cause::OutOfMemory
        | Cause::TimedOut
        | Cause::Tls(_)
        | Cause::Unexpected
        | Cause::Unusable
        | Cause::WrongKind => false,
    }
}

/// Whether a replica was asked what only a master does.
pub(crate) fn is_read_only(failure: &Failure) -> bool {
    failure.cause == Cause::Unready && failure.detail.starts_with(READ_ONLY)
}

/// The words of a server in a cluster that has not what it was asked for.
pub(crate) const REDIRECTS: [&str; 2] = ["ASK", "MOVED"];

/// Whether another server was to be asked.
pub(crate) fn is_redirection(failure: &Failure) -> bool {
    let code = failure.detail.split(' ').next();
    failure.cause == Cause::Unready && code.is_some_and(|code| REDIRECTS.contains(&code))
}

/// Whether it is about a slot: another server has it, or none.
pub(crate) fn is_of_a_slot(failure: &Failure) -> bool {
    let unserved = failure.cause == Cause::Unready && failure.detail.starts_with("CLUSTERDOWN");
    unserved || is_redirection(failure)
}

/// Whether a call of many found a replica: then none of them has done anything.
pub(crate) fn of_read_only(answer: &Value) -> Option<Failure> {
    let Value::Array(answers) = answer else {
        return None;
    };
    let mut failures = answers.iter().filter_map(|answer| match answer {
        Value::BulkString(text) => Some(from_text(std::str::from_utf8(text).ok()?)),
        _ => None,
    });
    failures.find(is_read_only)
}

/// As 6.2 words it, and later versions.
const NOT_HERE: [&str; 3] = [
    "Lua script attempted to access a non local key",
    "Script attempted to access a non local key",
    "ERR Script attempted to access a non local key",
];
/// As every version begins it.
const READ_ONLY: &str = "READONLY You can't write against a read only";

/// What comes before the reason for which EXEC itself was refused.
const ABORTED: &str = "EXECABORT Transaction discarded because of: ";

/// An error as the server words it.
pub(crate) fn from_text(text: &str) -> Failure {
    let text = text.strip_prefix(ABORTED).unwrap_or(text);
    let (said, in_script) = of_the_cause(text);
    let code = said.split(' ').next().unwrap_or(said);
    let cause = match code {
        "WRONGTYPE" => Cause::WrongKind,
        "OOM" => Cause::OutOfMemory,
        "NOPERM" if in_script => Cause::DeniedInPart,
        "NOPERM" | "NOAUTH" | "WRONGPASS" => Cause::Denied,
        // Redis up to 7.0, and later ones; what the script did before stays done.
        _ if said.starts_with("The user executing the script")
            || said.starts_with("ERR The user executing the script")
            || said.starts_with("ERR ACL failure in script") =>
        {
            Cause::DeniedInPart
        }
        // Of SELECT, while a connection is made, only the text comes through.
        _ if says_denied(said) => Cause::Denied,
        "BUSY" | "CLUSTERDOWN" | "LOADING" | "MASTERDOWN" | "MISCONF" | "NOREPLICAS"
        | "READONLY" | "TRYAGAIN" => Cause::Unready,
        // A slot on its way has left in the middle; what the script did before stays done.
        _ if NOT_HERE.iter().any(|words| said.starts_with(words)) => Cause::Interrupted,
        _ => Cause::Unexpected,
    };
    let mut failure = Failure::new(cause, tidied(said));
    if matches!(cause, Cause::Denied | Cause::DeniedInPart)
        && code != "NOAUTH"
        && code != "WRONGPASS"
    {
        failure.detail += WAY_OUT;
    }
    failure
}

/// Whether a command was denied, by the text alone: of this user, or of one that is named, which is one word.
fn says_denied(said: &str) -> bool {
    let said = said.strip_prefix("ERR ").unwrap_or(said);
    let about = match said.strip_prefix("User ") {
        Some(named) => named.split_once(' ').map(|(_, about)| about),
        None => said.strip_prefix("this user "),
    };
    about.is_some_and(|about| about.starts_with("has no permissions to run the"))
}

/// What stopped a script, without what servers before 7.0 put before it, and whether it was a script.
fn of_the_cause(text: &str) -> (&str, bool) {
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
    (text, behind(text).is_some())
}

/// What servers before 7.0 put before the error of a script; its hash follows.
const RUNNING: &str = "ERR Error running script (call to f_";

/// Without what only a script's author can use: its hash, its line, a full stop.
fn tidied(text: &str) -> &str {
    let text = behind(text).unwrap_or(text);
    text.trim_end_matches(['.', ',', ' ', '\r', '\n'])
}

/// What comes before the script that servers since 7.0 name at the end: its hash and the line, or since Valkey 9.1 the line alone.
fn behind(text: &str) -> Option<&str> {
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

/// The server's own words. The crate's errors carry no credentials; ours must not either.
fn text(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
    }
}

/// What the server said, where the way out is told apart from it.
pub(super) fn said(failure: &Failure) -> &str {
    let detail = &failure.detail;
    detail.strip_suffix(WAY_OUT).unwrap_or(detail)
}

/// For one who was hung up on.
const SPEAKS_TLS: &str = "; if this port speaks TLS, it is rediss://";
/// For one who may not do something.
const WAY_OUT: &str = "; its `ACL LOG` says what is missing, docs/connecting.md what locks need";

#[cfg(test)]
mod tests {
    use super::*;

    /// As servers have worded them: 6.2, 7.0, later Redis and Valkey.
    #[test]
    fn every_version_says_the_same_in_other_words() {
        let hash = "8e3d8b8d2f6a4c0e9b1d7a5c3e1f0d2b4a6c8e0f";
        let old = format!(
            "ERR Error running script (call to f_{hash}): @user_script:9: @user_script: 9: "
        );
        for (text, cause, detail) in [
            (
                format!("{old}-OOM command not allowed when used memory > 'maxmemory'."),
                Cause::OutOfMemory,
                "OOM command not allowed when used memory > 'maxmemory'",
            ),
            (
                format!(
                    "OOM command not allowed when used memory > 'maxmemory'. script: {hash}, on @user_script:9."
                ),
                Cause::OutOfMemory,
                "OOM command not allowed when used memory > 'maxmemory'",
            ),
            (
                format!("{old}The user executing the script can't run this command or subcommand"),
                Cause::DeniedInPart,
                "The user executing the script can't run this command or subcommand",
            ),
            (
                "ERR Error running script (call to f_0): @user_script:15: WRONGTYPE Operation against a key".into(),
                Cause::WrongKind,
                "WRONGTYPE Operation against a key",
            ),
            (
                format!("{old}WRONGTYPE Operation against a key holding the wrong kind of value"),
                Cause::WrongKind,
                "WRONGTYPE Operation against a key holding the wrong kind of value",
            ),
            (
                format!(
                    "ERR The user executing the script can't run this command or subcommand script: {hash}, on @user_script:9."
                ),
                Cause::DeniedInPart,
                "ERR The user executing the script can't run this command or subcommand",
            ),
            (
                format!(
                    "ERR ACL failure in script: User ZOOM has no permissions to run the 'pexpire' command script: {hash}, on @user_script:9."
                ),
                Cause::DeniedInPart,
                "ERR ACL failure in script: User ZOOM has no permissions to run the 'pexpire' command",
            ),
            (
                format!(
                    "{old}-NOPERM this user has no permissions to access one of the keys used as arguments"
                ),
                Cause::DeniedInPart,
                "NOPERM this user has no permissions to access one of the keys used as arguments",
            ),
            // Valkey 9.1.
            (
                "NOREPLICAS Not enough good replicas to write. script: on @user_script:49.".into(),
                Cause::Unready,
                "NOREPLICAS Not enough good replicas to write",
            ),
            (
                "NOPERM No permissions to access a key script: on @user_script:1.".into(),
                Cause::DeniedInPart,
                "NOPERM No permissions to access a key",
            ),
            (
                "NOPERM User BUSY has no permissions to run the 'evalsha' command".into(),
                Cause::Denied,
                "NOPERM User BUSY has no permissions to run the 'evalsha' command",
            ),
            (
                "BUSY Redis is busy running a script. You can only call SCRIPT KILL.".into(),
                Cause::Unready,
                "BUSY Redis is busy running a script. You can only call SCRIPT KILL",
            ),
            (
                format!("{old}-NOREPLICAS Not enough good replicas to write.\r\n"),
                Cause::Unready,
                "NOREPLICAS Not enough good replicas to write",
            ),
            (
                format!("{old}-READONLY You can't write against a read only replica."),
                Cause::Unready,
                "READONLY You can't write against a read only replica",
            ),
            (
                "ERR unknown command".into(),
                Cause::Unexpected,
                "ERR unknown command",
            ),
        ] {
            let failure = from_text(&text);
            assert_eq!(failure.cause, cause, "{text}");
            let denied = matches!(cause, Cause::Denied | Cause::DeniedInPart);
            assert_eq!(failure.detail.ends_with(WAY_OUT), denied, "{text}");
            assert_eq!(said(&failure), detail, "{text}");
        }
    }

    /// A name, a value or a user may be called like anything.
    #[test]
    fn words_that_are_not_at_the_beginning_decide_nothing() {
        for text in [
            "ERR no such thing: READONLY You can't write against a read only replica",
            "ERR no such thing: @user_script: 1: -OOM command not allowed",
            "ERR no such thing: EXECABORT Transaction discarded because of: OOM no",
            "ERR the lock 'User x has no permissions to run the' is odd",
            "ERR the lock 'Script attempted to access a non local key' is odd",
        ] {
            let failure = from_text(text);
            assert_eq!((failure.cause, &*failure.detail), (Cause::Unexpected, text));
        }
        for text in [
            "ERR User app has no permissions to run the 'select' command",
            "ERR this user has no permissions to run the 'select' command or its subcommand",
        ] {
            assert_eq!(from_text(text).cause, Cause::Denied, "{text}");
        }
        for text in [
            "ERR Error running script (call to f_0): @user_script:1: @user_script: 1: Lua script attempted to access a non local key in a cluster node",
            "ERR Script attempted to access a non local key in a cluster node script: 0, on @user_script:1.",
        ] {
            assert_eq!(from_text(text).cause, Cause::Interrupted, "{text}");
        }
    }

    /// Redis 6.2 for a script, and every version without one.
    #[test]
    fn a_demoted_server_is_told_whatever_its_version() {
        let says = |words: &str| {
            let answer = redis::parse_redis_value(format!("-{words}\r\n").as_bytes());
            let error = answer.and_then(redis::Value::extract_error);
            is_read_only(&of_calling(&error.expect_err("it is an error")))
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
