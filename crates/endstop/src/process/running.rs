//! A running command, which is supervised either by a keeper or by this process itself.
//!
//! ```text
//! let mut starting = Starting::new("make", true)?;
//! starting.command().current_dir("/src"); // set on the keeper, or on the shell itself
//! let (running, exit) = starting.start()?;
//! ```

use super::Orphans;
use super::group::{self, Group};
#[cfg(unix)]
use super::keeper;
#[cfg(unix)]
use super::strays::Mark;
use std::io;
use std::process::{Command, ExitStatus, Stdio};
use tokio::sync::oneshot;

/// Result of a command, as the reaper reports it.
#[derive(Debug)]
pub(super) struct Ended {
    /// Exit status; `None` if the command has not exited or its status is unknown.
    pub(super) status: io::Result<Option<ExitStatus>>,
    /// Process ids of processes that could not be killed.
    pub(super) left: Vec<u32>,
    /// Outcome for its processes if its keeper was killed.
    pub(super) orphans: Option<Orphans>,
}

/// Receives the result after all remaining processes of the command have been killed.
pub(super) type Exit = oneshot::Receiver<Ended>;

/// A command that is prepared but not started.
pub(super) struct Starting {
    command: Command,
    #[cfg(unix)]
    by: By,
}

#[cfg(unix)]
enum By {
    /// Started by a keeper, with the order to send to it.
    Keeper(keeper::Order),
    /// Started by this process.
    Host(Option<Mark>),
}

impl Starting {
    /// Prepares a command line. The command has no input unless [`talk_over`](Self::talk_over)
    /// gives it one. With `hunt_strays`, processes that leave its group are killed too.
    pub(super) fn new(line: &str, hunt_strays: bool) -> io::Result<Starting> {
        #[cfg(unix)]
        {
            let mark = hunt_strays.then(Mark::new);
            if keeper::is_there() {
                let (command, order) = keeper::keeper_for(line, mark)?;
                return Ok(Starting { command, by: By::Keeper(order) });
            }
            let mut command = super::shell(line);
            command.stdin(Stdio::null());
            Ok(Starting { command, by: By::Host(mark) })
        }
        #[cfg(windows)]
        {
            // A process cannot leave a job, so there are no strays to find.
            let _ = hunt_strays;
            let mut command = super::shell(line);
            command.stdin(Stdio::null());
            Ok(Starting { command })
        }
    }

    /// Returns the process that is started first, the keeper or the shell. Its folder, environment
    /// and outputs are inherited by the command.
    pub(super) fn command(&mut self) -> &mut Command {
        &mut self.command
    }

    /// Gives the command this socket as both input and output. It is one socket because a keeper
    /// has only one free descriptor to pass on: its input is the connection to the host.
    #[cfg(all(unix, feature = "mcp"))]
    pub(super) fn talk_over(&mut self, socket: std::os::fd::OwnedFd) -> io::Result<()> {
        match &self.by {
            By::Keeper(_) => drop(self.command.arg(keeper::TALKS)),
            By::Host(_) => drop(self.command.stdin(socket.try_clone()?)),
        }
        self.command.stdout(socket);
        Ok(())
    }

    /// Starts the command.
    pub(super) fn start(self) -> io::Result<(Running, Exit)> {
        #[cfg(unix)]
        let (group, exit) = match self.by {
            By::Host(mark) => group::spawn(self.command, mark)?,
            By::Keeper(order) => {
                let (kept, exit) = keeper::spawn(self.command, order)?;
                return Ok((Running::Kept(kept), exit));
            }
        };
        #[cfg(windows)]
        let (group, exit) = group::spawn(self.command)?;
        Ok((Running::Held(group), exit))
    }
}

/// A running command. Dropping it kills the command at once.
#[derive(Debug)]
pub(super) enum Running {
    /// Supervised by a keeper.
    #[cfg(unix)]
    Kept(keeper::Kept),
    /// Supervised by this process.
    Held(Group),
}

impl Running {
    /// Asks every process of the command's group to end.
    pub(super) fn ask(&self) {
        match self {
            #[cfg(unix)]
            Running::Kept(kept) => kept.ask(),
            Running::Held(group) => group.ask(),
        }
    }

    /// Kills the command and everything that it started.
    pub(super) fn kill(&self) {
        match self {
            #[cfg(unix)]
            Running::Kept(kept) => kept.kill(),
            Running::Held(group) => group.kill(),
        }
    }

    /// Returns the process id of the command, if it is known.
    pub(super) fn leader(&self) -> Option<u32> {
        match self {
            #[cfg(unix)]
            Running::Kept(kept) => kept.leader(),
            Running::Held(group) => group.leader(),
        }
    }
}
