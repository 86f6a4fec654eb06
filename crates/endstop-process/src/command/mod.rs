//! A shell command line: how it is run, and how it is stopped.
//!
//! ```text
//! let finished = CommandLine::new("make").in_dir("/src").run(&StopTokens::never()).await?;
//! ```

pub(crate) mod capture;
pub(crate) mod environment;
pub(crate) mod finished;
pub mod pipe;
pub(crate) mod running;
pub(crate) mod stop;
pub mod talk;

use crate::command::capture::Capture;
use crate::command::finished::Finished;
use crate::command::pipe::{into_stdout, reached, read_some};
use crate::command::running::{Running, Starting};
use crate::command::stop::StopTokens;
use crate::ended::Exit;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use tokio::process::ChildStdout;
use tokio::time::{Instant, timeout_at};

/// Time to read the pipe after the command has ended. Bounded, because another process may hold the
/// pipe for ever.
const DRAIN: Duration = Duration::from_millis(100);

/// Time to wait for the end of a killed command. Bounded, because a process that hangs in the
/// kernel cannot be killed.
const DEATH: Duration = Duration::from_secs(2);

/// A shell command line and how to run it.
#[derive(Clone)]
pub struct CommandLine {
    line: String,
    dir: Option<PathBuf>,
    allowed: Vec<String>,
    /// Variables of this command only, with their values.
    variables: Vec<(String, String)>,
    whole_environment: bool,
    hunt_orphans: bool,
}

impl CommandLine {
    /// Creates a command line for `sh -c` (Windows: `cmd /C`).
    pub fn new(line: impl Into<String>) -> CommandLine {
        CommandLine {
            line: line.into(),
            dir: None,
            allowed: Vec::new(),
            variables: Vec::new(),
            whole_environment: false,
            hunt_orphans: true,
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

    /// Sets an environment variable for this command. A value that looks like a secret reaches the
    /// command, too, because the caller named it.
    #[must_use]
    pub fn variable(mut self, name: impl Into<String>, value: impl Into<String>) -> CommandLine {
        self.variables.push((name.into(), value.into()));
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
        self.hunt_orphans = false;
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
    pub async fn run(&self, stop: &StopTokens) -> io::Result<Finished> {
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
    pub(crate) fn starting(&self) -> io::Result<Starting> {
        let mut starting = Starting::new(&self.line, self.hunt_orphans)?;
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
        // After the removal, because a variable set here may have the name of a withheld one.
        for (name, value) in &self.variables {
            // The system ends a name at `=` and a value at NUL, so another variable would be set.
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                let problem = format!("invalid environment variable {name:?}");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
            }
            command.env(name, value);
        }
        Ok(starting)
    }
}

impl fmt::Debug for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Only the names of the variables: their values may be keys.
        let names: Vec<&str> = self.variables.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("CommandLine")
            .field("line", &self.line)
            .field("dir", &self.dir)
            .field("allowed", &self.allowed)
            .field("variables", &names)
            .field("whole_environment", &self.whole_environment)
            .field("hunt_orphans", &self.hunt_orphans)
            .finish()
    }
}
