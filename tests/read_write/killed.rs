//! A crowd of processes that read and write, some of which are killed at any moment.

use std::env;
use std::time::{Duration, Instant};

use super::crowd::{NAMES, ROLE};
use super::log::{LOG, check, farewell};
use super::support::process::Process;
use super::support::{RedisServer, SeededRng, wait_until};
use super::{LEASE, PATIENCE};

/// `DISTLOCK_GRANTS` says how many grants there are to be.
#[test]
fn nobody_writes_beside_another_whoever_is_killed_and_everyone_gets_on() {
    let wanted: u64 = env::var("DISTLOCK_GRANTS").map_or(GRANTS, |n| n.parse().expect("a number"));
    // One kill stops everyone on its locks for as long as its leases last.
    let kills = (wanted / EACH).max(2);
    let server = RedisServer::start();
    let mut dice = SeededRng::from_env_or(0x0005_eed5);
    let begun = Instant::now();
    let mut workers: Vec<_> = (0..WORKERS)
        .map(|_| Process::start(ROLE, &server.url()))
        .collect();
    for worker in &workers {
        worker.hear("ready");
    }
    let entries = || server.query::<u64>(&["LLEN", LOG]);
    let mut killed = 0;
    for number in 1..=kills {
        let enough = wanted * 2 * number / (kills + 1);
        gets_on(&entries, enough);
        std::thread::sleep(Duration::from_micros(dice.below(20_000)));
        let victim = usize::try_from(dice.below(WORKERS)).expect("a few");
        let mut victim = workers.swap_remove(victim);
        // Before it is dead: its claims count until then, and nobody may say later that they did not.
        server.cmd(&[
            "RPUSH",
            LOG,
            &farewell(victim.pid().as_raw().cast_unsigned()),
        ]);
        victim.kill();
        killed += 1;
        let next = Process::start(ROLE, &server.url());
        next.hear("ready");
        workers.push(next);
    }
    // A claim and its end, for each, and now and then more.
    gets_on(&entries, wanted * 9 / 4);
    let pids: Vec<_> = workers
        .iter()
        .map(|worker| worker.pid().as_raw().cast_unsigned())
        .collect();
    // Nobody is left behind.
    wait_until("everyone has read and written", || {
        let log: Vec<String> = server.query(&["LRANGE", LOG, "0", "-1"]);
        let seen = check(&log).expect("it is true");
        let enough = seen.reads + seen.writes >= wanted;
        enough
            && pids.iter().all(|pid| {
                let claims = |writes| seen.in_the_end.get(&(*pid, writes)).copied();
                claims(false) > Some(2) && claims(true) > Some(2)
            })
    });
    for worker in &mut workers {
        worker.tell("stop");
    }
    for worker in &mut workers {
        worker.hear("done");
        worker.ended_well();
    }
    let log: Vec<String> = server.query(&["LRANGE", LOG, "0", "-1"]);
    let seen = check(&log).unwrap_or_else(|violation| panic!("{violation}"));
    eprintln!(
        "{} reads (at most {} at once) and {} writes in {:.1?}, {killed} processes killed, {} grants lost",
        seen.reads,
        seen.together,
        seen.writes,
        begun.elapsed(),
        seen.lost,
    );
    assert_eq!(seen.unexplained, 0, "lost by those who live and run");
    assert!(seen.reads > 0 && seen.writes > 0 && seen.together > 2);
    nothing_is_left(&server);
}

/// Waits for so many entries, and for none of them too long: after a kill nobody waits longer than a lease.
fn gets_on(entries: &impl Fn() -> u64, enough: u64) {
    let (mut last, mut since) = (entries(), Instant::now());
    while last < enough {
        std::thread::sleep(Duration::from_millis(20));
        let now = entries();
        if now > last {
            (last, since) = (now, Instant::now());
        }
        assert!(since.elapsed() < LEASE + PATIENCE, "nobody gets on");
    }
}

/// What the dead held ends with their leases, and what the living held they gave back.
fn nothing_is_left(server: &RedisServer) {
    wait_until("nothing is left", || {
        let mut keys = server.keys();
        keys.retain(|key| key != LOG && !key.starts_with("distlock_undone:"));
        keys.is_empty()
    });
    for name in NAMES {
        assert_eq!(server.pttl(name), -2);
    }
}

const GRANTS: u64 = 1_500;
/// How many grants there are for one that is killed.
const EACH: u64 = 5_000;
const WORKERS: u64 = 4;
