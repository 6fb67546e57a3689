//! The rules of the network: each does one thing wrong, once, to one request.

use std::time::Duration;

use super::COMMAND_TIMEOUT;
use crate::support::Fault;

pub(crate) struct Rule {
    pub(crate) name: &'static str,
    pub(crate) fault: Fault,
    /// When a message that the fault holds back is delivered, if the fault holds any back.
    pub(crate) deliver_held: Option<DeliveryTime>,
    /// Whether the call should not even notice the fault.
    pub(crate) harmless: bool,
}

/// When a request or reply that was held back is delivered. In each case its call was given up long before, and the client has cleaned up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeliveryTime {
    /// It is delivered as soon as the client has cleaned up.
    AfterCleanup,
    /// It is delivered at the end, when every guard is gone.
    WhenFree,
    /// It is delivered at the end, while another client holds the lock.
    WhenTaken,
}

pub(crate) const RULES: &[Rule] = &[
    lossy("cut after execution", Fault::CutAfter),
    lossy("cut before execution", Fault::CutBefore),
    harmless("reply delayed, but in time", Fault::DelayReply(BRIEFLY)),
    lossy("reply delayed past the time-out", Fault::DelayReply(LONG)),
    harmless("request delayed, but in time", Fault::DelayRequest(BRIEFLY)),
    lossy(
        "request delayed until just before its undo",
        Fault::DelayRequest(COMMAND_TIMEOUT),
    ),
    lossy(
        "request delayed until its undo, about",
        Fault::DelayRequest(about(2)),
    ),
    lossy(
        "request delayed until its undo, or later",
        Fault::DelayRequest(about(4)),
    ),
    lossy(
        "request delayed until just after its undo",
        Fault::DelayRequest(about(10)),
    ),
    lossy("request delayed past its undo", Fault::DelayRequest(LONG)),
    harmless("request doubled", Fault::DuplicateRequest),
    held(
        "reply held until cleaned up",
        Fault::HoldReply,
        DeliveryTime::AfterCleanup,
    ),
    held(
        "reply held until all is free",
        Fault::HoldReply,
        DeliveryTime::WhenFree,
    ),
    held(
        "reply held until taken by another",
        Fault::HoldReply,
        DeliveryTime::WhenTaken,
    ),
    held(
        "request held until cleaned up",
        Fault::HoldRequest,
        DeliveryTime::AfterCleanup,
    ),
    held(
        "request held until all is free",
        Fault::HoldRequest,
        DeliveryTime::WhenFree,
    ),
    held(
        "request held until taken by another",
        Fault::HoldRequest,
        DeliveryTime::WhenTaken,
    ),
    lossy("reply swallowed", Fault::SwallowReply),
];

const fn harmless(name: &'static str, fault: Fault) -> Rule {
    Rule {
        name,
        fault,
        deliver_held: None,
        harmless: true,
    }
}

const fn lossy(name: &'static str, fault: Fault) -> Rule {
    Rule {
        harmless: false,
        ..harmless(name, fault)
    }
}

const fn held(name: &'static str, fault: Fault, deliver_held: DeliveryTime) -> Rule {
    Rule {
        deliver_held: Some(deliver_held),
        ..lossy(name, fault)
    }
}

const BRIEFLY: Duration = Duration::from_millis(30);
const LONG: Duration = about(150);

/// Returns the command time-out plus this time: a call that timed out is undone at once, so a message this late races with its undo.
const fn about(millis: u64) -> Duration {
    let Some(about) = COMMAND_TIMEOUT.checked_add(Duration::from_millis(millis)) else {
        panic!("both are short");
    };
    about
}
