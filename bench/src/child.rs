//! A contestant's process: lines in, lines out, and the resources that it uses.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child as Process, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use serde::Serialize;

use crate::failure::{Failure, Outcome, ensure};
use crate::line::Answer;

/// A running contestant; killed when dropped.
pub(crate) struct Child {
    process: Process,
    orders: ChildStdin,
    answers: Receiver<String>,
}

impl Child {
    /// Starts the process; its stderr goes to the log.
    pub(crate) fn start(command: &[String], log: &Path) -> Outcome<Self> {
        let (program, arguments) = command
            .split_first()
            .ok_or_else(|| Failure::new("no command to start"))?;
        if let Some(folder) = log.parent() {
            fs::create_dir_all(folder)?;
        }
        let log = File::options().create(true).append(true).open(log)?;
        let mut process = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .map_err(|error| Failure::from(error).during(program))?;
        let orders = process.stdin.take().expect("it was asked for");
        let out = process.stdout.take().expect("it was asked for");
        let (lines, answers) = mpsc::channel();
        // The thread ends with the process, whose output then ends.
        thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if lines.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self {
            process,
            orders,
            answers,
        })
    }

    pub(crate) fn give(&mut self, order: &impl Serialize) -> Outcome {
        self.say(&serde_json::to_string(order)?)
    }

    pub(crate) fn say(&mut self, line: &str) -> Outcome {
        writeln!(self.orders, "{line}")?;
        self.orders.flush()?;
        Ok(())
    }

    /// Returns the next reply; one that says `failed` is a failure.
    pub(crate) fn next_reply(&mut self, limit: Duration) -> Outcome<Answer> {
        let line = match self.answers.recv_timeout(limit) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => {
                return Err(Failure::new(format!("no answer within {limit:?}")));
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::new("it ended; its log may say why"));
            }
        };
        let answer: Answer = serde_json::from_str(&line)
            .map_err(|error| Failure::from(error).during(format_args!("not an answer: {line}")))?;
        match answer.failed {
            Some(why) => Err(Failure::new(why)),
            None => Ok(answer),
        }
    }

    /// Returns the seconds of processor time so far, of all its threads.
    pub(crate) fn cpu(&self) -> Outcome<f64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process.id()))?;
        // The second field is the program's name in brackets, which may hold anything.
        let behind = stat.rsplit_once(')').map_or("", |(_, behind)| behind);
        let fields: Vec<&str> = behind.split_whitespace().collect();
        ensure!(fields.len() > 12, "/proc has no processor time");
        let ticks: u32 = fields[11].parse::<u32>()? + fields[12].parse::<u32>()?;
        let a_second = u32::try_from(rustix::param::clock_ticks_per_second())?;
        Ok(f64::from(ticks) / f64::from(a_second))
    }

    /// Returns the bytes of resident memory.
    pub(crate) fn memory(&self) -> Outcome<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().next());
        let kilobytes: u64 = kilobytes
            .ok_or_else(|| Failure::new("/proc has no VmRSS"))?
            .parse()?;
        Ok(kilobytes * 1024)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Both fail only if the process has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
