//! Drives a process with another lock library in it: commands go to its stdin, replies come from its stdout.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::{mpsc, oneshot};

use crate::clock::{Span, Stamp};
use crate::failure::{Failure, Outcome, ensure};
use crate::library::{Build, Library};

/// A running process; killed when dropped.
#[derive(Debug)]
pub(crate) struct Peer {
    build: Build,
    commands: mpsc::UnboundedSender<String>,
    waiting: Arc<Waiting>,
    next_id: AtomicU64,
    log: PathBuf,
    /// The process, killed when it is dropped, and so with the peer.
    child: Mutex<Child>,
}

/// A reply: a value or an exception, and when the command ran.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) result: Result<Value, PeerException>,
    pub(crate) span: Span,
}

/// An exception or an error in the peer.
#[derive(Debug)]
pub(crate) struct PeerException {
    pub(crate) class: String,
    pub(crate) message: String,
}

impl Answer {
    /// Returns the value; an exception is a failure.
    pub(crate) fn value(self) -> Outcome<Value> {
        self.result.map_err(Failure::from)
    }
}

impl std::error::Error for PeerException {}

impl std::fmt::Display for PeerException {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the peer said {}: {}", self.class, self.message)
    }
}

/// The calls that have no reply yet; `None` once none can come any more.
type Waiting = Mutex<Option<HashMap<u64, oneshot::Sender<Answer>>>>;

impl Peer {
    /// Starts a process, and checks that its clock is ours.
    pub(crate) async fn start(build: &Build, logs: &Path) -> Outcome<Arc<Self>> {
        static STARTED: AtomicU64 = AtomicU64::new(1);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        fs::create_dir_all(logs)?;
        let log = logs.join(format!("peer-{}-{number}.log", build.word()));
        let title = build.title();
        ensure!(
            build.program().is_file(),
            "there is no peer for {title} in {}; `scripts/interop` builds it",
            build.folder.display()
        );
        let mut child = build
            .command()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&log)?)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| Failure::from(error).during(format_args!("{title} does not start")))?;
        let stdin = child.stdin.take().expect("it is piped");
        let stdout = child.stdout.take().expect("it is piped");

        let (commands, orders) = mpsc::unbounded_channel();
        let waiting = Arc::new(Mutex::new(Some(HashMap::new())));
        // Both tasks end with the process they talk to.
        tokio::spawn(write(stdin, orders));
        tokio::spawn(read(BufReader::new(stdout).lines(), waiting.clone()));
        let peer = Arc::new(Self {
            build: build.clone(),
            commands,
            waiting,
            next_id: AtomicU64::new(1),
            log,
            child: Mutex::new(child),
        });
        peer.compare_clocks().await?;
        peer.check_version().await?;
        Ok(peer)
    }

    pub(crate) const fn build(&self) -> &Build {
        &self.build
    }

    /// Sends a command at once; the future only waits for the reply. `words` is an object.
    pub(crate) fn call(
        self: &Arc<Self>,
        mut words: Value,
    ) -> impl Future<Output = Outcome<Answer>> + Send + use<> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        words["id"] = id.into();
        let (answer, answered) = oneshot::channel();
        if let Some(waiting) = self.waiting().as_mut() {
            waiting.insert(id, answer);
        }
        // If the process is dead, no call can wait in the map either, and the reply says so.
        let _ = self.commands.send(words.to_string());
        let peer = self.clone();
        async move { answered.await.map_err(|_| peer.obituary(&words)) }
    }

    /// Returns the value of a command that is expected to succeed.
    pub(crate) async fn ask(self: &Arc<Self>, words: Value) -> Outcome<Value> {
        self.call(words).await?.value()
    }

    /// Makes the process die at once, as `kill -9` would, and waits until it has. Returns when the command was sent.
    pub(crate) async fn halt(self: &Arc<Self>) -> Outcome<Stamp> {
        let told = Stamp::now();
        let answer = self.call(json!({"cmd": "halt"})).await;
        ensure!(answer.is_err(), "it was told to die and answered");
        Ok(told)
    }

    /// Kills it with `kill -9`, and waits until it is dead. Returns when.
    pub(crate) async fn kill_hard(self: &Arc<Self>) -> Outcome<Stamp> {
        let now = Stamp::now();
        self.kill();
        let answer = self.call(json!({"cmd": "clock"})).await;
        ensure!(answer.is_err(), "it was killed and answered");
        Ok(now)
    }

    /// Kills it, for when it cannot be trusted any more.
    pub(crate) fn kill(&self) {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        // Killing fails only for a child that is already gone.
        let _ = child.start_kill();
    }

    /// Returns the end of its log.
    pub(crate) fn log_tail(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }

    /// Checks that both sides read the same clock, since their intervals are compared: the peer's reading has to lie between two readings
    /// of ours.
    async fn compare_clocks(self: &Arc<Self>) -> Outcome {
        let before = Stamp::now();
        let call = self.call(json!({"cmd": "clock"}));
        let answer = tokio::time::timeout(START_WITHIN, call)
            .await
            .map_err(|_| self.obituary(&json!({"cmd": "clock"})))??;
        let after = Stamp::now();
        let theirs = answer.value()?.as_i64().map(Stamp::from_nanos);
        ensure!(
            theirs.is_some_and(|theirs| before <= theirs && theirs <= after),
            "its clock says {theirs:?}, ours {before:?} to {after:?}: not the same clock"
        );
        Ok(())
    }

    /// Checks that the peer has the version that the table names.
    async fn check_version(self: &Arc<Self>) -> Outcome {
        if self.build.library == Library::Redisson {
            // Maven has put exactly that version on its class path.
            return Ok(());
        }
        let title = self.build.title();
        let said = self.ask(json!({"cmd": "library"})).await?;
        ensure!(
            said == title,
            "it is {said}, not {title}; remove its folder"
        );
        Ok(())
    }

    fn obituary(&self, words: &Value) -> Failure {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        let state = match child.try_wait() {
            Ok(Some(status)) => format!("is dead ({status})"),
            // A process that has just closed its stdout may take a moment to exit.
            Ok(None) | Err(_) => "died or hangs".to_owned(),
        };
        let tail = self.log_tail();
        let tail = if tail.is_empty() { "(empty)" } else { &tail };
        Failure::new(format!(
            "the peer with {} {state}, and has not answered {words}; its log ({}) ends:\n{tail}",
            self.build.title(),
            self.log.display(),
        ))
    }

    fn waiting(&self) -> MutexGuard<'_, Option<HashMap<u64, oneshot::Sender<Answer>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn write(mut stdin: ChildStdin, mut orders: mpsc::UnboundedReceiver<String>) {
    while let Some(order) = orders.recv().await {
        if stdin
            .write_all(format!("{order}\n").as_bytes())
            .await
            .is_err()
        {
            // The process is dead; the task that reads its replies reports it.
            return;
        }
    }
}

async fn read(mut answers: Lines<BufReader<ChildStdout>>, waiting: Arc<Waiting>) {
    while let Ok(Some(line)) = answers.next_line().await {
        let Some((id, answer)) = parse(&line) else {
            eprintln!("interop: not an answer: {line}");
            continue;
        };
        let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(waiter) = waiting.as_mut().and_then(|waiting| waiting.remove(&id)) {
            // The caller may have given up.
            let _ = waiter.send(answer);
        }
    }
    // Dropping the senders wakes every call that still waits.
    *waiting.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

fn parse(line: &str) -> Option<(u64, Answer)> {
    let mut answer: Value = serde_json::from_str(line).ok()?;
    let stamp = |answer: &Value, field: &str| Some(Stamp::from_nanos(answer[field].as_i64()?));
    let span = Span {
        from: stamp(&answer, "from")?,
        to: stamp(&answer, "to")?,
    };
    let result = match answer["error"].as_str() {
        Some(class) => Err(PeerException {
            class: class.to_owned(),
            message: answer["message"].as_str().unwrap_or_default().to_owned(),
        }),
        None => Ok(answer.get_mut("result")?.take()),
    };
    Some((answer["id"].as_u64()?, Answer { result, span }))
}

const START_WITHIN: Duration = Duration::from_secs(120);
const LOG_LINES: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_a_value_with_its_times() {
        let (id, answer) = parse(r#"{"id":7,"result":false,"from":1,"to":5}"#).expect("whole");
        assert_eq!((id, answer.span.took().as_nanos()), (7, 4));
        assert_eq!(answer.value().expect("a value"), false);
    }

    #[test]
    fn an_exception_is_not_a_value() {
        let line = r#"{"id":7,"error":"a.B","message":"no","from":1,"to":5}"#;
        let (_, answer) = parse(line).expect("whole");
        let raised = answer.result.expect_err("an exception");
        assert_eq!(
            (raised.class.as_str(), raised.message.as_str()),
            ("a.B", "no")
        );
    }

    #[test]
    fn an_incomplete_line_is_no_reply() {
        for line in [
            "",
            "x",
            r#"{"id":7}"#,
            r#"{"id":7,"from":1,"to":2}"#,
            r#"{"result":1,"from":1,"to":2}"#,
        ] {
            assert!(parse(line).is_none(), "{line}");
        }
    }
}
