//! Random walks: several owners, waiters that lose patience, local hand-off, and one thing after the
//! other that goes wrong in between.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::rc::Rc;
use std::time::{Duration, Instant};

use distlock::{Client, Error, Guard, Lease, Lock, Owner};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet, LocalSet, spawn_local};
use tokio::time::{sleep, timeout};

use super::support::{
    ChaosProxy, Fair, Family, Fault, Fenced, Match, Plain, Player, Script, SeededRng, Simple,
    eventually, heavy,
};
use super::tokens::Tokens;
use super::world::World;
use super::{AT_ONCE, COMMAND_TIMEOUT, CONNECT_TIMEOUT, LEASE, PATIENCE};

mod wherever_a_walk_leads_the_count_is_what_the_guards_say_and_no_ghost_is_left {
    use super::*;

    #[tokio::test]
    async fn with_plain_locks() {
        walk_everywhere::<Plain>(150, true).await;
    }

    #[tokio::test]
    async fn with_simple_locks() {
        walk_everywhere::<Simple>(40, true).await;
    }

    #[tokio::test]
    async fn with_fenced_locks() {
        walk_everywhere::<Fenced>(40, true).await;
    }

    #[tokio::test]
    async fn with_fair_locks() {
        walk_everywhere::<Fair>(80, true).await;
    }

    #[tokio::test]
    async fn with_plain_locks_without_scripts() {
        walk_everywhere::<Plain>(40, false).await;
    }

    #[tokio::test]
    async fn with_simple_locks_without_scripts() {
        walk_everywhere::<Simple>(40, false).await;
    }

    #[tokio::test]
    async fn with_fenced_locks_without_scripts() {
        walk_everywhere::<Fenced>(40, false).await;
    }
}

async fn walk_everywhere<F: Family>(walks: usize, scripts: bool) {
    LocalSet::new()
        .run_until(walk_all::<F>(walks, scripts))
        .await;
}

async fn walk_all<F: Family>(count: usize, scripts: bool) {
    let _heavy = heavy().await;
    let mut rng = SeededRng::from_env_or(3);
    let world = Rc::new(World::<F>::start().await);
    if !scripts && !world.server.can_do_without_scripts().await {
        return;
    }
    let room = Rc::new(Semaphore::new(AT_ONCE));
    let mut walks = JoinSet::new();
    for number in 0..count {
        let (world, room, rng) = (world.clone(), room.clone(), SeededRng::new(rng.next_u64()));
        walks.spawn_local(async move {
            let _room = room.acquire().await;
            // A task of its own, so that a panic spoils this walk only.
            let walk = spawn_local(Walk::through(world, number, scripts, rng));
            walk.await.map_err(|error| (number, error.to_string()))
        });
    }
    let mut failed = Vec::new();
    let mut total = Taken::default();
    while let Some(walked) = walks.join_next().await {
        match walked.expect("only the inner task panics") {
            Ok(taken) => total.add(taken),
            Err(failure) => failed.push(failure),
        }
    }
    eprintln!("{count} walks: {total:?}");
    assert!(failed.is_empty(), "{} failed: {failed:#?}", failed.len());
    let Taken {
        acquired,
        errors,
        injected,
        handed_on,
    } = total;
    assert!(acquired.min(errors).min(injected) > count / 4);
    assert!(!F::HANDED_ON || handed_on > count / 4);
}

struct Walk<F: Family> {
    world: Rc<World<F>>,
    proxy: ChaosProxy,
    client: Player<F>,
    scripts: bool,
    name: String,
    owners: [Owner; 2],
    guards: Vec<Guard<F::Kind>>,
    waiting: Vec<Acquiring<F::Kind>>,
    tokens: Tokens,
    rng: SeededRng,
    diary: String,
    taken: Taken,
}

/// What happened on the way.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    acquired: usize,
    errors: usize,
    injected: usize,
    handed_on: usize,
}

impl<F: Family> Walk<F> {
    async fn through(world: Rc<World<F>>, number: usize, scripts: bool, rng: SeededRng) -> Taken {
        let proxy = world.server.proxy();
        let without = if scripts { "" } else { "scripts=off" };
        let client = Client::builder(&proxy.url_with(without))
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
            diary: String::new(),
            taken: Taken::default(),
            world,
            proxy,
            client,
            scripts,
            rng,
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

    /// Sooner or later, Redis has what the guards say, and in its line, if it has one, are those who wait.
    async fn look_around(&mut self) {
        let patience = if F::IN_ORDER { SOON } else { PATIENCE };
        let begun = Instant::now();
        let said = loop {
            self.poll_waiting().await;
            let (mut seen, said) = (
                (self.world.holds(&self.name).await, 0),
                self.said_by_guards(),
            );
            let mut expected = (self.world.counted(said.clone()), 0);
            if F::IN_ORDER {
                seen.1 = self.world.line(&self.name).await.len();
                expected.1 = self.waiting.len();
            }
            if seen == expected || begun.elapsed() > patience {
                let calls = || self.world.witness.calls(&self.name).join("\n  ");
                assert_eq!(seen, expected, "{}\nexecuted\n  {}", self.diary, calls());
                break said;
            }
            sleep(GLANCE).await;
        };
        if F::FENCED && !self.guards.is_empty() {
            let last = self.world.last_token(&self.name).await;
            self.tokens.given::<F>(last, self.guards.last());
        }
        for guard in &self.guards {
            assert!(guard.is_held(), "{guard:?}: {}", self.diary);
            // A re-entry under way counts as well.
            let counted = guard.hold_count();
            let said = said[&guard.owner()];
            let right = counted == said || (counted > said && !self.waiting.is_empty());
            assert!(right, "{counted} instead of {said}: {}", self.diary);
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
        let closed = self.client.close().await;
        assert!(closed.is_ok(), "{closed:?}: {}", self.diary);
        let left = self.world.leftovers(&self.name).await;
        assert_eq!(left, [""; 0], "it is closed: {}", self.diary);
        self.proxy.let_go();
        eventually(PATIENCE, "everything arrives", async || {
            self.proxy.unanswered() == 0
        })
        .await;
        let left = self.world.leftovers(&self.name).await;
        assert_eq!(left, [""; 0], "a ghost: {}", self.diary);
    }

    /// Sees which of the waiters have the lock by now.
    async fn poll_waiting(&mut self) {
        for mut waiting in std::mem::take(&mut self.waiting) {
            match timeout(GLANCE, &mut waiting).await {
                Ok(ended) => self.acquired(ended.expect("no panic")),
                Err(_) => self.waiting.push(waiting),
            }
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
        if !others && self.world.holds(&self.name).await.contains_key(&owner) {
            self.taken.handed_on += 1;
        }
    }

    fn tolerate(&mut self, error: &Error) {
        self.note(format_args!("{error}"));
        self.taken.errors += 1;
        let silent = matches!(error, Error::Timeout { .. } | Error::Unavailable { .. });
        assert!(silent, "nobody but us had the lock: {}", self.diary);
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
        write!(self.diary, "\n  {what}").expect("a string has room");
    }
}

impl Taken {
    fn add(&mut self, other: Self) {
        self.acquired += other.acquired;
        self.errors += other.errors;
        self.injected += other.injected;
        self.handed_on += other.handed_on;
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
    Fault::DelayRequest(Duration::from_millis(201)),
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
