//! Error replies.

/// The text of an error reply: a code and a message.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failure(String);

/// The reply to a command.
pub(crate) type Reply = Result<crate::Value, Failure>;

impl Failure {
    /// Returns an error with the code `ERR`.
    pub(crate) fn general(message: impl AsRef<str>) -> Self {
        Self(format!("ERR {}", message.as_ref()))
    }

    /// Returns an error with a code of its own, with which the text begins.
    pub(crate) fn coded(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub(crate) fn syntax() -> Self {
        Self::general("syntax error")
    }

    pub(crate) fn not_an_integer() -> Self {
        Self::general("value is not an integer or out of range")
    }

    pub(crate) fn wrong_type() -> Self {
        Self::coded("WRONGTYPE Operation against a key holding the wrong kind of value")
    }

    pub(crate) fn arity(command: &str) -> Self {
        Self::general(format!("wrong number of arguments for '{command}' command"))
    }

    /// Returns whether the error sends the client to another node of a cluster, or away for now.
    pub(crate) fn is_redirect(&self) -> bool {
        let code = self.0.split(' ').next().unwrap_or_default();
        ["CROSSSLOT", "TRYAGAIN", "CLUSTERDOWN", "MOVED", "ASK"].contains(&code)
    }

    pub(crate) fn into_text(self) -> String {
        self.0
    }
}
