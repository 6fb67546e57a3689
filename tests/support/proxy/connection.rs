//! One connection through the proxy.
//!
//! ```text
//! client ─ read_requests ─▶ lane ─ forward ─▶ server
//! client ◀─ forward ─ lane ◀─ read_replies ─ server
//! ```
//!
//! Both readers read eagerly; a frame that has to wait, waits in a lane, which keeps the order. A cut ends the client's half
//! alone: the lane to the server is emptied first, and the server's socket is read until it closes, so that no reset
//! overtakes a request.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::super::resp::{self, Frames};
use super::super::transport::{Stream, connect};
use super::Shared;
use super::rule::{Fault, Injection};

/// Serves a connection until both sides have closed and no frame waits any more.
pub(super) async fn run(number: u64, client: Stream, shared: Arc<Shared>, cut: Arc<Cut>) {
    tokio::select! {
        () = shared.healed() => {}
        () = cut.made() => return,
    }
    let Ok(server) = connect(shared.upstream).await else {
        return;
    };
    let (from_client, mut to_client) = split(client);
    let (from_server, mut to_server) = split(server);
    let (request_lane, requests) = mpsc::unbounded_channel();
    let (reply_lane, replies) = mpsc::unbounded_channel();
    let (expect, expected) = mpsc::unbounded_channel();

    // Closing fails only where the other side has closed.
    let to_client = async {
        tokio::select! {
            () = forward(replies, &mut to_client, &shared) => {}
            () = cut.made() => {}
        }
        cut.make();
        let _ = to_client.shutdown().await;
    };
    let to_server = async {
        forward(requests, &mut to_server, &shared).await;
        let _ = to_server.shutdown().await;
    };
    tokio::join!(
        read_requests(number, from_client, request_lane, expect, &shared, &cut),
        to_server,
        read_replies(from_server, reply_lane, Expected::new(expected), &shared),
        to_client,
    );
}

/// The end of the client's half of a connection.
pub(super) struct Cut(watch::Sender<bool>);

impl Cut {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    pub(super) fn make(&self) {
        self.0.send_replace(true);
    }

    async fn made(&self) {
        self.0
            .subscribe()
            .wait_for(|made| *made)
            .await
            .expect("the sender is in `self`");
    }
}

async fn read_requests(
    number: u64,
    client: ReadHalf<Stream>,
    lane: UnboundedSender<QueuedMessage>,
    expect: UnboundedSender<Answer>,
    shared: &Shared,
    cut: &Cut,
) {
    let mut requests = Frames::new(client);
    let mut resp3 = false;
    loop {
        let frame = tokio::select! {
            biased;
            () = cut.made() => return,
            frame = next(&mut requests) => frame,
        };
        let Some(mut frame) = frame else {
            return;
        };
        let words = resp::words(&frame);
        resp3 |= asks_for_resp3(&words);
        let mut due = Due::Now;
        let mut answers = Vec::new();
        match shared.arrived(number, &words) {
            None => answers.push(answer(&words, resp3, None)),
            Some(injection) => match injection.fault {
                Fault::CutAfter | Fault::DelayReply(_) | Fault::HoldReply | Fault::SwallowReply => {
                    answers.push(answer(&words, resp3, Some(injection)));
                }
                Fault::CutBefore => {
                    cut.make();
                    shared.record(injection);
                    return;
                }
                Fault::DelayRequest(delay) => {
                    due = Due::At(Instant::now() + delay);
                    answers.push(answer(&words, resp3, None));
                    shared.record(injection);
                }
                Fault::DuplicateRequest => {
                    frame = frame.repeat(2);
                    answers.push(answer(&words, resp3, None));
                    answers.push(answer(&words, resp3, Some(injection)));
                }
                Fault::HoldRequest => {
                    // Take the count before the fault is on record, so that a test that has seen the record can release it.
                    due = Due::once_let_go(shared);
                    answers.push(answer(&words, resp3, None));
                    shared.record(injection);
                }
            },
        }
        // Count the replies before the request can be answered. The sends fail only if the server has closed.
        shared.expects(&answers);
        for answer in answers {
            let _ = expect.send(answer);
        }
        let _ = lane.send(QueuedMessage { bytes: frame, due });
    }
}

async fn read_replies(
    server: ReadHalf<Stream>,
    lane: UnboundedSender<QueuedMessage>,
    mut expected: Expected,
    shared: &Shared,
) {
    let mut replies = Frames::new(server);
    // Closing the lane closes the client once it has received everything that was in the lane.
    let mut lane = Some(lane);
    while let Some(mut bytes) = next(&mut replies).await {
        shared.places.translate(&mut bytes);
        let mut due = Due::Now;
        let claimed = expected.claim(&bytes);
        if claimed.is_some() {
            shared.answered();
        }
        if let Some(injection) = claimed.flatten() {
            let mut forwarded = true;
            match injection.fault {
                Fault::CutAfter => lane = None,
                Fault::DelayReply(delay) => due = Due::At(Instant::now() + delay),
                Fault::HoldReply => due = Due::once_let_go(shared),
                Fault::DuplicateRequest | Fault::SwallowReply => forwarded = false,
                Fault::CutBefore | Fault::DelayRequest(_) | Fault::HoldRequest => {
                    unreachable!("dealt with on the request's way")
                }
            }
            shared.record(injection);
            if !forwarded {
                continue;
            }
        }
        if let Some(lane) = &lane {
            let _ = lane.send(QueuedMessage { bytes, due });
        }
    }
}

/// Writes the parcels of a lane, each when it is due. The caller closes the connection after the last.
async fn forward(
    mut lane: UnboundedReceiver<QueuedMessage>,
    to: &mut WriteHalf<Stream>,
    shared: &Shared,
) {
    while let Some(QueuedMessage { bytes, due }) = lane.recv().await {
        match due {
            Due::At(moment) => sleep_until(moment).await,
            Due::DeliveryTime(times) => {
                let mut deliver_held = shared.deliver_held.subscribe();
                deliver_held
                    .wait_for(|now| *now > times)
                    .await
                    .expect("the sender is in `shared`");
            }
            Due::Now => {}
        }
        shared.healed().await;
        if to.write_all(&bytes).await.is_err() {
            return;
        }
    }
    // The end of one side must not pass through a partition, either.
    shared.healed().await;
}

/// Returns the next frame, or `None` if this side sends no more.
async fn next<R: AsyncRead + Unpin>(frames: &mut Frames<R>) -> Option<Vec<u8>> {
    match frames.next().await {
        Ok(frame) => frame,
        Err(error) => {
            // Every other error is a connection that ended, one way or the other.
            if error.kind() == io::ErrorKind::InvalidData {
                eprintln!("chaos proxy: {error}");
            }
            None
        }
    }
}

struct QueuedMessage {
    bytes: Vec<u8>,
    due: Due,
}

enum Due {
    At(Instant),
    /// Due when `deliver_held` was called more often than this.
    DeliveryTime(u64),
    Now,
}

impl Due {
    fn once_let_go(shared: &Shared) -> Self {
        Self::DeliveryTime(*shared.deliver_held.borrow())
    }
}

/// The frames that the server will send because of a request.
pub(super) enum Answer {
    /// The number of pushes that confirm a subscription in RESP3; one error may refuse it instead.
    Confirmations(usize),
    /// A RESP2 connection that has subscribed: from here on, confirmations, messages and replies cannot be told apart.
    Mixture,
    Reply(Option<Injection>),
}

impl Answer {
    pub(super) const fn is_reply(&self) -> bool {
        matches!(self, Self::Reply(_))
    }
}

fn answer(words: &[Vec<u8>], resp3: bool, injection: Option<Injection>) -> Answer {
    match (is_subscription(words), resp3) {
        (true, true) => Answer::Confirmations(words.len().saturating_sub(1).max(1)),
        (true, false) => Answer::Mixture,
        (false, _) => Answer::Reply(injection),
    }
}

/// The answers still to come, in the order of their requests.
struct Expected {
    later: UnboundedReceiver<Answer>,
    next: Option<Answer>,
}

impl Expected {
    fn new(later: UnboundedReceiver<Answer>) -> Self {
        Self { later, next: None }
    }

    /// Claims the expected reply that `frame` is, if it is one, and returns the fault to apply to it.
    fn claim(&mut self, frame: &[u8]) -> Option<Option<Injection>> {
        let push = frame.starts_with(b">");
        if push
            && !resp::words(frame)
                .first()
                .is_some_and(|kind| is_subscription_word(kind))
        {
            return None;
        }
        loop {
            match self.next.take().or_else(|| self.later.try_recv().ok())? {
                Answer::Mixture => {
                    self.next = Some(Answer::Mixture);
                    return None;
                }
                Answer::Confirmations(left) if push => {
                    self.next = (left > 1).then(|| Answer::Confirmations(left - 1));
                    return None;
                }
                Answer::Confirmations(_) if frame.starts_with(b"-") => return None,
                // The request named more channels than there were to confirm: this frame is the reply to the next request.
                Answer::Confirmations(_) => {}
                reply @ Answer::Reply(_) if push => {
                    self.next = Some(reply);
                    return None;
                }
                Answer::Reply(injection) => return Some(injection),
            }
        }
    }
}

fn is_subscription(words: &[Vec<u8>]) -> bool {
    words.first().is_some_and(|word| is_subscription_word(word))
}

/// Returns whether this is the name of a command of the `SUBSCRIBE` family, or of the push that confirms it.
fn is_subscription_word(word: &[u8]) -> bool {
    let word = word.to_ascii_lowercase();
    [
        &b"subscribe"[..],
        b"psubscribe",
        b"ssubscribe",
        b"unsubscribe",
        b"punsubscribe",
        b"sunsubscribe",
    ]
    .contains(&word.as_slice())
}

fn asks_for_resp3(words: &[Vec<u8>]) -> bool {
    matches!(words, [hello, version, ..] if hello.eq_ignore_ascii_case(b"HELLO") && version == b"3")
}
