//! Messages for the model while a run works: lines of a FIFO (`--steer`), and lines that are typed on
//! the terminal.
//!
//! ```text
//! mkfifo steer && endstop run "Fix the tests." --steer steer &
//! echo "Leave the database alone." > steer
//! ```
//!
//! Lines cannot be typed in a run that asks about calls (`--ask`), because a line could be meant for a
//! question. The terminal is read only in its foreground: a background process that reads it would be
//! stopped.

use crate::config::trust::owner;
use crate::failure::{Failure, Result};
use rustix::fs::OFlags;
use std::ffi::OsStr;
use std::future::pending;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

/// Longest line in bytes; the rest of a longer one is dropped with it.
const LONGEST: usize = 64 << 10;

/// Interval between two looks at a terminal whose input is not for this process.
const NOT_OURS: Duration = Duration::from_millis(200);

/// The sources of messages that the user has named.
#[derive(Clone, Debug, Default)]
pub(crate) struct Steer {
    /// The FIFO.
    pub(crate) fifo: Option<PathBuf>,
    /// `true` if lines may be typed: the task came from elsewhere.
    pub(crate) typed: bool,
}

/// A message of the user.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Steered {
    Line(String),
    /// A line that is longer than a message may be.
    TooLong,
}

/// The open sources of messages.
pub(crate) struct Messages {
    fifo: Option<(pipe::Receiver, Lines)>,
    terminal: Option<(pipe::Receiver, Lines)>,
}

impl Messages {
    /// Opens the sources. `asks` is `true` if questions about calls are answered on the terminal. Must
    /// be called within a tokio runtime.
    ///
    /// # Errors
    /// The file is not a FIFO, or cannot be opened.
    pub(crate) fn open(steer: &Steer, asks: bool) -> Result<Messages> {
        let fifo = steer.fifo.as_deref().map(open_fifo).transpose()?;
        // Without permission to open it, no line is typed.
        let terminal = (steer.typed && !asks).then(|| open_terminal().ok()).flatten();
        Ok(Messages {
            fifo: fifo.map(|fifo| (fifo, Lines::default())),
            terminal: terminal.map(|terminal| (terminal, Lines::default())),
        })
    }

    /// Waits for the next message. Cancel-safe: a partial line is kept.
    pub(crate) async fn next(&mut self) -> Steered {
        let Messages { fifo, terminal } = self;
        tokio::select! {
            line = next_of_fifo(fifo) => line,
            line = next_typed(terminal) => line,
        }
    }
}

fn open_fifo(path: &Path) -> Result<pipe::Receiver> {
    let mut options = std::fs::OpenOptions::new();
    // As a writer too, so that the FIFO has no end when the last other writer closes it.
    options.read(true).write(cfg!(target_os = "linux"));
    options.custom_flags((OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32);
    let shown = path.display();
    let opened = options.open(path).and_then(|file| Ok((file.metadata()?, file)));
    let opened = opened.and_then(|(found, file)| Ok((found, pipe::Receiver::from_file(file)?)));
    let (found, fifo) = opened.map_err(|error| {
        Failure::usage(format!("--steer {shown}: {error}; create a FIFO with `mkfifo {shown}`"))
    })?;
    // The model takes each line as the user's word.
    match owner::problem_of_path(path, &found) {
        None => Ok(fifo),
        Some(problem) => Err(Failure::usage(format!("--steer {shown}: {problem}"))),
    }
}

async fn next_of_fifo(fifo: &mut Option<(pipe::Receiver, Lines)>) -> Steered {
    let Some((fifo, lines)) = fifo else { return pending().await };
    let mut buffer = [0; 4096];
    loop {
        if let Some(line) = lines.take() {
            return line;
        }
        match fifo.read(&mut buffer).await {
            // Without a writer. Only systems other than Linux report that.
            Ok(0) => tokio::time::sleep(NOT_OURS).await,
            Ok(read) => lines.add(&buffer[..read]),
            Err(_) => return pending().await,
        }
    }
}

/// Opens the terminal of standard input once more, so that reads of it do not block, while those of
/// other processes do.
fn open_terminal() -> io::Result<pipe::Receiver> {
    let name = rustix::termios::ttyname(io::stdin(), Vec::new())?;
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
    let path = Path::new(OsStr::from_bytes(name.as_bytes()));
    let file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    // Unchecked, because a terminal is not a pipe; it can be waited for like one.
    pipe::Receiver::from_file_unchecked(file)
}

async fn next_typed(terminal: &mut Option<(pipe::Receiver, Lines)>) -> Steered {
    let Some((terminal, lines)) = terminal else { return pending().await };
    let mut buffer = [0; 4096];
    loop {
        if let Some(line) = lines.take() {
            return line;
        }
        if terminal.readable().await.is_err() {
            return pending().await;
        }
        if !in_foreground(io::stdin()) {
            // The line is for another program.
            tokio::time::sleep(NOT_OURS).await;
            continue;
        }
        match terminal.try_read(&mut buffer) {
            // The end of input, typed with Ctrl-D, which means nothing here.
            Ok(0) => tokio::time::sleep(NOT_OURS).await,
            Ok(read) => lines.add(&buffer[..read]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return pending().await,
        }
    }
}

/// `true` if this process may read and change a terminal.
pub(crate) fn in_foreground(terminal: impl std::os::fd::AsFd) -> bool {
    match rustix::termios::tcgetpgrp(terminal) {
        Ok(group) => group == rustix::process::getpgrp(),
        // Not the terminal that controls this process, so no use of it stops the process.
        Err(error) => error == rustix::io::Errno::NOTTY,
    }
}

/// Divides bytes into lines.
#[derive(Default)]
struct Lines {
    bytes: Vec<u8>,
    /// The beginning of the current line was dropped.
    cut: bool,
}

impl Lines {
    fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next line that is not blank.
    fn take(&mut self) -> Option<Steered> {
        loop {
            let Some(end) = self.bytes.iter().position(|byte| *byte == b'\n') else {
                // Dropped before its end, because a writer may never send one.
                if self.bytes.len() > LONGEST {
                    self.bytes.clear();
                    self.cut = true;
                }
                return None;
            };
            let line: Vec<u8> = self.bytes.drain(..=end).collect();
            if std::mem::take(&mut self.cut) || line.len() > LONGEST {
                return Some(Steered::TooLong);
            }
            let text = String::from_utf8_lossy(&line);
            if !text.trim().is_empty() {
                return Some(Steered::Line(text.trim().to_owned()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LONGEST, Lines, Steered};

    #[test]
    fn lines_are_bounded() {
        let mut lines = Lines::default();
        lines.add(b"one\n\n  \ntwo\nthr");
        let line = |text: &str| Some(Steered::Line(text.to_owned()));
        assert_eq!((lines.take(), lines.take(), lines.take()), (line("one"), line("two"), None));
        lines.add(b"ee\n");
        assert_eq!(lines.take(), line("three"));
        // A line without an end does not fill the memory.
        for _ in 0..100 {
            lines.add(&[b'x'; 4096]);
            assert_eq!(lines.take(), None);
            assert!(lines.bytes.len() <= LONGEST + 4096);
        }
        lines.add(b"x\nfour\n");
        assert_eq!((lines.take(), lines.take()), (Some(Steered::TooLong), line("four")));
    }
}
