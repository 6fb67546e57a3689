//! A process that holds one lock at a server that everybody else leaves, and says what it is told.

use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use distlock::{Error, Guard, Lease, LostReason};

use super::belief::{Belief, Diary};
use super::load::{BELIEVED, LOOK};
use super::support::process::{Process, say, url};
use super::terms::Terms;

pub(crate) const ROLE: &str = "holder";

/// It, as its test sees it.
pub(crate) struct Holder {
    process: Process,
    name: String,
}

impl Holder {
    /// Starts one, which has connected when this returns, and has asked for nothing.
    pub(crate) fn start(url: &str, terms: &Terms, lease: Duration, name: &str) -> Self {
        let told = format!("{ROLE} {} {} {name}", terms.tell(), lease.as_millis());
        let process = Process::start(&told, url);
        process.hear("ready");
        Self {
            process,
            name: name.to_owned(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Has it ask until it knows; whether it holds the lock now, or was told that no replica has it.
    pub(crate) fn asks(&mut self) -> bool {
        self.process.tell("ask");
        self.process.hear("") == HOLDS
    }

    /// The same of one that is to hold it, once all replicas keep up.
    pub(crate) fn holds(&mut self) {
        while !self.asks() {}
    }

    /// What it has believed until it was told that it was lost, and why.
    pub(crate) fn lost(&self) -> (Belief, String) {
        let belief = self.process.hear(BELIEVED);
        let belief = Belief::told(&belief).expect("it is one");
        (belief, self.process.hear("lost"))
    }

    /// What it believes up to now.
    pub(crate) fn believes(&mut self) -> Belief {
        self.process.tell("over");
        let belief = self.process.hear(BELIEVED);
        Belief::told(&belief).expect("it is one")
    }
}

pub(crate) async fn play(told: &str, orders: Receiver<String>) {
    let mut words = told.splitn(3, ' ');
    let mut word = || words.next().expect("there are three");
    let terms = Terms::told(word());
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
                // Its server is too young to grant it, or does not answer yet.
                Ok(None) => {}
                Err(error) => eprintln!("holder: {error}"),
            }
            tokio::time::sleep(LOOK).await;
        };
        let begun = taken.and_then(|guard| Some((Diary::begin(&guard)?, guard)));
        let Some((diary, guard)) = begun else {
            say("refused");
            continue;
        };
        say(HOLDS);
        watch(&guard, diary, orders).await;
        return;
    }
}

async fn watch(guard: &Guard, mut diary: Diary, orders: Receiver<String>) {
    let mut lost: Option<LostReason> = None;
    while orders.try_recv() == Err(TryRecvError::Empty) {
        tokio::time::sleep(LOOK).await;
        if !diary.look(guard) {
            lost = guard.lost().await.map(|lost| lost.reason);
            break;
        }
    }
    say(&format!("{BELIEVED}{}", diary.end(lost).tell()));
    if let Some(reason) = lost {
        say(&format!("lost {reason:?}"));
    }
    // The process ends with its test, and gives nothing back before: whoever gets the lock has not got it by that.
    let _ = orders.recv();
}

const HOLDS: &str = "holds";
