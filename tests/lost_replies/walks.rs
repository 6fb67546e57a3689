//! Random walks: several owners, waiters that lose patience, local hand-off, and one thing after the
//! other that goes wrong in between.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use distlock::{Error, Guard, Lease, Lock, Owner};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::server::{TestServer, everything_arrives};
use super::tokens::Tokens;
use super::{COMMAND_TIMEOUT, CONNECT_TIMEOUT, LEASE, Label, PATIENCE};
use crate::support::{
    ChaosProxy, Fair, Family, Fault, Fenced, Match, Plain, Player, Script, SeededRng, Simple,
    builder, simulated, world,
};

mod wherever_a_walk_leads_the_count_is_what_the_guards_say_and_no_ghost_is_left {
    use super::*;

    #[test]
    fn with_plain_locks() {
        simulated(async || walk_all::<Plain>(150, true).await);
    }

    #[test]
    fn with_simple_locks() {
        simulated(async || walk_all::<Simple>(40, true).await);
    }

    #[test]
    fn with_fenced_locks() {
        simulated(async || walk_all::<Fenced>(40, true).await);
    }

    #[test]
    fn with_fair_locks() {
        simulated(async || walk_all::<Fair>(80, true).await);
    }

    #[test]
    fn with_plain_locks_without_scripts() {
        simulated(async || walk_all::<Plain>(40, false).await);
    }

    #[test]
    fn with_simple_locks_without_scripts() {
        simulated(async || walk_all::<Simple>(40, false).await);
    }

    #[test]
    fn with_fenced_locks_without_scripts() {
        simulated(async || walk_all::<Fenced>(40, false).await);
    }
}

async fn walk_all<F: Family>(count: usize, scripts: bool) {
    let server = TestServer::<F>::start().await;
    let mut total = Taken::default();
    for number in 0..count {
        total.add(Walk::through(&server, number, scripts).await);
    }
    eprintln!("{count} walks: {total:?}");
    let Taken {
        acquired,
        errors,
        injected,
        handed_off,
    } = total;
    assert!(acquired.min(errors).min(injected) > count / 4);
    assert!(!F::HANDED_ON || handed_off > count / 4);
}

struct Walk<'a, F: Family> {
    server: &'a TestServer<F>,
    proxy: ChaosProxy,
    client: Player<F>,
    scripts: bool,
    name: String,
    owners: [Owner; 2],
    guards: Vec<Guard<F::Kind>>,
    waiting: Vec<Acquiring<F::Kind>>,
    tokens: Tokens,
    rng: SeededRng,
    diary: Label,
    taken: Taken,
}

/// What happened on the way.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    acquired: usize,
    errors: usize,
    injected: usize,
    handed_off: usize,
}

impl<'a, F: Family> Walk<'a, F> {
    async fn through(server: &'a TestServer<F>, number: usize, scripts: bool) -> Taken {
        let proxy = server.proxy();
        let without = if scripts { "" } else { "scripts=off" };
        let client = builder(&proxy.url_with(without))
            .default_lease(Lease::KeepAlive(LEASE))
            .command_timeout(COMMAND_TIMEOUT)
            .connect_timeout(CONNECT_TIMEOUT)
            .handoff_window(LEASE)
            .handoff_limit(2);
        let client = client.connect().await;
        let client = Player::<F>::new(client.expect("the network is still whole"));
        let mut walk = Self {
            name: format!("walk-{number}"),
            owners: [client.new_owner(), client.new_owner()],
            guards: Vec::new(),
            waiting: Vec::new(),
            tokens: Tokens::default(),
            diary: Label(String::new()),
            taken: Taken::default(),
            rng: SeededRng::new(world().below(u64::MAX)),
            server,
            proxy,
            client,
            scripts,
        };
        for _ in 0..STEPS {
            walk.step().await;
            walk.look_around().await;
        }
        walk.go_home().await;
        walk.taken
    }

    async fn step(&mut self) {
        match self.rng.below(10) {
            0..4 => {
                let (who, lock) = self.lock();
                self.note(format_args!("{who} acquires"));
                self.waiting.push(tokio::spawn(lock.acquire()));
                self.poll_waiting().await;
            }
            4 => {
                if let Some(waiting) = self.pick_waiting() {
                    self.note(format_args!("a waiter gives up"));
                    self.give_up(waiting).await;
                }
            }
            5..7 => {
                if let Some(guard) = self.pick_guard() {
                    self.note(format_args!("{} is released", guard.owner()));
                    self.release(guard).await;
                }
            }
            7 => {
                if let Some(guard) = self.pick_guard() {
                    self.note(format_args!("{} is dropped", guard.owner()));
                    drop(guard);
                }
            }
            _ => {
                let (next, fault) = self.pick_trouble();
                self.proxy.rule(next, fault);
            }
        }
    }

    fn pick_trouble(&mut self) -> (Match, Fault) {
        if !self.scripts {
            let word = *self.rng.pick(WORDS);
            // A part of a transaction that comes twice is nothing that a network does.
            let fault = *self.rng.pick(&FAULTS[..FAULTS.len() - 1]);
            self.note(format_args!("{fault:?} to the next {word}"));
            return (Match::command(word).nth(1), fault);
        }
        let script = *self.rng.pick(&Script::ALL);
        let fault = *self.rng.pick(match script {
            // When one of these comes late, the count may be too low: documented.
            Script::Release | Script::Undo => &FAULTS[2..],
            Script::Acquire | Script::Pass | Script::Renew => FAULTS,
        });
        self.note(format_args!("{fault:?} to the next {script:?}"));
        let next = Match::words(move |words| script.runs(words)).nth(1);
        (next, fault)
    }

    /// Sooner or later, Redis has what the guards say, and in its queue, if it has one, are the waiters.
    async fn look_around(&mut self) {
        let patience = if F::IN_ORDER { SOON } else { PATIENCE };
        let begun = Instant::now();
        let said = loop {
            self.poll_waiting().await;
            let said = self.said_by_guards();
            let mut seen = (self.server.holds(&self.name).await, 0);
            let mut expected = (self.server.counted(said.clone()), 0);
            if F::IN_ORDER {
                seen.1 = self.server.queue(&self.name).len();
                expected.1 = self.waiting.len();
            }
            if seen == expected {
                break said;
            }
            let calls = || self.server.witness.calls(&self.name).join("\n  ");
            assert!(
                begun.elapsed() < patience,
                "{seen:?}, not {expected:?}: {}",
                calls()
            );
            sleep(GLANCE).await;
        };
        if F::FENCED && !self.guards.is_empty() {
            let last = self.server.last_token(&self.name);
            self.tokens.given::<F>(last, self.guards.last());
        }
        for guard in &self.guards {
            assert!(guard.is_held(), "{guard:?}");
            // A re-entry under way counts as well.
            let counted = guard.hold_count();
            let said = said[&guard.owner()];
            let right = counted == said || (counted > said && !self.waiting.is_empty());
            assert!(right, "{counted} instead of {said}");
        }
    }

    async fn go_home(&mut self) {
        self.note(format_args!("everything is given back"));
        for waiting in std::mem::take(&mut self.waiting) {
            self.give_up(waiting).await;
        }
        while let Some(guard) = self.guards.pop() {
            self.release(guard).await;
        }
        self.taken.injected = self.proxy.injected().len();
        self.proxy.clear_rules();
        self.client.close().await.expect("the network is whole");
        self.server.nothing_is_left(&self.name);
        self.proxy.let_go();
        everything_arrives(&self.proxy).await;
        self.server.nothing_is_left(&self.name);
    }

    /// Sees which of the waiters have the lock by now.
    async fn poll_waiting(&mut self) {
        sleep(GLANCE).await;
        let all = std::mem::take(&mut self.waiting);
        let (ended, waiting) = all.into_iter().partition(JoinHandle::is_finished);
        self.waiting = waiting;
        for ended in Vec::from_iter(ended) {
            self.acquired(ended.await.expect("no panic"));
        }
    }

    async fn give_up(&mut self, waiting: Acquiring<F::Kind>) {
        waiting.abort();
        // It may have been granted in the last moment.
        if let Ok(ended) = waiting.await {
            self.acquired(ended);
        }
    }

    fn acquired(&mut self, acquired: Result<Guard<F::Kind>, Error>) {
        match acquired {
            Ok(guard) => {
                self.note(format_args!("{} is granted", guard.owner()));
                self.taken.acquired += 1;
                self.tokens.seen::<F>(&guard);
                self.guards.push(guard);
            }
            Err(error) => self.tolerate(&error),
        }
    }

    async fn release(&mut self, guard: Guard<F::Kind>) {
        let owner = guard.owner();
        let released = timeout(PATIENCE, guard.release()).await;
        if let Err(error) = released.expect("a release comes to an end") {
            self.tolerate(&error);
        }
        // Still in Redis, though we have no guard of it: one of the waiters has.
        let others = self.guards.iter().any(|guard| guard.owner() == owner);
        if !others && self.server.holds(&self.name).await.contains_key(&owner) {
            self.taken.handed_off += 1;
        }
    }

    fn tolerate(&mut self, error: &Error) {
        self.note(format_args!("{error}"));
        self.taken.errors += 1;
        let silent = matches!(error, Error::Timeout { .. } | Error::Unavailable { .. });
        assert!(silent, "nobody but us had the lock: {error}");
    }

    fn lock(&mut self) -> (&'static str, Lock<F::Kind>) {
        let lock = self.client.lock(self.name.as_str());
        match self.rng.below(3) {
            0 => ("owner 0", lock.with_owner(&self.owners[0])),
            1 => ("owner 1", lock.with_owner(&self.owners[1])),
            _ => ("nobody", lock),
        }
    }

    fn pick_guard(&mut self) -> Option<Guard<F::Kind>> {
        pick(&mut self.rng, &mut self.guards)
    }

    fn pick_waiting(&mut self) -> Option<Acquiring<F::Kind>> {
        pick(&mut self.rng, &mut self.waiting)
    }

    fn said_by_guards(&self) -> BTreeMap<String, u32> {
        let mut said = BTreeMap::new();
        for guard in &self.guards {
            *said.entry(guard.owner()).or_default() += 1;
        }
        said
    }

    fn note(&mut self, what: std::fmt::Arguments<'_>) {
        write!(self.diary.0, "\n  {what}").expect("a string has room");
    }
}

impl Taken {
    fn add(&mut self, other: Self) {
        self.acquired += other.acquired;
        self.errors += other.errors;
        self.injected += other.injected;
        self.handed_off += other.handed_off;
    }
}

fn pick<T>(rng: &mut SeededRng, from: &mut Vec<T>) -> Option<T> {
    if from.is_empty() {
        return None;
    }
    let index = usize::try_from(rng.below(from.len() as u64));
    Some(from.remove(index.expect("below a usize")))
}

type Acquiring<K> = JoinHandle<Result<Guard<K>, Error>>;

/// Those that bring a request late come first, and the one that brings it twice last.
const FAULTS: &[Fault] = &[
    Fault::HoldRequest,
    Fault::DelayRequest(COMMAND_TIMEOUT),
    Fault::CutAfter,
    Fault::CutBefore,
    Fault::DelayReply(Duration::from_millis(30)),
    Fault::HoldReply,
    Fault::DuplicateRequest,
];

/// Some of what a request is made of without scripts.
const WORDS: &[&str] = &["WATCH", "ZSCORE", "MULTI", "PUBLISH", "EXEC"];

const STEPS: usize = 25;
/// Sooner than those who have gone would be passed over in a line.
const SOON: Duration = Duration::from_secs(8);
/// Long enough for an answer that is on its way.
const GLANCE: Duration = Duration::from_millis(15);
