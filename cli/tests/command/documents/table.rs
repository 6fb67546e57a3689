//! The table of steps that the pages leave out: the state that a block shows is arranged, and the blocks that no test can execute are listed.

use super::play::{Act, Play};
use crate::stage::{object, wait_until};
use crate::support::RedisServer;

/// An entry of the table.
pub(crate) struct Entry {
    pub(crate) page: &'static str,
    /// A line of a block, without its comment: of a `console` block a command.
    pub(crate) line: &'static str,
    pub(crate) cue: Cue,
}

/// A step or a value that the test adds to a line.
pub(crate) enum Cue {
    /// Arranges what the page shows.
    Before(Act),
    /// Plays the other terminal while the command runs.
    Meanwhile(Act),
    /// Plays the other terminal while the command waits on a terminal.
    OnTerminal(Act),
    /// Shortens what a reader would wait for.
    After(Act),
    /// The arguments of a script.
    Arguments(&'static [&'static str]),
    /// The block is not executed, for this reason.
    Never(&'static str),
}

impl Cue {
    pub(crate) const fn never(&self) -> Option<&'static str> {
        match self {
            Self::Never(why) => Some(why),
            _ => None,
        }
    }

    pub(crate) const fn on_terminal(&self) -> Option<Act> {
        match self {
            Self::OnTerminal(act) => Some(*act),
            _ => None,
        }
    }
}

const fn entry(page: &'static str, line: &'static str, cue: Cue) -> Entry {
    Entry { page, line, cue }
}

use Cue::{After, Arguments, Before, Meanwhile, Never, OnTerminal};

pub(crate) const TABLE: &[Entry] = &[
    // The first two parts of the tutorial.
    entry(
        TUTORIAL,
        "distlock watch",
        Before(|play| {
            play.end_all();
            play.hold("job:nightly -- sleep 20");
        }),
    ),
    entry(
        TUTORIAL,
        "distlock watch",
        Meanwhile(|play| {
            play.wait_for_lines(1);
            play.end_all();
            play.wait_for_lines(2);
            play.run("distlock run job:nightly -- echo my turn");
        }),
    ),
    entry(
        TUTORIAL,
        MY_TURN,
        Before(|play| play.hold("job:nightly -- sleep 60")),
    ),
    entry(TUTORIAL, MY_TURN, OnTerminal(Play::end_all)),
    entry(
        TUTORIAL,
        BUSY,
        Before(|play| play.hold("job:nightly -- sleep 60")),
    ),
    entry(
        TUTORIAL,
        "distlock release --force job:nightly",
        Before(|play| {
            play.hold("job:nightly -- sleep 60");
        }),
    ),
    entry(
        TUTORIAL,
        "distlock run job:nightly -- sleep 60; echo $?",
        Meanwhile(|play| {
            play.wait_for_the_hold();
            play.run("distlock release --force job:nightly");
        }),
    ),
    // Its other parts. The lease of a killed command is cut.
    entry(
        TUTORIAL,
        "kill -9 29998",
        After(|play| {
            play.wait_for_an_end();
            play.server.cmd(&["PEXPIRE", "invoice:42", "100"]);
        }),
    ),
    entry(
        TUTORIAL,
        "distlock ls 'invoice:*'",
        Before(|play| {
            play.hold_in_java("invoice:42", "3f1c2a9e-6c1b-4c7e-9a52-0d8f4b7a1e90:1");
        }),
    ),
    entry(
        COMMAND,
        BUSY,
        Before(|play| play.hold("job:nightly -- ./backup.sh")),
    ),
    entry(
        COMMAND,
        "distlock ls",
        Before(|play| {
            play.on_server();
            play.run("distlock acquire --lease 10m deploy");
            play.hold("--fenced nightly -- ./backup.sh");
            play.hold("--simple report -- ./build-report");
        }),
    ),
    entry(
        COMMAND,
        "distlock show nightly",
        Before(|play| {
            play.on_server();
            play.hold("--fenced nightly -- ./backup.sh");
        }),
    ),
    entry(
        COMMAND,
        "distlock watch",
        Before(|play| {
            play.on_server();
            play.server.flushall();
            play.run("distlock acquire --lease 10m deploy");
            play.hold("nightly -- ./backup.sh");
        }),
    ),
    entry(
        COMMAND,
        "distlock watch",
        Meanwhile(|play| {
            play.wait_for_lines(2);
            play.end_all();
            play.wait_for_lines(3);
            play.hold("nightly -- ./backup.sh");
            play.wait_for_lines(4);
            // A poll has to see how long the lease is; otherwise its end is a release.
            play.server.cmd(&["PEXPIRE", "deploy", "3000"]);
        }),
    ),
    entry(
        COMMAND,
        RELEASE,
        Before(|play| {
            play.on_server();
            play.server.flushall();
            let owner = play.run("distlock acquire --lease 10m deploy");
            play.bind("71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:1", &owner);
            play.hold("job:nightly -- ./backup.sh");
        }),
    ),
    entry(
        COMMAND,
        "distlock doctor --probe --url redis://db1/",
        Before(|play| {
            // An address of this machine that does not look like one, as that of a server elsewhere.
            let elsewhere = play.server.url().replace("127.0.0.1", "0.0.0.0");
            play.replace("redis://db1/", &elsewhere);
        }),
    ),
    entry(
        RECIPES,
        "distlock ls 'job:*'",
        Before(|play| {
            play.on_server();
            play.hold("job:nightly-backup -- /app/backup");
        }),
    ),
    entry(
        RECIPES,
        WAITERS,
        Before(|play| {
            play.on_server();
            play.hold("--fair lock:deploy:shop -- make deploy");
            play.wait("--fair lock:deploy:shop -- true");
            play.wait("--fair lock:deploy:shop -- true");
            wait_until("both wait", || {
                let shown = object(&play.run("distlock show --json lock:deploy:shop"));
                shown["waiting"]
                    .as_array()
                    .is_some_and(|waiting| waiting.len() == 2)
            });
        }),
    ),
    entry(
        RECIPES,
        "distlock run --wait 0 --busy-code 200 job:nightly -- /usr/local/bin/backup",
        // The first try finds the lock busy, and the second one waits for it.
        Before(|play| {
            play.run("distlock acquire --lease 2s job:nightly");
        }),
    ),
    entry(
        RECIPES,
        "distlock run \"$@\"",
        Arguments(&["job:retried", "--", "true"]),
    ),
    entry(
        RECIPES,
        "distlock run --wait 10m \"$name\" -- \"$@\"",
        Arguments(&["job:x", "true"]),
    ),
    entry(WHICH_STORE, TWICE, Before(two_replicas)),
    entry(
        WHICH_STORE,
        MOVE,
        Before(|play| {
            let new = RedisServer::start();
            play.variables.insert("OLD".to_owned(), play.server.url());
            play.variables.insert("NEW".to_owned(), new.url());
            play.others.push(new);
        }),
    ),
    entry(
        REDISSON,
        "distlock ls",
        Before(|play| {
            play.on_server();
            play.hold_in_java("invoice:42", "3f1c2a9e-6c1b-4c7e-9a52-0d8f4b7a1e90:42");
            play.hold("report:7 -- ./report.sh");
        }),
    ),
    entry(
        REDISSON,
        "jcmd PID Thread.print | grep -A 20 '\" #42 '",
        Never("needs a JVM that holds a lock, and its host"),
    ),
    entry(
        TROUBLE,
        "distlock show --url redis://db1/ job:nightly",
        Before(|play| {
            play.hold("--url redis://db1/ job:nightly -- sleep 60");
        }),
    ),
    entry(
        TROUBLE,
        "distlock show NAME",
        Before(|play| play.hold("NAME -- sleep 60")),
    ),
];

const TUTORIAL: &str = "docs/tutorial.md";
const COMMAND: &str = "docs/command.md";
const RECIPES: &str = "docs/recipes.md";
const WHICH_STORE: &str = "docs/which-store.md";
const REDISSON: &str = "docs/redisson.md";
const TROUBLE: &str = "docs/troubleshooting.md";

const MY_TURN: &str = "distlock run job:nightly -- echo my turn";
const BUSY: &str = "distlock run --wait 0 job:nightly -- ./backup.sh; echo $?";
const RELEASE: &str = "distlock release deploy --owner 71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:1";
const WAITERS: &str = "distlock ls --json 'lock:*' | jq -c '{name, holders: [.holders[].label], waiting: (.waiting | length)}'";
const TWICE: &str = "distlock run --url \"$LOCKS\" --failover-delay 30s --acks 2 --wait 2m job:nightly -- ./backup.sh";
const MOVE: &str = "distlock run --url \"$OLD\" job:nightly -- distlock run --url \"$NEW\" job:nightly -- ./backup.sh";

/// Starts a server with two replicas. The delay of the page is shortened: a server that has just started grants nothing before its end.
fn two_replicas(play: &mut Play) {
    let master = RedisServer::start_with(&["--repl-diskless-sync-delay", "0"]);
    let port = master.port().to_string();
    let replicas = [(); 2].map(|()| RedisServer::start_with(&["--replicaof", "127.0.0.1", &port]));
    wait_until("both replicas are connected", || {
        let state: String = master.query(&["INFO", "replication"]);
        state.matches("state=online").count() == 2
    });
    play.variables.insert("LOCKS".to_owned(), master.url());
    play.replace("--failover-delay 30s", "--failover-delay 3s");
    play.others.push(master);
    play.others.extend(replicas);
}
