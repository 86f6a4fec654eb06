//! Runs shell commands and kills the whole process tree of a command when it ends.
//!
//! ```
//! use endstop::process::{CommandLine, Stop};
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> std::io::Result<()> {
//! let finished = CommandLine::new("echo out; echo err >&2; exit 3").run(&Stop::never()).await?;
//! assert_eq!(finished.output.text().replace('\r', ""), "out\nerr\n");
//! assert_eq!(finished.how(), "exit status 3");
//! # Ok(()) }
//! ```
//!
//! - Each command runs in its own process group (Windows: a job object). However the command ends,
//!   the rest of its group is then killed, so no background child outlives it.
//! - [`Stop`] asks the whole group to end (SIGTERM) and kills it after a grace period. Dropping the
//!   future kills it at once.
//! - On Linux, children that left the group (`setsid`, daemons) are killed too when the command
//!   ends or is killed. On other systems they are not found.
//! - If this process is killed itself, even with SIGKILL, its commands die with it: on Windows
//!   always, on Unix if its `main` has called [`keeper::serve_if_asked`]. Without that call they
//!   keep running, and children that left the group are found only by a mark in their environment.
//! - If a command kills its [keeper] (the supervisor process between this process and the command),
//!   this process kills the command instead. On Linux all of its processes are found if `main` has
//!   called [`keeper::adopt_orphans`]. [`Orphans`] reports what was not found.
//! - Processes that could not be killed are listed in [`Finished::left`].
//! - The result does not wait for the end of a pipe that another process still holds.
//! - The output of a command is bounded in memory ([`Capture`]). Standard output and standard error
//!   stay in the order in which they came.

mod capture;
mod environment;
#[cfg(unix)]
mod group;
#[cfg(windows)]
#[path = "job.rs"]
mod group;
pub mod keeper;
mod running;
#[cfg(target_os = "linux")]
mod strays;
#[cfg(all(unix, not(target_os = "linux")))]
#[path = "unmarked.rs"]
mod strays;
#[cfg(feature = "mcp")]
mod talk;
#[cfg(target_os = "linux")]
mod tree;

pub use capture::Capture;
#[cfg(feature = "mcp")]
pub(crate) use talk::{Leash, Talk};

/// Prevents other processes of this user from tracing this process and from reading its memory and
/// environment, because both contain the API key of the model. Call it first in `main`.
///
/// On Linux this holds against processes without privileges, which the commands of an agent should
/// be. The process then writes no core dump. On other systems the call does nothing.
pub fn hide_from_other_processes() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        // If the kernel refuses, the process stays as it is; nothing else depends on this.
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    }
}

/// Returns the secrets among this process's environment variables, by name and by value. They must
/// not be written to a journal or a log. The rules are in [the documentation of
/// redaction](endstop_wire::redact#what-is-a-secret).
pub fn environment_secrets() -> endstop_wire::redact::KnownKeys {
    environment::secrets()
}

use running::{Exit, Running, Starting};

use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::process::ChildStdout;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

/// Time to read the pipe after the command has ended. Bounded, because another process may hold the
/// pipe for ever.
const DRAIN: Duration = Duration::from_millis(100);

/// Time to wait for the end of a killed command. Bounded, because a process that hangs in the
/// kernel cannot be killed.
const DEATH: Duration = Duration::from_secs(2);

/// Time to wait for the deaths of a command's remaining processes. Shorter than [`DEATH`], so that
/// the survivors can still be reported.
#[cfg(unix)]
const PATIENCE: Duration = Duration::from_secs(1);

/// Tells a command when to stop, and how.
#[derive(Clone, Debug)]
pub struct Stop {
    /// Asks the command to end. It is killed after the grace period.
    pub ask: CancellationToken,
    /// Kills the command at once, even during its grace period.
    pub kill: CancellationToken,
    /// Time that the command has to end after it was asked. Zero: it is killed without being asked.
    pub grace: Duration,
}

impl Stop {
    /// Returns a `Stop` that is never triggered: the command runs until it ends by itself.
    pub fn never() -> Stop {
        Stop {
            ask: CancellationToken::new(),
            kill: CancellationToken::new(),
            grace: Duration::ZERO,
        }
    }
}

/// A shell command line and how to run it.
#[derive(Clone, Debug)]
pub struct CommandLine {
    line: String,
    dir: Option<PathBuf>,
    allowed: Vec<String>,
    whole_environment: bool,
    hunt_strays: bool,
}

/// Result of a command that has ended.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Exit status. `None` if the command was killed but has not exited (it is then in `left`), or
    /// if the status is unknown because the [keeper] was killed.
    pub status: Option<ExitStatus>,
    /// Standard output and standard error, in the order in which they came.
    pub output: Capture,
    /// `true` if the command was asked to end or killed, `false` if it ended by itself.
    pub stopped: bool,
    /// `true` if another process still held the pipe when reading ended, so that output may be
    /// missing.
    pub pipe_held: bool,
    /// Process ids of processes that could not be killed: a process that hangs in the kernel, or
    /// one of another user (`sudo`). Empty if all processes that were found have died.
    pub left: Vec<u32>,
    /// Outcome for the remaining processes if the [keeper] was killed or stopped.
    pub orphans: Option<Orphans>,
}

/// Outcome for the processes of a command whose [keeper] was killed or stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Orphans {
    /// Number of processes that were found and killed.
    pub killed: usize,
    /// `true` if none can have been missed. `false`: processes that left the command's session and
    /// carry no mark may still run.
    pub all_found: bool,
}

impl CommandLine {
    /// Creates a command line for `sh -c` (Windows: `cmd /C`).
    pub fn new(line: impl Into<String>) -> CommandLine {
        CommandLine {
            line: line.into(),
            dir: None,
            allowed: Vec::new(),
            whole_environment: false,
            hunt_strays: true,
        }
    }

    /// Runs the command in this folder.
    #[must_use]
    pub fn in_dir(mut self, dir: impl Into<PathBuf>) -> CommandLine {
        self.dir = Some(dir.into());
        self
    }

    /// Lets the command see an environment variable that looks like a secret.
    #[must_use]
    pub fn allow_variable(mut self, name: impl Into<String>) -> CommandLine {
        self.allowed.push(name.into());
        self
    }

    /// Lets the command see the whole environment. For commands that the user wrote, not the model.
    #[must_use]
    pub fn whole_environment(mut self) -> CommandLine {
        self.whole_environment = true;
        self
    }

    /// Lets daemons that the command starts outside its process group keep running.
    #[must_use]
    pub fn leave_daemons(mut self) -> CommandLine {
        self.hunt_strays = false;
        self
    }

    /// Runs the command to its end, or until it is stopped.
    ///
    /// # Errors
    /// The command could not be started; the message states the reason. A failed command is not an
    /// error.
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O and time.
    pub async fn run(&self, stop: &Stop) -> io::Result<Finished> {
        let mut finished = Finished {
            status: None,
            output: Capture::default(),
            stopped: false,
            pipe_held: false,
            left: Vec::new(),
            orphans: None,
        };
        // One pipe for both outputs keeps their order.
        let (ours, theirs) = io::pipe()?;
        let mut pipe = Some(ChildStdout::from_std(into_stdout(ours))?);
        let (running, mut exit) = self.spawn(theirs)?;

        let mut buffer = vec![0; 16 * 1024];
        let mut killed = false;
        let mut deadline: Option<Instant> = None;
        let ended = loop {
            tokio::select! {
                biased;
                // First: an end that coincides with a stop counts as an end, with its exit status.
                ended = &mut exit => break Some(ended),
                () = stop.kill.cancelled(), if !killed => {
                    finished.stopped = true;
                    killed = true;
                    running.kill();
                    deadline = Some(Instant::now() + DEATH);
                }
                () = stop.ask.cancelled(), if !finished.stopped => {
                    finished.stopped = true;
                    if stop.grace.is_zero() {
                        killed = true;
                        running.kill();
                        deadline = Some(Instant::now() + DEATH);
                    } else {
                        running.ask();
                        deadline = Some(Instant::now() + stop.grace);
                    }
                }
                () = reached(deadline) => {
                    // The command survived a kill for `DEATH`, so it hangs in the kernel. Do not
                    // wait longer.
                    if killed {
                        break None;
                    }
                    killed = true;
                    running.kill();
                    deadline = Some(Instant::now() + DEATH);
                }
                read = read_some(&mut pipe, &mut buffer) => finished.output.take(&buffer[..read]),
            }
        };
        match ended {
            Some(Ok(ended)) => {
                finished.status = ended.status?;
                finished.left = ended.left;
                finished.orphans = ended.orphans;
            }
            Some(Err(_)) => return Err(io::Error::other("the reaper thread has ended")),
            None => finished.left.extend(running.leader()),
        }
        // The group is dead. Read what is left in the pipe, but not for ever.
        let end = Instant::now() + DRAIN;
        while pipe.is_some() {
            let Ok(read) = timeout_at(end, read_some(&mut pipe, &mut buffer)).await else {
                finished.pipe_held = true;
                break;
            };
            finished.output.take(&buffer[..read]);
        }
        Ok(finished)
    }

    fn spawn(&self, output: io::PipeWriter) -> io::Result<(Running, Exit)> {
        let mut starting = self.starting()?;
        starting.command().stdout(output.try_clone()?).stderr(output);
        // `start` consumes the command and with it our copies of the writing end. A copy that
        // stayed open would keep the pipe from ending.
        starting.start()
    }

    /// Prepares the command with its folder and its environment.
    fn starting(&self) -> io::Result<Starting> {
        let mut starting = Starting::new(&self.line, self.hunt_strays)?;
        let command = starting.command();
        if let Some(dir) = &self.dir {
            // The system's error does not say whether the program or the folder is missing.
            if !dir.is_dir() {
                let problem = format!("the working folder {} does not exist", dir.display());
                return Err(io::Error::new(io::ErrorKind::NotFound, problem));
            }
            command.current_dir(dir);
        }
        if !self.whole_environment {
            for name in environment::withheld(&self.allowed) {
                command.env_remove(name);
            }
        }
        Ok(starting)
    }
}

impl Finished {
    /// Returns `true` if the command ended by itself with a successful exit status.
    pub fn success(&self) -> bool {
        !self.stopped && self.status.is_some_and(|status| status.success())
    }

    /// Returns `true` if the command ended by itself with any exit status.
    pub fn exited(&self) -> bool {
        !self.stopped && self.status.is_some_and(|status| status.code().is_some())
    }

    /// Describes how the command ended, for example `exit status 3` or `killed by signal 9`.
    pub fn how(&self) -> String {
        how(self.status, &self.left, self.orphans)
    }
}

/// Describes how a command ended.
fn how(status: Option<ExitStatus>, left: &[u32], orphans: Option<Orphans>) -> String {
    let Some(status) = status else {
        let Some(Orphans { killed, all_found }) = orphans else {
            return "it was killed but has not exited".to_owned();
        };
        let killed = match killed {
            0 => "none of its processes was found".to_owned(),
            1 => "1 of its processes was killed".to_owned(),
            n => format!("{n} of its processes were killed"),
        };
        // Processes that could not be killed are listed separately, so they are not mentioned
        // again.
        let missed = if all_found || !left.is_empty() { "" } else { ", others may still run" };
        return format!("killed with its keeper: {killed}{missed}");
    };
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return format!("killed by signal {signal}");
    }
    status.code().map_or_else(|| status.to_string(), |code| format!("exit status {code}"))
}

#[cfg(unix)]
fn shell(line: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(line);
    command
}

#[cfg(windows)]
fn shell(line: &str) -> Command {
    use std::os::windows::process::CommandExt;
    let mut command = Command::new("cmd");
    // `cmd` parses its command line by its own rules, so the line must not be quoted as an
    // argument.
    command.arg("/D").arg("/S").arg("/C").raw_arg(format!("\"{line}\""));
    command
}

#[cfg(unix)]
fn into_stdout(pipe: io::PipeReader) -> std::process::ChildStdout {
    std::os::fd::OwnedFd::from(pipe).into()
}

#[cfg(windows)]
fn into_stdout(pipe: io::PipeReader) -> std::process::ChildStdout {
    std::os::windows::io::OwnedHandle::from(pipe).into()
}

pub(crate) async fn reached(deadline: Option<Instant>) {
    match deadline {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Reads the available bytes. Closes the pipe at its end; after that, the future never completes,
/// so that a `select!` ignores it.
pub(crate) async fn read_some(pipe: &mut Option<ChildStdout>, buffer: &mut [u8]) -> usize {
    let Some(reader) = pipe else { return std::future::pending().await };
    match reader.read(buffer).await {
        Ok(0) | Err(_) => {
            *pipe = None;
            0
        }
        Ok(read) => read,
    }
}
