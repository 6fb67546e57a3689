//! A record of everything that the library logs through `tracing`, from all tests of this target.

use std::io;
use std::sync::{LazyLock, Mutex, PoisonError};

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;

/// The log since the first [`EventLog::open`].
///
/// All tests share one: only a global subscriber receives the events of the library's own thread. A test therefore searches for words that
/// only it can have caused.
#[derive(Clone, Copy)]
pub(crate) struct EventLog;

impl EventLog {
    pub(crate) fn open() -> Self {
        static OPENED: LazyLock<()> = LazyLock::new(|| {
            tracing_subscriber::fmt()
                .with_max_level(LevelFilter::TRACE)
                .with_ansi(false)
                .with_writer(EventLog)
                .init();
        });
        LazyLock::force(&OPENED);
        Self
    }

    pub(crate) fn text(self) -> String {
        let pages = PAGES.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&pages).into_owned()
    }

    /// Returns the lines that contain all of these words.
    pub(crate) fn lines_with(self, words: &[&str]) -> Vec<String> {
        let text = self.text();
        let lines = text
            .lines()
            .filter(|line| words.iter().all(|word| line.contains(word)));
        lines.map(ToOwned::to_owned).collect()
    }
}

impl<'a> MakeWriter<'a> for EventLog {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        Self
    }
}

impl io::Write for EventLog {
    fn write(&mut self, said: &[u8]) -> io::Result<usize> {
        let mut pages = PAGES.lock().unwrap_or_else(PoisonError::into_inner);
        pages.extend_from_slice(said);
        Ok(said.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

static PAGES: Mutex<Vec<u8>> = Mutex::new(Vec::new());
