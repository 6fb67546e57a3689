//! A process that holds one lock at a server that all others leave, and reports what it learns.

use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use distlock::{Error, Guard, Lease, LostReason};

use super::hold_interval::{HoldInterval, HoldLog};
use super::load::{BELIEVED, LOOK};
use super::support::process::{Process, say, url};
use super::terms::Settings;

pub(crate) const ROLE: &str = "holder";

/// The process, as its test sees it.
pub(crate) struct Holder {
    process: Process,
    name: String,
}

impl Holder {
    /// Starts the process, which has connected when this returns, and has sent no request for the lock.
    pub(crate) fn start(url: &str, terms: &Settings, lease: Duration, name: &str) -> Self {
        let told = format!("{ROLE} {} {} {name}", terms.to_line(), lease.as_millis());
        let process = Process::start(&told, url);
        process.expect_line("ready");
        Self {
            process,
            name: name.to_owned(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Has it send requests until the outcome is known; returns `false` if no replica has the grant.
    pub(crate) fn asks(&mut self) -> bool {
        self.process.send_line("ask");
        self.process.expect_line("") == HOLDS
    }

    /// Does the same for a holder that must succeed, once all replicas keep up.
    pub(crate) fn holds(&mut self) {
        while !self.asks() {}
    }

    /// Returns its belief until it was told of the loss, and the reason.
    pub(crate) fn lost(&self) -> (HoldInterval, String) {
        let belief = self.process.expect_line(BELIEVED);
        let belief = HoldInterval::parse(&belief).expect("it is one");
        (belief, self.process.expect_line("lost"))
    }

    /// Returns its belief up to now.
    pub(crate) fn believes(&mut self) -> HoldInterval {
        self.process.send_line("over");
        let belief = self.process.expect_line(BELIEVED);
        HoldInterval::parse(&belief).expect("it is one")
    }
}

pub(crate) async fn play(told: &str, orders: Receiver<String>) {
    let mut words = told.splitn(3, ' ');
    let mut word = || words.next().expect("there are three");
    let terms = Settings::parse(word());
    let lease = Duration::from_millis(word().parse().expect("milliseconds"));
    let connected = terms.builder(&url()).connect().await;
    let client = connected.expect("its server is up");
    let lock = client.lock(word()).with_lease(Lease::KeepAlive(lease));
    say("ready");
    while orders.recv().is_ok() {
        let taken = loop {
            match lock.try_acquire().await {
                Ok(Some(guard)) => break Some(guard),
                Err(Error::NotReplicated { .. }) => break None,
                // Its server is too young to grant it, or does not reply yet.
                Ok(None) => {}
                Err(error) => eprintln!("holder: {error}"),
            }
            tokio::time::sleep(LOOK).await;
        };
        let begun = taken.and_then(|guard| Some((HoldLog::begin(&guard)?, guard)));
        let Some((diary, guard)) = begun else {
            say("refused");
            continue;
        };
        say(HOLDS);
        watch(&guard, diary, orders).await;
        return;
    }
}

async fn watch(guard: &Guard, mut diary: HoldLog, orders: Receiver<String>) {
    let mut lost: Option<LostReason> = None;
    while orders.try_recv() == Err(TryRecvError::Empty) {
        tokio::time::sleep(LOOK).await;
        if !diary.check_hold(guard) {
            lost = guard.lost().await.map(|lost| lost.reason);
            break;
        }
    }
    say(&format!("{BELIEVED}{}", diary.end(lost).to_line()));
    if let Some(reason) = lost {
        say(&format!("lost {reason:?}"));
    }
    // The process ends with its test, and releases nothing before: no other client is granted the lock because of a release.
    let _ = orders.recv();
}

const HOLDS: &str = "holds";
