//! A client for scale: one thread, one socket, no runtime. It plays all the callers at once: writes a release's or an acquire's call for
//! each, then reads the replies.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::raw::{Scripts, address, number};
use crate::failure::{Failure, Outcome, ensure};
use crate::line::{Answer, Job, Tally, Work};
use crate::serve::{Orders, say};
use crate::spin::{Caller, Names, sum};

pub(super) fn serve() -> Outcome {
    let mut orders = Orders::new();
    while let Some(work) = orders.work()? {
        if work.job != Job::Cycle || work.names < work.callers {
            say(&Answer::cannot("does not wait"))?;
            continue;
        }
        let mut socket = Socket::open(&work.url)?;
        socket.cycle(&work, work.warmup)?;
        say(&Answer::ready("one script a call, blocking, one thread"))?;
        orders.expect("go")?;
        let tally = Some(socket.cycle(&work, work.seconds)?);
        say(&Answer {
            tally,
            ..Answer::default()
        })?;
    }
    Ok(())
}

struct Socket {
    stream: BufReader<TcpStream>,
    scripts: Scripts,
}

impl Socket {
    fn open(url: &str) -> Outcome<Self> {
        let stream = TcpStream::connect(address(url)?)?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream: BufReader::with_capacity(1 << 16, stream),
            scripts: Scripts::load(url)?,
        })
    }

    fn cycle(&mut self, work: &Work, seconds: f64) -> Outcome<Tally> {
        let time = Duration::from_secs_f64(seconds);
        let mut names: Vec<Names> = (0..work.callers)
            .map(|caller| Names::of(caller, work))
            .collect();
        let mut callers: Vec<Caller> = names.iter().map(|_| Caller::default()).collect();
        let began = Instant::now();
        let mut bytes = Vec::new();
        while began.elapsed() < time {
            let round = Instant::now();
            let round_names: Vec<_> = names.iter_mut().map(Names::next).collect();
            let owners: Vec<_> = names.iter().map(|_| self.scripts.fresh_owner()).collect();
            bytes.clear();
            for (name, owner) in round_names.iter().zip(&owners) {
                bytes.extend(self.scripts.acquire(name, *owner));
            }
            self.exchange(&bytes, work.callers, |said| said == -3)?;
            bytes.clear();
            for (name, owner) in round_names.iter().zip(&owners) {
                bytes.extend(self.scripts.release(name, *owner));
            }
            self.exchange(&bytes, work.callers, |said| said >= 0)?;
            let took = round.elapsed();
            for caller in &mut callers {
                caller.note(took, false);
            }
        }
        Ok(sum(&callers, began.elapsed()))
    }

    fn exchange(&mut self, bytes: &[u8], answers: usize, fine: fn(i64) -> bool) -> Outcome {
        self.stream.get_mut().write_all(bytes)?;
        let mut line = Vec::new();
        for _ in 0..answers {
            line.clear();
            self.stream.read_until(b'\n', &mut line)?;
            let said = line.strip_suffix(b"\n").and_then(number);
            let said = said.ok_or_else(|| {
                Failure::new(format!("answered: {}", String::from_utf8_lossy(&line)))
            })?;
            ensure!(fine(said), "answered {said}");
        }
        Ok(())
    }
}
