//! What a Redis error lets one conclude.

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::engine::{Cause, Failure};

/// A connection that could not be made: nothing was sent on it.
pub(crate) fn of_connecting(error: &RedisError) -> Failure {
    let failure = of_calling(error);
    match failure.cause {
        Cause::Interrupted | Cause::TimedOut | Cause::Unexpected => {
            Failure::new(Cause::Unreachable, failure.detail)
        }
        Cause::Denied
        | Cause::DeniedInPart
        | Cause::OutOfMemory
        | Cause::Unreachable
        | Cause::Unready
        | Cause::WrongKind => failure,
    }
}

/// A call that brought an error.
pub(crate) fn of_calling(error: &RedisError) -> Failure {
    let cause = match error.kind() {
        ErrorKind::Server(
            ServerErrorKind::BusyLoading
            | ServerErrorKind::MasterDown
            | ServerErrorKind::ReadOnly
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::TryAgain,
        ) => Cause::Unready,
        ErrorKind::Server(ServerErrorKind::NoPerm) | ErrorKind::AuthenticationFailed => {
            Cause::Denied
        }
        // A script passes on what stopped it, with the code in front of the text.
        ErrorKind::Server(ServerErrorKind::ResponseError) | ErrorKind::Extension => {
            return from_text(&text(error));
        }
        ErrorKind::Parse => {
            let why = "what answers there does not speak Redis' protocol (wrong port, or TLS?)";
            return Failure::new(Cause::Unexpected, why);
        }
        _ if error.is_timeout() => Cause::TimedOut,
        ErrorKind::Io => Cause::Interrupted,
        _ => Cause::Unexpected,
    };
    Failure::new(cause, tidied(&text(error)))
}

/// An error as the server words it.
pub(crate) fn from_text(text: &str) -> Failure {
    let says = |word: &str| text.contains(word);
    let cause = if says("WRONGTYPE") {
        Cause::WrongKind
    } else if says("OOM") {
        Cause::OutOfMemory
    } else if says("executing the script") || (says("NOPERM") && says("script: ")) {
        Cause::DeniedInPart
    } else if says("NOPERM") || says("WRONGPASS") || says("NOAUTH") || says("ACL failure") {
        Cause::Denied
    } else if [
        "BUSY",
        "LOADING",
        "READONLY",
        "MASTERDOWN",
        "MISCONF",
        "NOREPLICAS",
    ]
    .iter()
    .any(|word| says(word))
    {
        Cause::Unready
    } else {
        Cause::Unexpected
    };
    Failure::new(cause, tidied(text))
}

/// Without what only a script's author can use: its hash, its line, a full stop.
fn tidied(text: &str) -> &str {
    let text = text.split(" script: ").next().unwrap_or(text);
    text.trim_end_matches(['.', ',', ' '])
}

/// The server's own words. The crate's errors carry no credentials; ours must not either.
fn text(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
    }
}
