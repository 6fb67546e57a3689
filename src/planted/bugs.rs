//! The planted bugs, and the one that is active.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fs;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// One planted bug.
#[derive(Debug)]
#[non_exhaustive]
pub struct Bug {
    /// The bug's name.
    pub name: &'static str,
    /// A sentence that says which rule it breaks.
    pub sentence: &'static str,
    /// Replacements in scripts: the script's file, the text, and the text instead of it.
    edits: &'static [(&'static str, &'static str, &'static str)],
}

macro_rules! bugs {
    ($($(#[doc = $sentence:literal])+ $name:ident $({ $($file:literal: $from:literal => $to:literal;)+ })?)+) => {
        /// The planted bugs by name. A bug without an edit is named where it is planted.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        #[allow(dead_code, reason = "a bug in a script is named nowhere else")]
        pub(crate) enum Planted {
            $($(#[doc = $sentence])+ $name,)+
        }

        static BUGS: &[Bug] = &[$(Bug {
            name: stringify!($name),
            sentence: concat!($($sentence),+),
            edits: &[$($(($file, $from, $to),)+)?],
        },)+];
    };
}

bugs! {
    // Leases and their holders.

    /// The validity of a grant counts from its reply instead of from before its request.
    ValidityFromReply
    /// The validity of a renewal counts from its reply.
    RenewalFromReply
    /// No allowance is made for clocks that drift apart.
    NoDriftAllowance
    /// A renewal that failed counts as done.
    FailedRenewalCounts
    /// A renewal that the store refused counts as done (Redisson: the holder is never told).
    RefusedRenewalCounts
    /// `lost()` never resolves.
    LossNotTold
    /// A renewal that comes too late revives a lost hold.
    LateRenewalRevives
    /// A lease is renewed when it ends, not after a third of it.
    RenewedTooLate
    /// After a failed renewal none is tried again (Redisson 3.13).
    WatchdogGivesUp
    /// Of holds that are renewed together only the first is (Redisson: one thread per name).
    OnlyFirstRenewed
    /// A restart of the server is not noticed: nobody asks whether the holds are still there.
    RestartNotNoticed
    /// `remaining()` is twice as long as the hold is valid.
    RemainingTwice
    /// `with_max_hold` has no effect.
    MaxHoldIgnored
    /// A closed client does not release what it holds.
    CloseKeepsHolds
    /// A closed client leaves its waiters waiting.
    CloseForgetsWaiters

    // Acquires that end early, releases, and counts.

    /// The grant of a cancelled acquire stays held (Redisson: orphan lock).
    CancelledAcquireKept
    /// The late grant of a cancelled acquire is not undone.
    LateGrantKept
    /// A lost reply is taken for a request that did nothing.
    LostReplyDidNothing
    /// Cleanup gives up after its first failure.
    CleanupGivesUp
    /// The release of a lost guard is confirmed.
    LateReleaseIsOk
    /// A cleanup job panics after it has finished.
    PanicInCleanup
    /// A dropped guard does not release its hold.
    DroppedGuardKept
    /// A re-entry whose reply was lost is not undone.
    ReentryNotUndone
    /// The release of one guard releases the hold of all guards.
    InnerReleaseTakesAll
    /// The release of one guard ends the renewals for the others (Redisson: renewal counter).
    InnerReleaseStopsRenewal
    /// One owner id is used for every acquisition of a client.
    OwnerUsedAgain
    /// A request without a reply is reported as busy (Redisson: `tryLock` returns false).
    SilenceMeansBusy

    // Waiting.

    /// A waiter subscribes after its request and does not ask again.
    SubscribedTooLate
    /// Waiters are not woken after a reconnect.
    NoWakeAfterReconnect
    /// A waiter never asks by itself: a lost message is lost (Redisson: semaphores and latches).
    NeverAsksByItself
    /// A waiter gives up after half of the time that it may wait.
    GivesUpEarly
    /// A cancelled waiter at the head of its queue does not pass its turn on.
    CancelledHeadKeepsTurn
    /// After a release the next waiter of this client is not called.
    NextNotCalled
    /// Two waiters are handed the same hold.
    HandedTwice
    /// A lock goes from waiter to waiter of one client for ever.
    HandedForEver
    /// A hold that was handed on is released as well.
    HandedAndReleased
    /// A lock that was passed to a waiter that has gone is not released.
    PassedToNobody

    // The store's adapter.

    /// The replies of requests that travel together go to the wrong callers.
    RepliesMixedUp
    /// A connection that does not answer any more is kept.
    SilentConnectionKept
    /// Missing acknowledgements of replicas are ignored.
    AcksIgnored
    /// `failover_delay` is ignored.
    DelayIgnored
    /// A change of a number that is sent again counts as a new one.
    RetryIsNew
    /// Two of five servers are a majority.
    QuorumOfTwo
    /// A server that has just restarted has a vote.
    YoungServerVotes
    /// Where not all locks are to be had, those that were granted are kept.
    PartOfManyKept
    /// A listener that leaves a channel silences the others there.
    LeavingSilencesOthers

    // Scripts of exclusive locks.

    /// A release deletes the lock whoever holds it.
    ReleaseOfAnybody {
        "mutex/release": "if redis.call('HDEL', KEYS[1], ARGV[1]) == 1 then" => "if redis.call('DEL', KEYS[1]) == 1 then";
    }
    /// A release of the simple lock deletes it whoever holds it (`DEL` without a comparison).
    SimpleReleaseOfAnybody {
        "simple/release": "if redis.call('GETRANGE', KEYS[1], 0, 63) == ARGV[1] then" => "if redis.call('EXISTS', KEYS[1]) == 1 then";
    }
    /// The simple lock is granted while it is held (`SET` without `NX`).
    SimpleGrantedTwice {
        "simple/acquire": "if holder ~= ARGV[1] then" => "if holder ~= ARGV[1] and false then";
        "simple/acquire": "redis.call('PEXPIRE', KEYS[1], math.max(ttl, tonumber(ARGV[3])))" => "redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])";
    }
    /// The mark of an undone acquire is ignored.
    MarkIgnored {
        "mutex/acquire": "if redis.call('ZSCORE', KEYS[2], owner .. '#' .. ARGV[2]) then" => "if false then";
    }
    /// An undone acquire leaves no mark.
    NoMarkLeft {
        "mutex/undo": "redis.call('ZADD', KEYS[2], now + tonumber(ARGV[4]), ARGV[1] .. '#' .. ARGV[2])" => "";
    }
    /// A renewal makes up a hold that is not there.
    RenewalMakesHold {
        "mutex/renew": "elseif held == 1 then" => "elseif held == 1 or redis.call('HSET', key, owner, '1') then";
    }
    /// A renewal with a shorter lease shortens a longer one.
    RenewalShortens {
        "mutex/renew": "redis.call('PEXPIRE', key, math.max(remaining_ttl, tonumber(lease)))" => "redis.call('PEXPIRE', key, lease)";
    }
    /// A re-entry with a shorter lease shortens the outer one (Redisson).
    ReentryShortens {
        "mutex/acquire": "if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[4]) then" => "if true then";
    }
    /// A lock's key has no time to live until it is renewed.
    NoTimeToLive {
        "mutex/acquire": "redis.call('HSET', KEYS[1], owner, ARGV[3])\nredis.call('PEXPIRE', KEYS[1], ARGV[4])\n" => "redis.call('HSET', KEYS[1], owner, ARGV[3])\n";
    }
    /// A release notifies nobody.
    SilentRelease {
        "mutex/release": "return redis.call('PUBLISH', ARGV[3], '0')" => "return 0";
    }
    /// A grant has the token of the one before.
    TokenRepeats {
        "fenced/token": "if tonumber(last) < least then" => "if last == '0' then";
        "fenced/token": "local raised = redis.call('INCR', counter)" => "local raised = last";
    }
    /// Tokens begin anew when the server has lost its data (Redisson).
    TokensBeginAnew {
        "fenced/token": "local least = math.max(time[1] * 1000000 + time[2], tonumber(min_token) + 1)" => "local least = 1";
    }

    // Scripts of the fair lock.

    /// A fair lock is granted to whoever asks first when it is free.
    FairOvertakes {
        "fair/acquire": "if not more and (not head or head == owner) then" => "if not more then";
    }
    /// A crashed waiter is never removed from the queue.
    FairWaitsForCrashed {
        "fair/queue": "if not head or (score and tonumber(score) > now) then" => "if not head or score then";
    }
    /// A waiter that gives up stays in the queue.
    FairEntryKept {
        "fair/queue": "  if not redis.call('ZSCORE', timeout, owner) and not redis.call('ZSCORE', waiter_expiry, owner) then" => "  if true then";
    }
    /// A release of the fair lock notifies nobody.
    FairSilentRelease {
        "fair/queue": "redis.call('PUBLISH', head and channel .. ':' .. head or channel, '0')" => "";
    }
    /// A fair lock counts requests, not guards (Redisson: `HINCRBY` after a lost reply).
    FairCountsRequests {
        "fair/acquire": "  if tonumber(held) < tonumber(ARGV[3]) then" => "  redis.call('HINCRBY', KEYS[1], owner, 1)\n  if false then";
        "fair/release": "if redis.call('HDEL', KEYS[1], ARGV[1]) == 1 then" => "if (redis.call('HGET', KEYS[1], ARGV[1]) or '0') ~= '0' and redis.call('HINCRBY', KEYS[1], ARGV[1], -1) == 0 and redis.call('HDEL', KEYS[1], ARGV[1]) == 1 then";
    }

    // Scripts of the read/write lock.

    /// The release of a reader releases all readers.
    ReaderReleasesAll {
        "rw/release_read": "  if count == 0 then" => "  if count >= 0 then";
    }
    /// The release of a reader removes the writer (Redisson: nested read in a write lock).
    ReaderRemovesWriter {
        "rw/release_read": "if held and redis.call('HGET', KEYS[1], 'mode') == 'read' then" => "if held then";
    }
    /// A writer enters beside a reader.
    WriterBesideReader {
        "rw/write": "  if count == 0 then" => "  if count <= 1 then";
    }
    /// A reader enters beside a writer.
    ReaderBesideWriter {
        "rw/read": "if ARGV[6] == '' or redis.call('HEXISTS', KEYS[1], ARGV[6] .. ':write') == 0 then" => "if false then";
    }
    /// The time of a reader is not renewed, only that of the lock.
    ReaderNotRenewed {
        "rw/renew_read": "extend_reader(reader_timeout_prefix, owner, held, lease, each)" => "";
    }
    /// Readers do not wait behind a writer that waits.
    WritersStarve {
        "rw/read": "elseif ARGV[7] ~= '1' and redis.call('ZCOUNT', KEYS[3], '(' .. now, '+inf') > 0 then" => "elseif false then";
    }

    // Scripts of semaphores and latches.

    /// A permit is returned twice.
    PermitReturnedTwice {
        "semaphore/permits": "local number = add(available_key, #ids)" => "local number = add(available_key, #ids + 1)";
    }
    /// The undo of an acquire that took nothing returns a permit (Redisson).
    UndoMakesPermit {
        "semaphore/undo": "redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now)" => "add(KEYS[1], 1)";
    }
    /// One permit more is granted than there are.
    OnePermitTooMany {
        "semaphore/acquire": "if available and available >= wanted and (not head or head == owner) then" => "if available and available >= wanted - 1 and (not head or head == owner) then";
    }
    /// A permit whose lease is over does not come back.
    PermitGone {
        "semaphore/permits": "    number = add(available_key, expired)" => "    number = stored_number(available_key)";
    }
    /// A counting semaphore grants one permit more than there are.
    CountsOneTooMany {
        "counting/take": "if available and available >= wanted and (not head or head == ARGV[5]) then" => "if available and available >= wanted - 1 and (not head or head == ARGV[5]) then";
    }
    /// The outcome of a request is forgotten: sent again, it is carried out again.
    DeedForgotten {
        "number/dedup": "  if not known then" => "  if true then";
    }
    /// A latch opens one count too early.
    LatchOpensEarly {
        "latch/alter": "if before == 1 then" => "if before == 1 or before == 2 then";
    }
    /// A latch opens and notifies nobody.
    LatchSilent {
        "latch/alter": "redis.call('PUBLISH', ARGV[4], '0')" => "";
    }
}

static ACTIVE: LazyLock<Option<(usize, &'static Bug)>> = LazyLock::new(|| {
    let name = std::env::var("DISTLOCK_PLANTED").ok()?;
    let mut all = BUGS.iter().enumerate();
    let bug = all.find(|(_, bug)| bug.name == name);
    Some(bug.unwrap_or_else(|| panic!("DISTLOCK_PLANTED={name} is no planted bug")))
});

static REACHED: AtomicBool = AtomicBool::new(false);

/// Returns all planted bugs.
pub fn bugs() -> &'static [Bug] {
    BUGS
}

impl Bug {
    /// Returns the edits whose text is not in its script exactly once, and which therefore plant nothing.
    pub fn misplaced_edits(&self) -> Vec<String> {
        let edits = self.edits.iter();
        let misplaced =
            edits.filter(|(file, from, _)| script_file(file).matches(from).count() != 1);
        misplaced
            .map(|(file, from, _)| format!("{}: `{from}` in {file}", self.name))
            .collect()
    }
}

fn script_file(file: &str) -> String {
    let path = format!(
        "{}/src/engine/redis/lua/{file}.lua",
        env!("CARGO_MANIFEST_DIR")
    );
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the bug that is active in this process.
pub fn active() -> Option<&'static Bug> {
    ACTIVE.map(|(_, bug)| bug)
}

/// Reports whether the code of the active bug has been reached.
pub fn was_reached() -> bool {
    REACHED.load(Ordering::Relaxed)
}

/// Reports whether this bug is active.
pub(crate) fn is(bug: Planted) -> bool {
    let active = ACTIVE.is_some_and(|(number, _)| number == bug as usize);
    if active {
        REACHED.store(true, Ordering::Relaxed);
    }
    active
}

/// Returns the text of a script with the active bug, or with the active mutation.
pub(crate) fn script(text: Cow<'static, str>) -> Cow<'static, str> {
    if *BLANK {
        return format!("{text}\n").into();
    }
    let edits = active().map_or(&[][..], |bug| bug.edits);
    let mutated = MUTATION.iter().map(|(file, ..)| &**file);
    let files: BTreeSet<&str> = edits
        .iter()
        .map(|(file, ..)| *file)
        .chain(mutated)
        .collect();
    files.into_iter().fold(text, |text, file| {
        let whole = script_file(file);
        if !text.contains(&whole) {
            return text;
        }
        REACHED.store(true, Ordering::Relaxed);
        let mut edited = whole.clone();
        for (_, from, to) in edits.iter().filter(|(of, ..)| *of == file) {
            edited = edited.replace(from, to);
        }
        for (_, start, end, to) in MUTATION.iter() {
            edited.replace_range(*start..*end, to);
        }
        text.replace(&whole, &edited).into()
    })
}

/// Whether each script has a blank line at its end, which changes its text and nothing else.
static BLANK: LazyLock<bool> =
    LazyLock::new(|| std::env::var("DISTLOCK_MUTANT").is_ok_and(|mutation| mutation == "blank"));

/// `file:start:end:text`, as `scripts/mutants` sets it.
static MUTATION: LazyLock<Option<(String, usize, usize, String)>> = LazyLock::new(|| {
    let mutation = std::env::var("DISTLOCK_MUTANT").ok()?;
    if *BLANK {
        return None;
    }
    let mut parts = mutation.splitn(4, ':');
    let mut next = || parts.next().expect("file:start:end:text").to_owned();
    let (file, start, end, to) = (next(), next(), next(), next());
    let number = |text: String| text.parse().expect("a place in the file");
    Some((file, number(start), number(end), to))
});
