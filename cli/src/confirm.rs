//! Confirmation of irreversible changes: `--force`, or a question on a terminal.

use std::io::{BufRead, IsTerminal, Write};

use crate::exit::{self, Failure};
use crate::out::{harmless, say};

/// Asks on a terminal for confirmation; fails without one, since `--force` is then needed. `state` describes the
/// current state, `question` the change.
pub(crate) fn confirm(state: &str, question: &str) -> Result<(), Failure> {
    if !std::io::stdin().is_terminal() {
        let message = format!("{state}; the input is not a terminal: use `--force` to {question}");
        return Err(Failure::new(exit::USAGE, message));
    }
    if agrees(&format!("{state}; {question}?")) {
        return Ok(());
    }
    say("nothing was changed");
    Err(Failure::silent(exit::NO))
}

/// Returns whether the user at the terminal answers the question with yes.
pub(crate) fn agrees(question: &str) -> bool {
    let mut stderr = std::io::stderr();
    let question = harmless(question.chars());
    let _ = write!(stderr, "distlock: {question} [y/N] ");
    let _ = stderr.flush();
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}
