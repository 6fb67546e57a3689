//! Fairness: one side is a crowd that hands the lock around; the other still gets its turn.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinHandle;

use crate::checker::{self, Grant};
use crate::clock::Stamp;
use crate::failure::{Outcome, ensure};
use crate::party::{Kind, Party, Term};
use crate::stage::Stage;
use crate::worker::{self, LockMode, MOMENT, Tally, Work};
use crate::world::{World, until};

/// Every `tryLock` is granted, however busy the crowd is, and never at the same time. Nor is it luck: most times the crowd has only a few
/// rounds of its own meanwhile.
pub(super) async fn play(stage: &mut Stage) -> Outcome<String> {
    let Stage {
        holder,
        other,
        world,
        terms,
        ..
    } = stage;
    let crowd = ContendingTasks::gather(holder, world, terms.kind)?;
    let busy = || {
        let counter: Option<u64> = world.server().query(&["GET", COUNTER]);
        counter.unwrap_or(0)
    };
    until("the crowd is at work", || busy() > 200).await?;

    let turns = world.pace.rounds(40);
    let mut longest = Duration::ZERO;
    let mut passed_over = Vec::new();
    let mut ours = Vec::new();
    for turn in 1..=turns {
        let before = busy();
        let (granted, span) = other.try_lock(NAME, PATIENCE, Term::Kept).await?;
        ensure!(granted, "no turn within {PATIENCE:?}, at the {turn}th try");
        longest = longest.max(span.took());
        passed_over.push(busy() - before);
        let token = match terms.kind {
            Kind::Fenced => Some(other.token(NAME).await?),
            _ => None,
        };
        let to = Stamp::now();
        ours.push(Grant {
            name: NAME.into(),
            who: other.title(),
            from: span.to,
            to,
            token,
        });
        other.unlock(NAME).await?.done()?;
        // Without this check the party may have been alone.
        until("the crowd works on", || busy() > before + 64).await?;
    }

    let (tally, mut grants) = crowd.disperse().await?;
    let counted: u64 = world.server().query(&["GETDEL", COUNTER]);
    let members = tally.grants;
    ensure!(
        counted == members,
        "{members} grants, but {counted} counted"
    );
    grants.extend(ours);
    let setbacks = checker::setbacks(grants.clone());
    ensure!(
        setbacks.is_empty(),
        "a token did not grow: {:?}",
        setbacks[0]
    );
    let overlaps = checker::overlaps(grants);
    ensure!(
        overlaps.is_empty(),
        "two held it at once: {:?}",
        overlaps[0]
    );
    // A party that is slow to wake on a busy machine now and then is no unfairness.
    passed_over.sort_unstable();
    let passed_over = passed_over[passed_over.len() / 2];
    ensure!(
        passed_over <= FAIR,
        "the crowd had {passed_over} turns for each of the other's"
    );
    let longest = longest.as_millis();
    Ok(format!(
        "{turns} turns, longest wait {longest} ms, after {passed_over} others in the median"
    ))
}

/// Sixty-four tasks of one client of ours, or threads of one JVM.
struct ContendingTasks {
    at_work: JoinHandle<Outcome<Tally>>,
    stop: Arc<AtomicBool>,
    log: TempDir,
}

impl ContendingTasks {
    /// Starts a crowd on the same side as `like`.
    fn gather(like: &Party, world: &World, kind: Kind) -> Outcome<Self> {
        let log = TempDir::with_prefix("distlock-crowd-")?;
        let work = Work {
            urls: vec![world.server().url()],
            shared: kind.shared(),
            names: vec![NAME.into()],
            tasks: 64,
            time: Duration::from_secs(600),
            moment: MOMENT,
            manner: LockMode::Alike,
            who: "crowd".into(),
            seed: 1,
            log: log.path().join("grants"),
        };
        let stop = Arc::new(AtomicBool::new(false));
        let at_work = match like {
            // The crowd ends when it is stopped, and `disperse` waits for it.
            Party::Ours(_) => tokio::spawn(worker::work(work, stop.clone())),
            Party::Java(thread) => {
                let peer = thread.peer().clone();
                let mut order = work.to_json();
                order["cmd"] = "hammer".into();
                order["thread"] = "crowd".into();
                order["client"] = thread.client().into();
                let stop = stop.clone();
                tokio::spawn(async move {
                    let mut tally = std::pin::pin!(peer.call(order));
                    loop {
                        tokio::select! {
                            done = &mut tally => return Tally::from_json(&done?.value()?),
                            () = tokio::time::sleep(Duration::from_millis(20)) => {}
                        }
                        if stop.swap(false, Ordering::Relaxed) {
                            peer.ask(json!({"cmd": "stop", "thread": "stop"})).await?;
                        }
                    }
                })
            }
        };
        Ok(Self { at_work, stop, log })
    }

    /// Ends the crowd; returns its tally and its grants.
    async fn disperse(self) -> Outcome<(Tally, Vec<Grant>)> {
        self.stop.store(true, Ordering::Relaxed);
        let tally = self.at_work.await??;
        let log = fs::read_to_string(self.log.path().join("grants"))?;
        Ok((tally, checker::read(&log)?))
    }
}

const NAME: &str = "turns";
const COUNTER: &str = "counter:turns";
/// Four times as often as a lock is handed off among clients of one side before others get their turn. Seen: 20 to 40; and 300 to 1,300
/// with a client that sends its next request at once, as if there were no other client.
const FAIR: u64 = 128;
const PATIENCE: Duration = Duration::from_secs(120);
