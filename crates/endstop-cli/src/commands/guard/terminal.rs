//! The terminal of guard while its program runs. A program that draws the whole terminal would lose its picture to a
//! line of guard, so there the lines are kept for the card; and if the program leaves the terminal as it used it,
//! for example because guard has stopped it, its modes are set again.
//!
//! ```text
//! terminal.say("endstop guard: refused: …"); // at once, or kept
//! terminal.restore(stopped);                 // after the end of the program
//! terminal.release();
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

/// The notes of a run, and its terminal.
#[derive(Clone)]
pub(crate) struct GuardTerminal(Arc<State>);

struct State {
    kept: Mutex<Kept>,
    /// The terminal, as it was before the program started.
    tty: Option<Tty>,
    /// `true` once the program has read single keys.
    was_taken: Arc<AtomicBool>,
}

#[derive(Default)]
struct Kept {
    /// Lines, and how often each was said.
    lines: Vec<(String, u64)>,
    more: u64,
}

impl GuardTerminal {
    /// Looks at the terminal before the program starts.
    pub(crate) fn begin() -> GuardTerminal {
        GuardTerminal(Arc::new(State {
            kept: Mutex::default(),
            tty: Tty::of_streams(),
            was_taken: Arc::default(),
        }))
    }

    /// `true` if one of the streams is a terminal.
    pub(crate) fn exists(&self) -> bool {
        self.0.tty.is_some()
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

    /// Sets the modes again that the terminal had before the program, and draws what follows below the program's
    /// picture. `stopped` is `true` if the program could not do so itself.
    pub(crate) fn restore(&self, stopped: bool) {
        let Some(tty) = &self.0.tty else { return };
        let is_taken = self.is_taken();
        tty.restore(match is_taken {
            true => &[Tty::RESETS, Tty::BELOW],
            // The program has left its picture itself, and its last lines are where the cursor is.
            false if stopped && self.was_taken() => &[Tty::RESETS],
            false => &[],
        });
    }

    /// Looks at the terminal again and again.
    pub(crate) async fn watch(&self) -> Infallible {
        if !self.exists() {
            return std::future::pending().await;
        }
        loop {
            self.is_taken();
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// `true` if the program draws the terminal, or reads single keys from it, as an editor of lines does.
    pub(crate) fn is_taken(&self) -> bool {
        let is_taken = self.0.tty.as_ref().is_some_and(Tty::is_taken);
        self.0.was_taken.fetch_or(is_taken, Ordering::Relaxed);
        is_taken
    }

    /// `true` if the program has drawn the terminal at some time: a person sits in front of it.
    pub(crate) fn was_taken(&self) -> bool {
        self.0.was_taken.load(Ordering::Relaxed)
    }

    /// The flag of [`was_taken`](Self::was_taken), which the run reads.
    pub(crate) fn attended(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0.was_taken)
    }
}

/// A terminal, opened a second time so that it does not matter which of the streams leads there.
#[cfg(unix)]
struct Tty {
    file: std::fs::File,
    before: rustix::termios::Termios,
}

#[cfg(unix)]
impl Tty {
    /// What full-screen programs switch on, switched off. Leaving the alternate screen sets the cursor to the position
    /// that was saved, also on a terminal that shows the normal one, so that position is saved first; so does
    /// resetting the scroll region.
    const RESETS: &[u8] = b"\x1b[?2026l\x1b[<u\x1b7\x1b[?1049l\
        \x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1004l\x1b[?2004l\x1b[?1l\x1b>\x1b[>4;0m\x1b[0m\
        \x1b7\x1b[r\x1b8\x1b[?25h\r\n";

    /// Moves below a picture on the normal screen.
    const BELOW: &[u8] = b"\x1b[999B\r\n";

    fn of_streams() -> Option<Tty> {
        use rustix::fs::OFlags;
        use rustix::termios::{tcgetattr, ttyname};
        use std::os::unix::ffi::OsStrExt;
        use std::os::unix::fs::OpenOptionsExt;
        let name = ttyname(std::io::stdin(), Vec::new())
            .or_else(|_| ttyname(std::io::stdout(), Vec::new()))
            .or_else(|_| ttyname(std::io::stderr(), Vec::new()));
        let name = name.ok()?;
        let path = std::path::Path::new(std::ffi::OsStr::from_bytes(name.as_bytes()));
        let flags = OFlags::NOCTTY.bits() as i32;
        let mut options = std::fs::OpenOptions::new();
        let file = options.read(true).write(true).custom_flags(flags).open(path).ok()?;
        let before = tcgetattr(&file).ok()?;
        Some(Tty { file, before })
    }

    /// `true` if keys reach the program one by one, which they did not before it.
    fn is_taken(&self) -> bool {
        use rustix::termios::{LocalModes, tcgetattr};
        let is_line =
            |state: &rustix::termios::Termios| state.local_modes.contains(LocalModes::ICANON);
        is_line(&self.before) && tcgetattr(&self.file).is_ok_and(|now| !is_line(&now))
    }

    fn restore(&self, resets: &[&[u8]]) {
        use rustix::termios::{OptionalActions, QueueSelector, tcflush, tcsetattr};
        use std::io::Write as _;
        // In the background this would stop the process. The shell restores the terminal then.
        if !crate::run::steer::in_foreground(&self.file) {
            return;
        }
        // Neither is possible if the terminal is gone, and there is no other place to say so.
        let _ = tcsetattr(&self.file, OptionalActions::Now, &self.before);
        if !resets.is_empty() {
            // Reports of the mouse that the program has not read would be typed into the shell.
            let _ = tcflush(&self.file, QueueSelector::IFlush);
            let _ = (&self.file).write_all(&resets.concat());
        }
    }
}

/// There is no such state on this system.
#[cfg(not(unix))]
struct Tty(Infallible);

#[cfg(not(unix))]
impl Tty {
    fn of_streams() -> Option<Tty> {
        None
    }

    fn is_taken(&self) -> bool {
        match self.0 {}
    }

    fn restore(&self, _: &[&[u8]]) {
        match self.0 {}
    }
}
