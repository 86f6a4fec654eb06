//! Command lines that die whole: nothing that a command started outlives it.
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
//! - A command runs in a process group of its own (Windows: a job object). When it ends, however
//!   it ends, whoever is left of its group is killed: a background child does not outlive it.
//! - [`Stop`] asks the whole group to end (SIGTERM) and kills it after a grace. Dropping the
//!   future kills it at once.
//! - On Linux, children that left the group (`setsid`, daemons) are killed too when the command has
//!   ended or is killed; elsewhere they are not found.
//! - Where this process is killed itself, also with SIGKILL, its commands die with it: on Unix if
//!   its `main` has called [`keeper::serve_if_asked`], on Windows always. Without that call they
//!   go on, and children that left the group are found by a mark in their environment alone.
//! - A command that kills its keeper is killed by this process; all of it is found on Linux once
//!   `main` has called [`keeper::adopt_orphans`]. What was not found is reported ([`Orphans`]).
//! - Who could not be killed is named ([`Finished::left`]).
//! - The result never waits for the end of a pipe that somebody else still holds.
//! - What a command prints is bounded in memory ([`Capture`]), in the order in which it came.

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

/// Keeps other processes of this user from reading this process's memory and its environment, and from
/// tracing it: the key that pays for the model is in both. Call it first in `main`.
///
/// On Linux this holds against processes without privileges, as the commands of an agent should be; the
/// process leaves no core dump then. Elsewhere it does nothing.
pub fn hide_from_other_processes() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        // A kernel that refuses it leaves the process as it is: nothing else depends on it.
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    }
}

/// The secrets among this process's variables, by name and by value: what a journal or a log must not
/// have. What counts is [written there](endstop_wire::redact#what-is-a-secret).
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

/// How long the pipe is read after the command has ended: somebody else may hold it for ever.
const DRAIN: Duration = Duration::from_millis(100);

/// How long a killed command is waited for: one that hangs in the kernel cannot be killed.
const DEATH: Duration = Duration::from_secs(2);

/// How long whoever kills what a command has left waits for the deaths; less than [`DEATH`], so that
/// it can say who did not die.
#[cfg(unix)]
const PATIENCE: Duration = Duration::from_secs(1);

/// When a command must stop, and how.
#[derive(Clone, Debug)]
pub struct Stop {
    /// Asks it to end; after the grace it is killed.
    pub ask: CancellationToken,
    /// Kills it at once, also in the middle of its grace.
    pub kill: CancellationToken,
    /// How long it has to end once it was asked; zero: it is not asked, but killed.
    pub grace: Duration,
}

impl Stop {
    /// It runs until it ends by itself.
    pub fn never() -> Stop {
        Stop {
            ask: CancellationToken::new(),
            kill: CancellationToken::new(),
            grace: Duration::ZERO,
        }
    }
}

/// A command line and how it is run.
#[derive(Clone, Debug)]
pub struct CommandLine {
    line: String,
    dir: Option<PathBuf>,
    allowed: Vec<String>,
    whole_environment: bool,
    hunt_strays: bool,
}

/// How a command ended.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Its exit status. `None`: it was killed but has not exited (then it is among `left`), or nobody
    /// knows how it ended, since its [keeper] was killed.
    pub status: Option<ExitStatus>,
    /// What it printed: standard output and standard error as they came.
    pub output: Capture,
    /// Whether it was stopped, not only done.
    pub stopped: bool,
    /// Whether its output may have gone on: somebody still held the pipe when reading ended.
    pub pipe_held: bool,
    /// Who could not be killed, by process number: a process that hangs in the kernel, or that is
    /// another user's (`sudo`). Empty: nobody is left that was found.
    pub left: Vec<u32>,
    /// What became of its processes, if its [keeper] was killed or stopped.
    pub orphans: Option<Orphans>,
}

/// What became of the processes of a command whose [keeper] was killed or stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Orphans {
    /// How many of them were found and killed.
    pub killed: usize,
    /// Whether none can have been missed. `false`: those that have left the command's session, and
    /// that carry no mark, may still run.
    pub all_found: bool,
}

impl CommandLine {
    /// A command line for `sh -c` (Windows: `cmd /C`).
    pub fn new(line: impl Into<String>) -> CommandLine {
        CommandLine {
            line: line.into(),
            dir: None,
            allowed: Vec::new(),
            whole_environment: false,
            hunt_strays: true,
        }
    }

    /// Runs it in this folder.
    #[must_use]
    pub fn in_dir(mut self, dir: impl Into<PathBuf>) -> CommandLine {
        self.dir = Some(dir.into());
        self
    }

    /// Lets it see a variable of the environment whose name looks like a secret.
    #[must_use]
    pub fn allow_variable(mut self, name: impl Into<String>) -> CommandLine {
        self.allowed.push(name.into());
        self
    }

    /// Lets it see the whole environment: for a command of the user's own, not of a model's.
    #[must_use]
    pub fn whole_environment(mut self) -> CommandLine {
        self.whole_environment = true;
        self
    }

    /// Lets daemons that it starts outside its process group live on.
    #[must_use]
    pub fn leave_daemons(mut self) -> CommandLine {
        self.hunt_strays = false;
        self
    }

    /// Runs it to its end, or until it is stopped.
    ///
    /// # Errors
    /// It could not be started; the message names the reason. How it ended is no error.
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
        // The group is dead; what is still in the pipe is read, and it is closed.
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
        // The command, and with it our copies of the writing end, are dropped in there.
        starting.start()
    }

    /// It, in its folder and with its environment.
    fn starting(&self) -> io::Result<Starting> {
        let mut starting = Starting::new(&self.line, self.hunt_strays)?;
        let command = starting.command();
        if let Some(dir) = &self.dir {
            // The system's message would not say that it is the folder which is missing.
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
    /// Whether it ended by itself and says that it succeeded.
    pub fn success(&self) -> bool {
        !self.stopped && self.status.is_some_and(|status| status.success())
    }

    /// Whether it ran to its own end, with whatever exit status.
    pub fn exited(&self) -> bool {
        !self.stopped && self.status.is_some_and(|status| status.code().is_some())
    }

    /// How it ended, in words: `exit status 3`, `killed by signal 9`.
    pub fn how(&self) -> String {
        how(self.status, &self.left, self.orphans)
    }
}

/// How a command ended, in words.
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
        // Those that could not be killed are named on their own.
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
    // `cmd` reads the rest of its line by its own rules: it must not be quoted for it.
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

/// Reads what there is. At the end of the pipe it is closed; further reads never return.
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
