//! An agent program that shares the terminal of this process, for example a coding agent.
//!
//! ```
//! use endstop_process::AgentProgram;
//! use std::time::Duration;
//!
//! async fn guarded(url: &str) -> std::io::Result<()> {
//!     let program = AgentProgram::new("claude", "run-1").env("ANTHROPIC_BASE_URL", url);
//!     let mut agent = program.start()?;
//!     tokio::select! {
//!         ended = agent.wait() => println!("{}", ended?.how()),
//!         () = tokio::time::sleep(Duration::from_secs(3600)) => {
//!             // SIGINT to every process, two seconds later SIGTERM, then SIGKILL.
//!             println!("{}", agent.stop(Duration::from_secs(2)).await?.how());
//!         }
//!     }
//!     Ok(())
//! }
//! ```
//!
//! The program has the standard streams, the working folder and the process group of this process.
//! It reads keys, and Ctrl-C reaches both. If job control stops the program alone, this process
//! stops too, so that the shell gets its terminal back.
//!
//! Every process that the program starts inherits `ENDSTOP_RUN` with the id of the run. On Linux all
//! of them are found, by this mark or by their descent, also tools in sessions of their own. On
//! other Unix systems only the program itself is known. On Windows it runs in a job, which can only
//! be killed.
//!
//! If this process is killed, even with SIGKILL, all processes of the program are killed.

use crate::command::finished;
use crate::command::running::Running;
use crate::ended::{Exit, Orphans};
use crate::tree::survivor::Survivor;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::Duration;
use tokio::time::timeout;

/// Time to wait for the end of a killed program. Longer than the time that the keeper has for its
/// work and the host for its own.
const DEATH: Duration = Duration::from_secs(4);

/// A program to start, with its arguments and its environment.
#[derive(Clone, Debug)]
pub struct AgentProgram {
    words: Vec<OsString>,
    run: OsString,
    set: Vec<(OsString, OsString)>,
    removed: Vec<OsString>,
    dir: Option<PathBuf>,
    temporary: Option<PathBuf>,
}

impl AgentProgram {
    /// Names the program and the id of its run. The id marks its processes, so it must be unique.
    pub fn new(program: impl Into<OsString>, run: impl Into<OsString>) -> AgentProgram {
        AgentProgram {
            words: vec![program.into()],
            run: run.into(),
            set: Vec::new(),
            removed: Vec::new(),
            dir: None,
            temporary: None,
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.words.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Sets a variable of its environment. The other variables are those of this process.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.set.push((name.into(), value.into()));
        self
    }

    /// Removes a variable from its environment.
    #[must_use]
    pub fn env_remove(mut self, name: impl Into<OsString>) -> Self {
        self.removed.push(name.into());
        self
    }

    /// Starts the program in this folder.
    #[must_use]
    pub fn in_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = Some(dir.into());
        self
    }

    /// Removes this folder with its contents when the program has ended, also if this process is
    /// killed. (Windows: only the caller can remove it.)
    #[must_use]
    pub fn removes(mut self, folder: impl Into<PathBuf>) -> Self {
        self.temporary = Some(folder.into());
        self
    }

    /// Starts the program.
    ///
    /// A program that does not exist is reported by [`AgentProcess::wait`], because the keeper
    /// starts it.
    ///
    /// # Errors
    /// The id of the run is empty or contains a NUL character; an argument contains one; the folder
    /// does not exist; `main` has not called
    /// [`serve_if_asked`](crate::keeper::serve_if_asked); or the keeper could not be started.
    pub fn start(&self) -> io::Result<AgentProcess> {
        let problem = |problem: &str| io::Error::new(io::ErrorKind::InvalidInput, problem);
        if self.run.is_empty() || self.run == "-" || has_nul(&self.run) {
            return Err(problem("invalid id of the run: expected text without NUL characters"));
        }
        if let Some(dir) = self.dir.as_ref().filter(|dir| !dir.is_dir()) {
            let missing = format!("the working folder {} does not exist", dir.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, missing));
        }
        let (running, exit) = self.spawn()?;
        Ok(AgentProcess { running, exit, end: None })
    }

    /// Sets the folder and the variables on the process that is started first. The program inherits
    /// them.
    fn prepare(&self, command: &mut Command) {
        for name in &self.removed {
            command.env_remove(name);
        }
        command.envs(self.set.iter().map(|(name, value)| (name, value)));
        if let Some(dir) = &self.dir {
            command.current_dir(dir);
        }
    }

    #[cfg(unix)]
    fn spawn(&self) -> io::Result<(Running, Exit)> {
        use crate::keeper;
        let mark = crate::tree::orphans::Mark::of_run(self.run.clone());
        let (mut command, order) =
            keeper::keeper_of_agent(&self.words, self.temporary.as_deref(), mark)?;
        self.prepare(&mut command);
        let (kept, exit) = keeper::spawn(command, order)?;
        Ok((Running::Kept(kept), exit))
    }

    #[cfg(windows)]
    fn spawn(&self) -> io::Result<(Running, Exit)> {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).env("ENDSTOP_RUN", &self.run);
        self.prepare(&mut command);
        // There is no keeper that could remove it.
        let _ = &self.temporary;
        let (group, exit) = crate::tree::group::spawn(command)?;
        Ok((Running::Held(group), exit))
    }
}

fn has_nul(text: &OsStr) -> bool {
    text.as_encoded_bytes().contains(&0)
}

/// A running agent program. Dropping it kills all of its processes at once.
#[derive(Debug)]
pub struct AgentProcess {
    running: Running,
    exit: Exit,
    end: Option<AgentEnd>,
}

impl AgentProcess {
    /// Returns the process id of the program, once it is known.
    pub fn pid(&self) -> Option<u32> {
        self.running.leader()
    }

    /// Waits until the program has ended and none of its processes is left. Processes that outlive
    /// the program get SIGTERM, and two seconds later SIGKILL.
    ///
    /// The future may be dropped and the method called again.
    ///
    /// # Errors
    /// The program could not be started; the message states the reason.
    pub async fn wait(&mut self) -> io::Result<AgentEnd> {
        if let Some(end) = &self.end {
            return Ok(end.clone());
        }
        let ended = (&mut self.exit)
            .await
            .map_err(|_| io::Error::other("the program could not be started"))?;
        let end = AgentEnd {
            status: ended.status?,
            survivors: ended.left.into_iter().map(Survivor::of).collect(),
            stopped_by: None,
            orphans: ended.orphans,
        };
        Ok(self.end.insert(end).clone())
    }

    /// Ends the program and all of its processes: SIGINT, after `grace` SIGTERM, after `grace`
    /// SIGKILL, until none is left. Returns as soon as none is left.
    ///
    /// Windows has no such signals, so there the program is killed at once.
    ///
    /// # Errors
    /// The program could not be started; the message states the reason.
    pub async fn stop(&mut self, grace: Duration) -> io::Result<AgentEnd> {
        for step in [StopStep::Interrupt, StopStep::Terminate, StopStep::Kill] {
            let wait = match step {
                StopStep::Interrupt | StopStep::Terminate if cfg!(windows) => continue,
                StopStep::Interrupt => {
                    self.running.interrupt();
                    grace
                }
                StopStep::Terminate => {
                    self.running.ask();
                    grace
                }
                StopStep::Kill => {
                    self.running.kill();
                    DEATH
                }
            };
            if let Ok(end) = timeout(wait, self.wait()).await {
                return end.map(|end| AgentEnd { stopped_by: Some(step), ..end });
            }
        }
        Ok(self.immortal())
    }

    /// Kills the program and all of its processes at once.
    ///
    /// # Errors
    /// The program could not be started; the message states the reason.
    pub async fn kill(&mut self) -> io::Result<AgentEnd> {
        self.running.kill();
        match timeout(DEATH, self.wait()).await {
            Ok(end) => end.map(|end| AgentEnd { stopped_by: Some(StopStep::Kill), ..end }),
            Err(_) => Ok(self.immortal()),
        }
    }

    /// Returns the end of a program whose keeper could not be killed.
    fn immortal(&self) -> AgentEnd {
        let survivors = self.pid().into_iter().map(Survivor::of).collect();
        AgentEnd { status: None, survivors, stopped_by: Some(StopStep::Kill), orphans: None }
    }
}

/// A step of [`AgentProcess::stop`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopStep {
    /// SIGINT to every process.
    Interrupt,
    /// SIGTERM to every process.
    Terminate,
    /// SIGKILL to every process.
    Kill,
}

/// Exit status of an agent program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentExit {
    /// The program has exited with this status.
    Code(i32),
    /// The program was ended by this signal.
    Signal(i32),
    /// The status is unknown, because the program has not exited or its keeper was killed.
    Unknown,
}

/// The end of an agent program and of its processes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AgentEnd {
    /// Exit status of the program; `None` if it has not exited or its keeper was killed.
    pub status: Option<ExitStatus>,
    /// Processes that could not be killed.
    pub survivors: Vec<Survivor>,
    /// The last step that was necessary to end it; `None` if it has ended by itself.
    pub stopped_by: Option<StopStep>,
    /// Outcome for the processes if the [keeper](crate::keeper) was killed or stopped.
    pub orphans: Option<Orphans>,
}

impl AgentEnd {
    /// Returns the exit status as a number or a signal.
    pub fn exit(&self) -> AgentExit {
        let Some(status) = self.status else { return AgentExit::Unknown };
        #[cfg(unix)]
        if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
            return AgentExit::Signal(signal);
        }
        status.code().map_or(AgentExit::Unknown, AgentExit::Code)
    }

    /// Describes the end, for example `exit status 3` or `killed by signal 9`.
    pub fn how(&self) -> String {
        let left: Vec<u32> = self.survivors.iter().map(|survivor| survivor.pid).collect();
        finished::how(self.status, &left, self.orphans)
    }
}
