//! The parties that may wait for the reply to a call.

/// The party that waits for a reply, which decides the connection of the call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum CallPriority {
    /// A caller, which may cancel at any time: that says nothing about the connection.
    Foreground,
    /// The driver alone, which gives up only calls that took too long: another connection may be faster.
    Background,
}
