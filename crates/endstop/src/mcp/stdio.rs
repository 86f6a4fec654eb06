//! The process of a server: started, heard, ended.
//!
//! ```text
//! let (process, lines) = Process::start(line, dir, &allowed, gone)?;
//! process.said.short(); // what it complained of
//! process.close().await; // its input ends, it is asked, it is killed
//! ```

use super::lines::Lines;
use crate::process::{Capture, CommandLine, Leash, Talk, reached, read_some};
use endstop_wire::redact::excerpt;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::process::ChildStdout;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};

/// How long a process has at each step to its end: without input, asked, killed.
const STEP: Duration = Duration::from_secs(1);

/// How long its complaints are read after it has ended: somebody else may hold the pipe.
const DRAIN: Duration = Duration::from_millis(100);

/// How much of each end of its complaints is kept.
const KEEP: usize = 240;

/// The process of a server. Dropping it kills the process.
pub(super) struct Process {
    pub(super) said: Said,
    /// Its input is to end.
    pub(super) closing: CancellationToken,
    /// It is to end.
    close: CancellationToken,
    ended: Arc<OnceLock<String>>,
    over: CancellationToken,
    kill: DropGuard,
}

/// What a process complained of, in short.
#[derive(Clone)]
pub(super) struct Said(Arc<Mutex<Capture>>);

impl Said {
    pub(super) fn take(&self, bytes: &[u8]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take(bytes);
    }

    /// Its words, without credentials; nothing where it said nothing.
    pub(super) fn short(&self) -> Option<String> {
        let text = self.0.lock().unwrap_or_else(PoisonError::into_inner).text();
        Some(excerpt(text.trim())).filter(|text| !text.is_empty())
    }
}

impl Process {
    /// Starts it. `gone`: nothing comes from it any more.
    pub(super) fn start(
        line: &str,
        dir: Option<&Path>,
        allowed: &[String],
        gone: CancellationToken,
    ) -> io::Result<(Process, Lines)> {
        let mut command = CommandLine::new(line);
        if let Some(dir) = dir {
            command = command.in_dir(dir);
        }
        let command = allowed.iter().fold(command, CommandLine::allow_variable);
        let Talk { leash, input, output, errors } = command.talk()?;
        let said = Said(Arc::new(Mutex::new(Capture::keeping(KEEP))));
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
            let how = hold(leash, errors, &said, &end).await;
            // It is set here alone.
            let _ = ended.set(how);
            over.cancel();
        };
        #[expect(clippy::disallowed_methods, reason = "a server outlives a run; it ends with it")]
        tokio::spawn(holding);
        Ok((process, lines))
    }

    /// How it ended, where it has or does so very soon.
    pub(super) async fn ended(&self) -> Option<&str> {
        let _ = timeout(STEP / 4, self.over.cancelled()).await;
        self.ended.get().map(String::as_str)
    }

    /// Kills it; returns when it is gone.
    pub(super) async fn kill(self) -> Said {
        self.kill.disarm().cancel();
        self.over.cancelled().await;
        self.said
    }

    /// Ends it; returns when it is gone.
    pub(super) async fn close(&self) {
        self.closing.cancel();
        self.close.cancel();
        self.over.cancelled().await;
    }
}

/// Why a process is to end.
struct End {
    close: CancellationToken,
    gone: CancellationToken,
    kill: CancellationToken,
}

/// Holds a process to its end, and says how it ended.
async fn hold(mut leash: Leash, errors: ChildStdout, said: &Said, end: &End) -> String {
    let mut buffer = vec![0; 4096];
    let mut errors = Some(errors);
    let mut deadline: Option<Instant> = None;
    let mut steps = [Leash::ask as fn(&Leash), Leash::kill].into_iter();
    let mut killed = false;
    let how = loop {
        tokio::select! {
            biased;
            how = leash.ended() => break how,
            () = end.kill.cancelled(), if !killed => {
                killed = true;
                steps.by_ref().for_each(drop);
                leash.kill();
                deadline = Some(Instant::now() + STEP * 2);
            }
            () = end.close.cancelled(), if deadline.is_none() => deadline = Some(Instant::now() + STEP),
            () = end.gone.cancelled(), if deadline.is_none() => deadline = Some(Instant::now() + STEP),
            () = reached(deadline) => match steps.next() {
                Some(step) => {
                    step(&leash);
                    deadline = Some(Instant::now() + STEP);
                }
                // Whoever kills what a command has left waits as long, and says who did not die.
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

/// A command line of a program and its arguments, none of which the shell reads.
#[cfg(unix)]
pub(super) fn line_of<W: AsRef<str>>(words: impl IntoIterator<Item = W>) -> Result<String, String> {
    let quoted = |word: W| format!("'{}'", word.as_ref().replace('\'', r"'\''"));
    let words: Vec<String> = words.into_iter().map(quoted).collect();
    if words.is_empty() {
        return Err("the command is empty".to_owned());
    }
    // The process is the server then, and not a shell that waits for it.
    Ok(format!("exec {}", words.join(" ")))
}

/// A command line of a program and its arguments. `cmd` reads some characters also within quotes.
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
