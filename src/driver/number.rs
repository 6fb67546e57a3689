//! Numbers that are nobody's: what they are, and changes of them that are carried out once.

use std::sync::Arc;
use std::time::Duration;

use tracing::field::debug;

use super::acquire::{Patience, Wish, acquire};
use super::release::keep;
use super::{Core, Trouble, unexpected};
use crate::engine::events::emit_in_call;
use crate::engine::{Cause, Failure};
use crate::protocol::acquire::Hearing;
use crate::protocol::deeds::is_remembered;
use crate::protocol::jitter::spread;
use crate::protocol::lease::Terms;
use crate::protocol::marks::MARK_TTL;
use crate::protocol::{Action, Alter, Count, Reply, Subject, Wanted};

/// Before a change is asked for again.
const PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// What a number was when it was changed, and what it is since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Altered {
    pub(crate) before: Option<i64>,
    pub(crate) after: Option<i64>,
}

/// Changes a number. Asked for again, as the same request, while no answer comes and time is left: until a command's time is
/// over, and once more if that took all of it.
pub(crate) async fn alter(
    core: &Core,
    subject: &Subject,
    change: Alter,
) -> Result<Altered, Trouble> {
    // A store that answers on the spot must not keep other tasks from running.
    tokio::task::coop::consume_budget().await;
    core.usable()?;
    let unsettled = core.unsettled(subject);
    let begun = core.clock.now();
    let give_up_at = begun + core.settings.command_timeout;
    let mut doubt = false;
    let mut pause = PAUSE;
    loop {
        let mut deed = unsettled.deed;
        if planted!(RetryIsNew) {
            deed = core.begin_deed(subject);
        }
        let request = subject.request(Action::Alter { deed, change });
        let failure = match core.call(request).await {
            Ok(Reply::Altered { before, after }) => return Ok(Altered { before, after }),
            Ok(other) => unexpected(&other),
            Err(failure) => failure,
        };
        let now = core.clock.now();
        let in_time = now < give_up_at;
        let once_more = failure.leaves_doubt() && !doubt;
        doubt |= failure.leaves_doubt();
        // After a long sleep of this process, or a very patient wait, the store would take it for another.
        let forgotten = doubt && !is_remembered(begun, now);
        let hopeless = !failure.is_passing() || core.usable().is_err();
        if hopeless || forgotten || !(in_time || once_more) {
            return Err(Trouble::Failure(told(failure, doubt)));
        }
        emit_in_call!(
            core.events,
            DEBUG,
            { name: debug(subject.name.clone()), why: failure.detail.clone() },
            "no answer; asking again"
        );
        // Not all at the same instant, where many lost the same server.
        let rest = pause / 2 + spread(pause / 2, core.fresh_seed());
        core.clock.sleep_until(Some(core.clock.now() + rest)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Takes so many off the number, for the caller to keep; says whether it has before patience is over.
pub(crate) async fn take(
    core: &Arc<Core>,
    subject: &Subject,
    count: u32,
    patience: Patience,
) -> Result<bool, Trouble> {
    let wish = Wish {
        subject: subject.clone(),
        terms: Terms {
            // For as long as the store knows which request took them: they are given back by that until the caller has
            // them.
            lease: MARK_TTL,
            keep_alive: false,
            max_hold: None,
            cut: None,
        },
        hearing: Hearing::Notify,
        user: None,
        beside: None,
        permits: Wanted { count, of: None },
    };
    match acquire(core, &wish, patience).await? {
        Some(claim) => keep(claim).map(|()| true),
        None => Ok(false),
    }
}

/// What the number is; none if there is none.
pub(crate) async fn look(core: &Core, subject: &Subject) -> Result<Option<i64>, Trouble> {
    core.usable()?;
    ask(core, subject).await.map_err(Trouble::Failure)
}

pub(super) async fn ask(core: &Core, subject: &Subject) -> Result<Option<i64>, Failure> {
    match core
        .call(subject.request(Action::Count(Count::Look)))
        .await?
    {
        Reply::Counted { permits, .. } => Ok(permits.map(|permits| permits.available)),
        other => Err(unexpected(&other)),
    }
}

/// Whoever asked is to know that it must not ask again as if nothing had happened, whatever was in the way last.
fn told(failure: Failure, doubt: bool) -> Failure {
    if !doubt {
        return failure;
    }
    let cause = match failure.is_passing() {
        true => Cause::TimedOut,
        false => failure.cause,
    };
    Failure::new(cause, failure.detail + "; it may have been done")
}
