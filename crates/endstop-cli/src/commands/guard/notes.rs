//! What guard says while its program runs. A program that draws the whole terminal would lose its picture to such a
//! line, so there the lines are kept for the card.
//!
//! ```text
//! notes.say("endstop guard: refused: …"); // at once, or kept
//! notes.release();                        // after the end of the program
//! ```

use crate::output;
use std::convert::Infallible;
use std::io::IsTerminal as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Interval at which the terminal is looked at. A person needs longer to open a program and to leave it.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Number of different lines that are kept; further ones are counted.
const MOST_KEPT: usize = 20;

/// The notes of a run, and what is known of its terminal.
#[derive(Clone)]
pub(crate) struct GuardNotes(Arc<State>);

struct State {
    kept: Mutex<Kept>,
    /// `true` if guard started on a terminal that reads lines. Otherwise its state is not due to the program.
    is_watched: bool,
    /// `true` once the program has read single keys.
    was_taken: AtomicBool,
}

#[derive(Default)]
struct Kept {
    /// Lines, and how often each was said.
    lines: Vec<(String, u64)>,
    more: u64,
}

impl GuardNotes {
    /// Looks at the terminal before the program starts.
    pub(crate) fn begin() -> GuardNotes {
        GuardNotes(Arc::new(State {
            kept: Mutex::default(),
            is_watched: reads_keys() == Some(false),
            was_taken: AtomicBool::new(false),
        }))
    }

    /// Writes a line, or keeps it while it would damage the picture of the program.
    pub(crate) fn say(&self, text: &str) {
        if !(std::io::stderr().is_terminal() && self.is_taken()) {
            return output::note(text);
        }
        let mut kept = self.0.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let Kept { lines, more } = &mut *kept;
        if let Some((_, times)) = lines.iter_mut().find(|(known, _)| known == text) {
            *times += 1;
        } else if lines.len() < MOST_KEPT {
            lines.push((text.to_owned(), 1));
        } else {
            *more += 1;
        }
    }

    /// Writes the lines that were kept.
    pub(crate) fn release(&self) {
        let kept = {
            let mut kept = self.0.kept.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *kept)
        };
        for (text, times) in kept.lines {
            match times {
                1 => output::note(&text),
                times => output::note(&format!("{text} ({times} times)")),
            }
        }
        if kept.more > 0 {
            output::note(&format!("endstop guard: {} more notes", kept.more));
        }
    }

    /// Looks at the terminal again and again.
    pub(crate) async fn watch(&self) -> Infallible {
        if !self.0.is_watched {
            return std::future::pending().await;
        }
        loop {
            self.is_taken();
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// `true` if the program draws the terminal, or reads single keys from it, as an editor of lines does.
    pub(crate) fn is_taken(&self) -> bool {
        let is_taken = self.0.is_watched && reads_keys() == Some(true);
        self.0.was_taken.fetch_or(is_taken, Ordering::Relaxed);
        is_taken
    }

    /// `true` if the program has drawn the terminal at some time: a person sits in front of it.
    pub(crate) fn was_taken(&self) -> bool {
        self.0.was_taken.load(Ordering::Relaxed)
    }
}

/// `true` if keys reach the program one by one, `false` if the terminal collects lines, `None` without a terminal.
#[cfg(unix)]
fn reads_keys() -> Option<bool> {
    use rustix::termios::{LocalModes, tcgetattr};
    // Its state is that of the terminal, whichever of the streams leads there.
    let state = tcgetattr(std::io::stdin())
        .or_else(|_| tcgetattr(std::io::stdout()))
        .or_else(|_| tcgetattr(std::io::stderr()));
    state.ok().map(|state| !state.local_modes.contains(LocalModes::ICANON))
}

/// There is no such state on this system.
#[cfg(not(unix))]
fn reads_keys() -> Option<bool> {
    None
}
