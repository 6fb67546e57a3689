//! A record of the commands that a server runs, made through a connection of its own.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

use super::support::{RedisServer, Rights};

/// The notes about every command that scripts run on a server from the start of the monitor, in order.
pub(crate) struct Monitor<T> {
    seen: Arc<Mutex<Vec<T>>>,
    reader: AbortHandle,
}

impl<T: Clone + Send + 'static> Monitor<T> {
    /// Starts the monitor. `note` is called with a command's words and the time at which it ran, by the server's clock.
    pub(crate) async fn start(
        server: &RedisServer,
        mut note: impl FnMut(Duration, &[&str]) -> Option<T> + Send + 'static,
    ) -> Self {
        let stream = TcpStream::connect(server.addr()).await;
        let mut stream = stream.expect("the server runs");
        let login = Rights::from_env().greeting();
        let asked = format!("{login}MONITOR\r\n");
        let asked = stream.write_all(asked.as_bytes()).await;
        asked.expect("it listens");
        let mut lines = BufReader::new(stream).lines();
        for _ in login.lines() {
            lines.next_line().await.expect("it answers");
        }
        let agreed = lines.next_line().await.expect("it answers");
        assert_eq!(agreed.as_deref(), Some("+OK"));
        let seen = Arc::<Mutex<Vec<T>>>::default();
        let notes = seen.clone();
        let reader = tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let Some((at, words)) = line.split_once(" lua] \"") else {
                    continue;
                };
                let at = at.trim_start_matches('+').split(' ').next();
                let at = at
                    .and_then(|at| at.parse().ok())
                    .expect("it begins with the time");
                let words: Vec<&str> = words.trim_end_matches('"').split("\" \"").collect();
                if let Some(noted) = note(Duration::from_secs_f64(at), &words) {
                    let mut notes = notes.lock().unwrap_or_else(PoisonError::into_inner);
                    notes.push(noted);
                }
            }
        });
        Self {
            seen,
            reader: reader.abort_handle(),
        }
    }

    pub(crate) fn seen(&self) -> Vec<T> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.clone()
    }
}

impl<T> Drop for Monitor<T> {
    fn drop(&mut self) {
        self.reader.abort();
    }
}
