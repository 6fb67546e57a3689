//! The operations that only a semaphore has: permits with ids, and how many there are.

use std::time::Duration;

use distlock::Semaphore;
use serde_json::{Value, json};

use super::java::{JavaThread, lease, millis, number, yes_or_no};
use super::ours::{AnyGuard, OurTask, leased, try_lock};
use super::{Party, Term, Unlocked};
use crate::clock::{Span, Stamp};
use crate::failure::{Failure, Outcome, ensure};

/// Permits by their ids, as the APIs of both sides spell them.
pub(crate) type Ids = Vec<String>;

impl Party {
    /// Waits for this many permits without a timeout.
    pub(crate) async fn take(
        &mut self,
        name: &str,
        count: u32,
        term: Term,
    ) -> Outcome<(Ids, Span)> {
        let (ids, span) = self.take_within(name, count, None, term).await?;
        let ids = ids.ok_or_else(|| Failure::new("it waited without end, and got none"))?;
        Ok((ids, span))
    }

    /// Tries once to acquire this many permits.
    pub(crate) async fn try_take(
        &mut self,
        name: &str,
        count: u32,
        term: Term,
    ) -> Outcome<Option<Ids>> {
        let once = Some(Duration::ZERO);
        Ok(self.take_within(name, count, once, term).await?.0)
    }

    /// Waits for this many permits for at most `wait`.
    pub(crate) async fn take_within(
        &mut self,
        name: &str,
        count: u32,
        wait: Option<Duration>,
        term: Term,
    ) -> Outcome<(Option<Ids>, Span)> {
        let (ids, span) = match self {
            Self::Java(thread) => thread.take_permits(name, count, wait, term).await?,
            Self::Ours(task) => task.take_permits(name, count, wait, term).await?,
        };
        let had = ids.as_ref().map_or(count as usize, Vec::len);
        ensure!(had == count as usize, "{had} permits instead of {count}");
        Ok((ids, span))
    }

    /// Releases permits that this party itself has acquired in one call.
    pub(crate) async fn release(&mut self, name: &str, ids: &Ids) -> Outcome<Unlocked> {
        match self {
            Self::Java(thread) => thread.release_permits(name, ids).await,
            Self::Ours(task) => task.release_permits(name, ids).await,
        }
    }

    /// Releases a permit of any client; reports whether it was in use.
    pub(crate) async fn release_permit(&self, name: &str, id: &str) -> Outcome<bool> {
        match self {
            Self::Java(thread) => {
                let command = json!({"cmd": "permit_give_back", "name": name, "permit": id});
                yes_or_no(&thread.ask(command).await?)
            }
            Self::Ours(task) => {
                let permit = id.parse().map_err(|_| Failure::new("not a permit's id"))?;
                Ok(task.semaphore(name).release(permit).await?)
            }
        }
    }

    /// Returns how many permits are available, as this side sees it.
    pub(crate) async fn available(&self, name: &str) -> Outcome<i64> {
        match self {
            Self::Java(thread) => {
                let command = json!({"cmd": "permits_available", "name": name});
                number(&thread.ask(command).await?)
            }
            Self::Ours(task) => Ok(task.semaphore(name).count().await?.available),
        }
    }

    /// Sets the total number of permits, unless it is set.
    pub(crate) async fn try_set_permits(&self, name: &str, total: u32) -> Outcome<bool> {
        match self {
            Self::Java(thread) => {
                let command = json!({"cmd": "permits_try_set", "name": name, "total": total});
                yes_or_no(&thread.ask(command).await?)
            }
            Self::Ours(task) => Ok(task.semaphore(name).try_set(total).await?),
        }
    }

    /// Sets the total number of permits. Not every version of Redisson can.
    pub(crate) async fn set_permits(&self, name: &str, total: u32) -> Outcome {
        match self {
            Self::Java(thread) => {
                let command = json!({"cmd": "permits_set", "name": name, "total": total});
                thread.ask(command).await.map(drop)
            }
            Self::Ours(task) => Ok(task.semaphore(name).set_total(total).await?),
        }
    }

    /// Adds this many permits: one call in Java, two of ours.
    pub(crate) async fn add_permits(&self, name: &str, count: u32) -> Outcome {
        match self {
            Self::Java(thread) => {
                let command = json!({"cmd": "permits_add", "name": name, "count": count});
                thread.ask(command).await.map(drop)
            }
            Self::Ours(task) => {
                let semaphore = task.semaphore(name);
                let now = semaphore.count().await?;
                let total = now.available + i64::try_from(now.out)? + i64::from(count);
                Ok(semaphore.set_total(u32::try_from(total)?).await?)
            }
        }
    }

    /// Deletes the semaphore; reports whether there was anything to delete.
    pub(crate) async fn delete_semaphore(&self, name: &str) -> Outcome<bool> {
        match self {
            Self::Java(thread) => {
                let command = json!({"cmd": "permits_delete", "name": name});
                yes_or_no(&thread.ask(command).await?)
            }
            Self::Ours(task) => Ok(task.semaphore(name).delete().await?),
        }
    }
}

impl JavaThread {
    /// Acquires permits. A kept term is one without an end here: Redisson renews no permits.
    pub(crate) async fn take_permits(
        &self,
        name: &str,
        count: u32,
        wait: Option<Duration>,
        term: Term,
    ) -> Outcome<(Option<Ids>, Span)> {
        let command = json!({
            "cmd": "permits_take", "name": name, "count": count,
            "wait": wait.map_or(-1, millis), "lease": lease(term),
        });
        let (ids, span) = self.ask_when(command).await?;
        let ids = match ids {
            Value::Null => None,
            ids => Some(serde_json::from_value(ids)?),
        };
        Ok((ids, span))
    }

    async fn release_permits(&self, name: &str, ids: &Ids) -> Outcome<Unlocked> {
        let command = json!({"cmd": "permits_release", "name": name, "permits": ids});
        let answer = self.peer().call(self.here(command)).await?;
        match answer.result {
            Ok(_) => Ok(Unlocked::Done(answer.span)),
            Err(raised) if raised.class == NOT_OUT => Ok(Unlocked::Refused(raised.message)),
            Err(raised) => Err(raised.into()),
        }
    }
}

impl OurTask {
    async fn take_permits(
        &mut self,
        name: &str,
        count: u32,
        wait: Option<Duration>,
        term: Term,
    ) -> Outcome<(Option<Ids>, Span)> {
        let permits = leased(self.semaphore(name).permits(count), term);
        let from = Stamp::now();
        let guard = match wait {
            None => Some(permits.acquire().await?),
            Some(wait) => try_lock(&permits, wait).await?,
        };
        let to = Stamp::now();
        let ids = guard.as_ref().map(|guard| {
            let ids = guard.permit_ids();
            ids.iter().map(ToString::to_string).collect()
        });
        if let Some(guard) = guard {
            self.keep(name, AnyGuard::Permit(guard));
        }
        Ok((ids, Span { from, to }))
    }

    /// Releases the guard that has these permits.
    async fn release_permits(&mut self, name: &str, ids: &Ids) -> Outcome<Unlocked> {
        let has = |guard: &AnyGuard| match guard {
            AnyGuard::Permit(guard) => guard.permit_ids().iter().any(|id| id.to_string() == ids[0]),
            _ => false,
        };
        self.bring_up(name, has)?;
        self.unlock(name).await
    }

    fn semaphore(&self, name: &str) -> Semaphore {
        self.client().semaphore(name)
    }
}

const NOT_OUT: &str = "java.lang.IllegalArgumentException";
