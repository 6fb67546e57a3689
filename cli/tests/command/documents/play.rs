//! A page that is played: its blocks are executed from top to bottom, as a reader would.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Instant;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::normal::{is_owner, normal};
use super::page::{Block, Typed, blocks, cron};
use super::table::{Cue, TABLE};
use crate::stage::{A_MOMENT, TRIES, alone, code, is_alive, wait_until};
use crate::support::RedisServer;
use crate::terminal::Terminal;

/// What is wrong with a page.
pub(crate) type Wrong = String;

/// The languages of blocks that are not for a shell.
const OTHERS: [&str; 7] = ["text", "rust", "rust,no_run", "toml", "java", "sql", "json"];

/// The folders of programs, files and secrets that pages name. Each is in the folder of the test instead.
const FOLDERS: [&str; 5] = [
    "/usr/local/bin/",
    "/app/",
    "/opt/",
    "/etc/distlock",
    "/backup/",
];

/// The folder, the servers and the processes of a page.
pub(crate) struct Play {
    page: &'static str,
    /// The processes of this block, and those that go on until the section ends. They end before the server.
    holders: Vec<Process>,
    second_terminals: Vec<Process>,
    /// The command that runs.
    pub(crate) current: Option<Process>,
    pub(crate) server: RedisServer,
    /// Further servers, which are named by variables.
    pub(crate) others: Vec<RedisServer>,
    /// The variables of the page, and those of the block.
    exported: BTreeMap<String, String>,
    pub(crate) variables: BTreeMap<String, String>,
    /// The texts that are replaced in this block, each with its replacement.
    replaced: Vec<(String, String)>,
    /// The pids and owners of this run, by those of the page.
    bound: BTreeMap<String, String>,
    arguments: Vec<&'static str>,
    /// The entries of the table that were used.
    used: BTreeSet<usize>,
    processes: usize,
    folder: TempDir,
}

/// Plays a page with this text.
pub(crate) fn play(page: &'static str, text: &str) -> Result<(), Wrong> {
    let mut play = Play::new(page);
    let blocks = blocks(text);
    for block in &blocks {
        play.make_stubs(&block.text());
    }
    let mut section = 0;
    for block in blocks {
        if block.section != section {
            play.second_terminals.clear();
            section = block.section;
        }
        let done = play.block(&block);
        done.map_err(|wrong| format!("{page}, line {}: {wrong}", block.line))?;
    }
    let entries = TABLE.iter().enumerate();
    let unused: Vec<_> = entries
        .filter(|(at, entry)| entry.page == page && !play.used.contains(at))
        .map(|(_, entry)| entry.line)
        .collect();
    assert!(unused.is_empty(), "{page}: lines that are gone: {unused:?}");
    Ok(())
}

/// Returns the root of the repository.
pub(crate) fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

impl Play {
    fn new(page: &'static str) -> Self {
        let folder = TempDir::with_prefix("distlock-page-").expect("the temp folder is writable");
        let play = Self {
            page,
            holders: Vec::new(),
            second_terminals: Vec::new(),
            current: None,
            server: RedisServer::start(),
            others: Vec::new(),
            exported: BTreeMap::new(),
            variables: BTreeMap::new(),
            replaced: Vec::new(),
            bound: BTreeMap::new(),
            arguments: Vec::new(),
            used: BTreeSet::new(),
            processes: 0,
            folder,
        };
        for folder in ["bin", "home", "out", "etc", "usr/local/bin", "opt/distlock"] {
            fs::create_dir_all(play.path(folder)).expect("the folder is ours");
        }
        for link in ["bin/distlock", "usr/local/bin/distlock"] {
            symlink(env!("CARGO_BIN_EXE_distlock"), play.path(link)).expect("it is new");
        }
        fs::write(play.path("etc/distlock-url"), play.server.url()).expect("the folder is ours");
        for (program, script) in PROGRAMS {
            let root = repository().to_str().expect("paths are text");
            play.make(
                &format!("bin/{program}"),
                &script.replace("REPOSITORY", root),
            );
        }
        if find("jq").is_none() {
            play.make("bin/jq", SAYS);
        }
        play
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn root(&self) -> &str {
        let root = self.folder.path().to_str();
        root.expect("temp folders are text")
    }

    /// Makes a program.
    fn make(&self, name: &str, script: &str) {
        let path = self.path(name);
        let folder = path.parent().expect("it is in one");
        fs::create_dir_all(folder).expect("the folder is ours");
        fs::write(&path, script).expect("the folder is ours");
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&path, mode).expect("the file is ours");
    }

    /// Makes the programs that a block names by their paths.
    fn make_stubs(&self, text: &str) {
        for word in text.split(|c: char| c.is_whitespace() || "'\"`[](),;&|".contains(c)) {
            let name = match (word.strip_prefix("./"), word.strip_prefix('/')) {
                (Some(name), _) => format!("home/{name}"),
                (_, Some(name))
                    if ["/usr/local/bin/", "/app/"]
                        .iter()
                        .any(|at| word.starts_with(at)) =>
                {
                    name.to_owned()
                }
                _ if word.starts_with("scripts/") => {
                    assert!(repository().join(word).is_file(), "there is no {word}");
                    format!("home/{word}")
                }
                _ => continue,
            };
            if !name.ends_with('/') && !self.path(&name).exists() {
                self.make(&name, SAYS);
            }
        }
    }

    fn block(&mut self, block: &Block) -> Result<(), Wrong> {
        let never = self.cues(&block.lines).find_map(Cue::never);
        if let Some(why) = never {
            eprintln!("{}, line {}: not executed: {why}", self.page, block.line);
            return Ok(());
        }
        let text = block.text();
        let is_for_a_server = ["DISTLOCK_URL", "/etc/distlock/env"];
        if block.language == "yaml" || is_for_a_server.iter().any(|word| text.contains(word)) {
            self.on_server();
        }
        let done = match &*block.language {
            "sh" => self.script(block),
            "console" => self.console(block),
            "crontab" | "ini" | "yaml" => {
                let mut scripts = block.scheduled().into_iter();
                scripts.try_for_each(|script| self.scheduled(&script))
            }
            language if OTHERS.contains(&language) => Ok(()),
            language => panic!("line {}: `{language}` is not known", block.line),
        };
        self.holders.clear();
        self.variables.clear();
        self.replaced.clear();
        self.arguments.clear();
        done
    }

    /// Executes an `sh` block: a script, the files that it consists of, or commands, each of which has to succeed.
    fn script(&mut self, block: &Block) -> Result<(), Wrong> {
        for line in &block.lines {
            for cue in self.cues(std::slice::from_ref(line)).collect::<Vec<_>>() {
                match cue {
                    Cue::Before(act) => act(self),
                    Cue::Arguments(arguments) => self.arguments = arguments.to_vec(),
                    _ => panic!("a script has no such cue: {line}"),
                }
            }
        }
        let files = block.files();
        for (name, text) in &files {
            let text = self.translated(text);
            self.make(&format!("home/{name}"), &text);
        }
        for (name, _) in &files {
            self.succeeds(&format!("./{name}"))?;
        }
        if !files.is_empty() {
            return Ok(());
        }
        let lines = block.lines.iter().map(|line| cron(line).unwrap_or(line));
        let text = self.translated(&lines.collect::<Vec<_>>().join("\n"));
        let is_file = text.starts_with("#!");
        let text = if is_file {
            text
        } else {
            format!("set -e\n{text}")
        };
        self.succeeds(&text)
    }

    /// Executes a line of a crontab, or a command of a unit or a container.
    fn scheduled(&mut self, script: &str) -> Result<(), Wrong> {
        let mut script = self.translated(script);
        let outputs = fs::read_to_string(self.path("outputs")).unwrap_or_default();
        while let Some((before, (name, after))) =
            script.split_once("${{ steps.").and_then(|(before, rest)| {
                let (path, after) = rest.split_once(" }}")?;
                Some((before, (path.rsplit('.').next()?, after)))
            })
        {
            let output = outputs
                .lines()
                .find_map(|line| line.strip_prefix(&format!("{name}=")));
            let output = output.expect("an earlier step has set it");
            script = format!("{before}{output}{after}");
        }
        if script.contains("distlock watch") {
            self.hold("job:watched -- sleep 60");
            let watch = self.start(&format!("exec {script}"));
            return watch.wait_for_lines(1);
        }
        self.succeeds(&format!("set -e\n{script}"))
    }

    fn console(&mut self, block: &Block) -> Result<(), Wrong> {
        let types = block.typed();
        types.iter().try_for_each(|typed| self.types(typed))
    }

    fn types(&mut self, typed: &Typed) -> Result<(), Wrong> {
        let cues: Vec<_> = self.cues(std::slice::from_ref(&typed.command)).collect();
        for cue in &cues {
            if let Cue::Before(act) = cue {
                act(self);
            }
        }
        let command = self.translated(&typed.command);
        if let Some((name, value)) = exported(&command) {
            self.exported.insert(name.to_owned(), value.to_owned());
        } else if let Some(act) = cues.iter().find_map(|cue| cue.on_terminal()) {
            let said = self.on_terminal(&command, act);
            self.compare(typed, &said)?;
        } else if typed.is_for_a_second_terminal() {
            self.current = Some(self.start(&format!("exec {command}")));
            self.meanwhile(&cues);
            let process = self.current.take().expect("it was started");
            if typed.output.is_empty() && command.contains("distlock run") {
                self.wait_for_its_hold(&process, &command)?;
            }
            process.wait_for_lines(typed.output.len())?;
            self.compare(typed, &process.said())?;
            self.second_terminals.push(process);
        } else {
            self.current = Some(self.start(&command));
            self.meanwhile(&cues);
            let process = self.current.take().expect("it was started");
            let (code, said) = process.end();
            if code != 0 {
                return Err(format!("{code} from `{}`:\n{said}", typed.command));
            }
            // A stub in the place of `jq` repeats its arguments.
            if !command.contains("| jq ") || find("jq").is_some() {
                self.compare(typed, &said)?;
            }
        }
        for cue in cues {
            if let Cue::After(act) = cue {
                act(self);
            }
        }
        Ok(())
    }

    fn meanwhile(&mut self, cues: &[&Cue]) {
        for cue in cues {
            if let Cue::Meanwhile(act) = cue {
                act(self);
            }
        }
    }

    /// Returns the cues of these lines.
    fn cues(&mut self, lines: &[String]) -> impl Iterator<Item = &'static Cue> + use<> {
        let mut cues = Vec::new();
        for line in lines {
            let line = line.strip_prefix("$ ").unwrap_or(line);
            let line = line.split(" # ").next().unwrap_or_default().trim();
            for (at, entry) in TABLE.iter().enumerate() {
                if entry.page == self.page && entry.line == line {
                    self.used.insert(at);
                    cues.push(&entry.cue);
                }
            }
        }
        cues.into_iter()
    }

    /// Compares what a command has said with its output on the page, and takes over the pids and owners.
    fn compare(&mut self, typed: &Typed, said: &str) -> Result<(), Wrong> {
        if typed.output.is_empty() {
            return Ok(());
        }
        let said: Vec<_> = said
            .lines()
            .map(|line| line.replace(self.root(), ""))
            .collect();
        let shown = typed.output.iter().map(|line| normal(line));
        if !shown.eq(said.iter().map(|line| normal(line))) {
            let shown = typed.output.join("\n");
            let (command, said) = (&typed.command, said.join("\n"));
            return Err(format!("`{command}` shows\n{shown}\nand says\n{said}"));
        }
        let (shown, said) = (variables(&typed.output), variables(&said));
        self.bound.extend(shown.into_iter().zip(said));
        Ok(())
    }

    /// Returns a text of the page with the servers, folders, pids and owners of this run, and without long holds.
    fn translated(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (from, to) in &self.replaced {
            text = text.replace(from, to);
        }
        for from in ["redis://db1/", "redis://127.0.0.1/"] {
            text = text.replace(from, &self.server.url());
        }
        for from in FOLDERS {
            text = text.replace(from, &format!("{}{from}", self.root()));
        }
        let words = text.split_inclusive([' ', '\n']);
        let words = words.map(|word| {
            let name = word.trim_end();
            let space = &word[name.len()..];
            let bound = self.bound.get(name).map_or(name, String::as_str);
            format!("{bound}{space}")
        });
        let text: String = words.collect();
        let mut parts = text.split("--at-least ");
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |text, part| {
            let rest = part.find(' ').map_or("", |end| &part[end..]);
            format!("{text}--at-least 1ms{rest}")
        })
    }

    fn succeeds(&mut self, script: &str) -> Result<(), Wrong> {
        let (code, said) = self.start(script).end();
        match code {
            0 => Ok(()),
            code => Err(format!("{code} from\n{script}\n{said}")),
        }
    }

    /// Starts a script. Both of its outputs are in a file.
    fn start(&mut self, script: &str) -> Process {
        self.processes += 1;
        let path = self.path(&format!("out/{}", self.processes));
        let output = File::create(&path).expect("the folder is ours");
        let mut command = alone("sh");
        command.args(["-c", script, "script"]).args(&self.arguments);
        self.prepare(&mut command);
        command.stderr(output.try_clone().expect("a file can be cloned"));
        command.stdout(output);
        let child = command.spawn().expect("a shell can be started");
        let output = path;
        Process { child, output }
    }

    fn prepare(&self, command: &mut Command) {
        let others = std::env::var("PATH").expect("there is one");
        command
            .current_dir(self.path("home"))
            .env("HOME", self.path("home"))
            .env("PATH", format!("{}/bin:{others}", self.root()))
            .env("LC_ALL", "C")
            .env("TZ", "UTC")
            .env("GITHUB_OUTPUT", self.path("outputs"))
            .env("CREDENTIALS_DIRECTORY", self.path("etc"))
            .env("EXIT_STATUS", "76")
            .envs(&self.exported)
            .envs(&self.variables);
    }

    /// Runs a command on a terminal; acts when a line about a wait is shown.
    fn on_terminal(&mut self, script: &str, act: Act) -> String {
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait", "sh", "-c", script]);
        self.prepare(&mut command);
        command.env("TERM", "xterm").env_remove("DISTLOCK_URL");
        let mut terminal = Terminal::of(command);
        terminal.shows(", held by ");
        act(self);
        assert_eq!(terminal.end(), 0, "{}", terminal.seen());
        terminal.shows("\r\n");
        let seen = terminal.seen().replace("\r\u{1b}[2K", "\n");
        let seen = seen.replace("\u{1b}[2m", "").replace("\u{1b}[0m", "");
        // The line is shown again each second.
        let (waits, others): (Vec<_>, Vec<_>) = seen
            .lines()
            .filter(|line| !line.is_empty())
            .partition(|line| line.starts_with("waiting for "));
        let last = waits.last().copied().unwrap_or_default();
        format!("{last}\n{}", others.join("\n"))
    }
}

/// A step that the page leaves out.
pub(crate) type Act = fn(&mut Play);

/// Steps for the table.
impl Play {
    /// Uses the server in this block where the page names no store.
    pub(crate) fn on_server(&mut self) {
        let url = self.server.url();
        self.variables.insert("DISTLOCK_URL".to_owned(), url);
    }

    /// Has another text in the place of one, in this block.
    pub(crate) fn replace(&mut self, from: &str, to: &str) {
        self.replaced.push((from.to_owned(), to.to_owned()));
    }

    /// Has this owner in the place of one on the page.
    pub(crate) fn bind(&mut self, from: &str, to: &str) {
        self.bound.insert(from.to_owned(), to.to_owned());
    }

    /// Runs a command, which succeeds, and returns its output.
    pub(crate) fn run(&mut self, command: &str) -> String {
        let command = self.translated(command);
        in_time(|| match self.start(&command).end() {
            (0, said) => Ok(said.trim_end().to_owned()),
            (code, said) => Err(format!("{code} from `{command}`: {said}")),
        })
    }

    /// Starts to hold a lock until the block ends. The arguments are those of `distlock run`.
    pub(crate) fn hold(&mut self, arguments: &str) {
        let command = self.translated(&format!("distlock run {arguments}"));
        self.variables.insert(STAYS.to_owned(), "1".to_owned());
        let holder = in_time(|| {
            let holder = self.start(&format!("exec {command}"));
            self.wait_for_its_hold(&holder, &command)?;
            Ok(holder)
        });
        self.variables.remove(STAYS);
        self.holders.push(holder);
    }

    /// Starts to wait for a lock.
    pub(crate) fn wait(&mut self, arguments: &str) {
        let command = self.translated(&format!("exec distlock run {arguments}"));
        let waiter = self.start(&command);
        self.holders.push(waiter);
    }

    /// Ends all holders and all second terminals.
    pub(crate) fn end_all(&mut self) {
        self.holders.clear();
        self.second_terminals.clear();
    }

    /// Waits until the last second terminal has ended by itself.
    pub(crate) fn wait_for_an_end(&mut self) {
        let last = self.second_terminals.last_mut().expect("there is one");
        wait_until("it ends", || last.has_ended());
    }

    /// Waits until the current command holds its lock.
    pub(crate) fn wait_for_the_hold(&mut self) {
        wait_until("a lock is held", || {
            let listed = self.run("distlock ls --json");
            listed.contains("\"label\":\"")
        });
    }

    /// Waits until the current command has said this many lines.
    pub(crate) fn wait_for_lines(&self, lines: usize) {
        let current = self.current.as_ref().expect("a command runs");
        current.wait_for_lines(lines).expect("it goes on");
    }

    /// Lets a thread of a Java program hold a plain lock.
    pub(crate) fn hold_in_java(&self, name: &str, owner: &str) {
        self.server.cmd(&["HSET", name, owner, "1"]);
        self.server.cmd(&["PEXPIRE", name, "3000000"]);
    }

    /// Waits until a process holds a lock and has stored its label.
    fn wait_for_its_hold(&mut self, process: &Process, command: &str) -> Result<(), Wrong> {
        let mut words = command.split(' ').skip_while(|word| *word != "--url");
        let url = words
            .nth(1)
            .map_or_else(String::new, |url| format!(" --url {url}"));
        let label = format!("pid {} since", process.child.id());
        let mut held = Ok(());
        wait_until("a lock is held with its label", || {
            let (_, listed) = self.start(&format!("distlock ls --json{url}")).end();
            let is_held = listed.contains(&label);
            if !is_held {
                held = process.is_running_or_fails();
            }
            is_held || held.is_err()
        });
        held
    }
}

/// Repeats a step whose store had no time to reply, for which a busy machine may stand still.
pub(crate) fn in_time<T>(mut step: impl FnMut() -> Result<T, Wrong>) -> T {
    let is_late = |wrong: &Wrong| LATE.iter().any(|late| wrong.contains(late));
    for _ in 1..TRIES {
        match step() {
            Err(wrong) if is_late(&wrong) => eprintln!("again: {wrong}"),
            done => return done.unwrap_or_else(|wrong| panic!("{wrong}")),
        }
    }
    step().unwrap_or_else(|wrong| panic!("{wrong}"))
}

/// The messages of a store that has not replied, of one whose replicas have not, and of a watch that was stopped while the lease of the
/// lock `deploy` ended.
const LATE: [&str; 4] = [
    "no reply within",
    "not opened within",
    "of 2 replicas",
    "released  deploy",
];

/// A process, with its process group and its output. It ends when this is dropped.
pub(crate) struct Process {
    child: Child,
    output: PathBuf,
}

impl Process {
    fn said(&self) -> String {
        fs::read_to_string(&self.output).expect("it speaks text")
    }

    fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_some()
    }

    /// Returns an error if the process is a zombie.
    fn is_running_or_fails(&self) -> Result<(), Wrong> {
        match is_alive(&self.child.id().to_string()) {
            true => Ok(()),
            false => Err(format!("it ended: {}", self.said())),
        }
    }

    fn wait_for_lines(&self, lines: usize) -> Result<(), Wrong> {
        let mut ended = Ok(());
        wait_until("it says more", || {
            ended = self.is_running_or_fails();
            ended.is_err() || self.said().lines().count() >= lines
        });
        ended
    }

    /// Waits for its end; returns its exit code and its output.
    fn end(mut self) -> (i32, String) {
        let mut status = None;
        wait_until("the process ends", || {
            status = self.child.try_wait().expect("it is our child");
            status.is_some()
        });
        let status = status.expect("it has ended");
        (code(status), self.said())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let Ok(pid) = i32::try_from(self.child.id()).map(Pid::from_raw) else {
            return;
        };
        if self.has_ended() {
            return;
        }
        // TERM first, which `distlock` passes on. There is no group yet if the process has not begun.
        if killpg(pid, Signal::SIGTERM).is_err() {
            let _ = kill(pid, Signal::SIGTERM);
        }
        let begun = Instant::now();
        while begun.elapsed() < A_MOMENT && !self.has_ended() {
            std::thread::sleep(POLL);
        }
        // All of this fails only for a process that has ended.
        let _ = killpg(pid, Signal::SIGKILL);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Typed {
    /// Reports whether a command is one that a user leaves running.
    fn is_for_a_second_terminal(&self) -> bool {
        let command = self.command.as_str();
        command.starts_with("distlock watch")
            || (command.starts_with("distlock run ") && command.contains(" -- sleep "))
                && !command.contains(';')
    }
}

/// Returns the variable of an `export`.
fn exported(command: &str) -> Option<(&str, &str)> {
    command.strip_prefix("export ")?.split_once('=')
}

/// Returns the pids and the owners in an output.
fn variables(lines: &[String]) -> Vec<String> {
    let words: Vec<_> = lines
        .iter()
        .flat_map(|line| line.split_whitespace())
        .collect();
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let word = word.trim_end_matches([':', ',']);
        if is_owner(word) || at > 0 && words[at - 1] == "pid" {
            found.push(word.to_owned());
        }
    }
    found
}

/// Returns where a program is.
fn find(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
}

const POLL: std::time::Duration = std::time::Duration::from_millis(5);

/// Makes a stub go on until it is ended.
const STAYS: &str = "STAYS";

/// A stub, which says its name and arguments.
const SAYS: &str = "#!/bin/sh\necho \"${0##*/} $*\"\n[ -z \"$STAYS\" ] || exec sleep\n";

/// Further programs of the pages, in the place of the real ones.
const PROGRAMS: [(&str, &str); 10] = [
    ("make", SAYS),
    ("psql", SAYS),
    ("pg_dump", SAYS),
    ("logger", SAYS),
    ("redis-server", SAYS),
    // The name stands for a gap in a script.
    ("…", SAYS),
    // A label is stored in the background: a watch does not see that of a command that ends at once.
    (
        "echo",
        "#!/bin/sh
until distlock show --json \"$DISTLOCK_NAME\" | grep -q '\"label\":\"'; do :; done
echo \"$*\"
",
    ),
    // A command that holds a lock for a while holds it until the test ends the command.
    ("sleep", "#!/bin/sh\nexec /bin/sleep 100000\n"),
    ("ssh", "#!/bin/sh\nshift\nexec sh -c \"$*\"\n"),
    (
        "cargo",
        "#!/bin/sh
case $1 in
run) while [ \"$1\" != -- ]; do shift; done; shift; exec distlock \"$@\" ;;
install) test \"$2\" = --path && test -f \"REPOSITORY/$3/Cargo.toml\" ;;
*) exit 64 ;;
esac
",
    ),
];
