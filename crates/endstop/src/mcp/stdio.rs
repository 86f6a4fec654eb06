//! Runs the process of a stdio server: starts it, reads its standard error, and ends it.
//!
//! ```text
//! let (process, lines) = Process::start(line, dir, &variables, gone)?;
//! process.said.short(); // its log output
//! process.close().await; // closes its input, then SIGTERM, then SIGKILL
//! ```

use super::lines::Lines;
use super::log_output::Said;
use super::variables::Variables;
use endstop_process::CommandLine;
use endstop_process::pipe::{reached, read_some};
use endstop_process::talk::{self, KillOnDrop, Talk};
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::process::ChildStdout;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Time that a process has at each step of its shutdown: input closed, asked to end, killed.
const STEP: Duration = Duration::from_secs(1);

/// Time to read standard error after the process has ended. Bounded, because another process may
/// still hold the pipe.
const DRAIN: Duration = Duration::from_millis(100);

/// The process of a server. Dropping it kills the process.
pub(super) struct Process {
    pub(super) said: Said,
    /// Cancelled to close the input of the process.
    pub(super) closing: CancellationToken,
    /// Cancelled to shut the process down.
    close: CancellationToken,
    ended: Arc<OnceLock<String>>,
    over: CancellationToken,
    kill: DropGuard,
}

impl Process {
    /// Starts the process. `gone` is cancelled when nothing more comes from it.
    pub(super) fn start(
        line: &str,
        dir: Option<&Path>,
        variables: &Variables,
        gone: CancellationToken,
    ) -> io::Result<(Process, Lines)> {
        let mut command = CommandLine::new(line);
        if let Some(dir) = dir {
            command = command.in_dir(dir);
        }
        let command = variables.allowed.iter().fold(command, CommandLine::allow_variable);
        let set = variables.set.iter();
        let command = set.fold(command, |command, (name, value)| command.variable(name, value));
        let Talk { command, input, output, errors } = talk::start(&command)?;
        let said = Said::new();
        let lines = Lines::new(input, output, said.clone());
        let kill = CancellationToken::new();
        let process = Process {
            said: said.clone(),
            closing: lines.closing(),
            close: CancellationToken::new(),
            ended: Arc::default(),
            over: CancellationToken::new(),
            kill: kill.clone().drop_guard(),
        };
        let (ended, over) = (Arc::clone(&process.ended), process.over.clone());
        let end = End { close: process.close.clone(), gone, kill };
        let holding = async move {
            let how = hold(command, errors, &said, &end).await;
            // No other place sets this value, so `set` cannot fail.
            let _ = ended.set(how);
            over.cancel();
        };
        #[expect(clippy::disallowed_methods, reason = "a server outlives a run; it ends with it")]
        tokio::spawn(holding);
        Ok((process, lines))
    }

    /// Describes how the process ended, if it has ended or does so within a quarter of a second.
    pub(super) async fn ended(&self) -> Option<&str> {
        let _ = timeout(STEP / 4, self.over.cancelled()).await;
        self.ended.get().map(String::as_str)
    }

    /// Kills the process and returns when it is gone.
    pub(super) async fn kill(self) -> Said {
        self.kill.disarm().cancel();
        self.over.cancelled().await;
        self.said
    }

    /// Shuts the process down and returns when it is gone.
    pub(super) async fn close(&self) {
        self.closing.cancel();
        self.close.cancel();
        self.over.cancelled().await;
    }
}

/// The signals that make a process end.
struct End {
    close: CancellationToken,
    gone: CancellationToken,
    kill: CancellationToken,
}

/// Supervises a process until its end and describes how it ended.
async fn hold(mut command: KillOnDrop, errors: ChildStdout, said: &Said, end: &End) -> String {
    let mut buffer = vec![0; 4096];
    let mut errors = Some(errors);
    let mut deadline: Option<Instant> = None;
    let mut steps = [KillOnDrop::ask as fn(&KillOnDrop), KillOnDrop::kill].into_iter();
    let mut killed = false;
    let how = loop {
        tokio::select! {
            biased;
            // `biased` with the end first, so that a process that has ended is not signalled. The
            // output is read last, because a flood of it must not delay a kill.
            how = command.ended() => break how,
            () = end.kill.cancelled(), if !killed => {
                killed = true;
                // Skip the gentle steps, so that the next deadline only reports a process that has
                // not exited.
                steps.by_ref().for_each(drop);
                command.kill();
                deadline = Some(Instant::now() + STEP * 2);
            }
            () = end.close.cancelled(), if deadline.is_none() => deadline = Some(Instant::now() + STEP),
            // A process that closed its output gets the same shutdown, because no answer can come
            // any more.
            () = end.gone.cancelled(), if deadline.is_none() => deadline = Some(Instant::now() + STEP),
            () = reached(deadline) => match steps.next() {
                Some(step) => {
                    step(&command);
                    deadline = Some(Instant::now() + STEP);
                }
                // The process layer waits this long for the deaths, so wait once more for its
                // report of survivors.
                None if !killed => {
                    killed = true;
                    deadline = Some(Instant::now() + STEP);
                }
                None => break "it was killed but has not exited".to_owned(),
            },
            read = read_some(&mut errors, &mut buffer) => said.take(&buffer[..read]),
        }
    };
    let drained = Instant::now() + DRAIN;
    while errors.is_some() {
        let Ok(read) = timeout_at(drained, read_some(&mut errors, &mut buffer)).await else {
            break;
        };
        said.take(&buffer[..read]);
    }
    how
}

/// Returns the command line of a program and its arguments, quoted so that the shell does not
/// interpret them.
#[cfg(unix)]
pub(super) fn line_of<W: AsRef<str>>(words: impl IntoIterator<Item = W>) -> Result<String, String> {
    let quoted = |word: W| format!("'{}'", word.as_ref().replace('\'', r"'\''"));
    let words: Vec<String> = words.into_iter().map(quoted).collect();
    if words.is_empty() {
        return Err("the command is empty".to_owned());
    }
    // With `exec` the process is the server and not a shell that waits for it.
    Ok(format!("exec {}", words.join(" ")))
}

/// Returns the command line of a program and its arguments. `cmd` interprets some characters even
/// within quotes, so those are refused.
#[cfg(windows)]
pub(super) fn line_of<W: AsRef<str>>(words: impl IntoIterator<Item = W>) -> Result<String, String> {
    let quoted = |word: W| match word.as_ref() {
        word if word.contains(['"', '%', '!']) => Err(format!(
            "the word {word:?} has a character that `cmd` interprets; give the command as one line"
        )),
        word => Ok(format!("\"{word}\"")),
    };
    let words = words.into_iter().map(quoted).collect::<Result<Vec<_>, _>>()?;
    if words.is_empty() {
        return Err("the command is empty".to_owned());
    }
    Ok(words.join(" "))
}
