//! A command under way, held by its keeper or by this process itself.
//!
//! ```text
//! let mut starting = Starting::new("make", true)?;
//! starting.command().current_dir("/src"); // of the keeper, or of the shell itself
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

/// How a command ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// Its status; `None`: it did not die, or nobody knows.
    pub(super) status: io::Result<Option<ExitStatus>>,
    /// The numbers of those that could not be killed.
    pub(super) left: Vec<u32>,
    /// What became of its processes where its keeper was killed.
    pub(super) orphans: Option<Orphans>,
}

/// The end, told once all that is left of the command has been killed.
pub(super) type Exit = oneshot::Receiver<Ended>;

/// A command that has not started.
pub(super) struct Starting {
    command: Command,
    #[cfg(unix)]
    by: By,
}

#[cfg(unix)]
enum By {
    /// A keeper, and what it is to be told.
    Keeper(keeper::Order),
    /// This process.
    Host(Option<Mark>),
}

impl Starting {
    /// A command line, to be run without input unless it is given one. `hunt_strays`: also those who leave its group die.
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
            // Nobody leaves a job: there are no strays to hunt.
            let _ = hunt_strays;
            let mut command = super::shell(line);
            command.stdin(Stdio::null());
            Ok(Starting { command })
        }
    }

    /// What is started first: the folder, the environment and the outputs that it is given are the
    /// command's.
    pub(super) fn command(&mut self) -> &mut Command {
        &mut self.command
    }

    /// Gives it this both to read from and to write to. It is one socket: a keeper has but one
    /// descriptor left to hand on.
    #[cfg(all(unix, feature = "mcp"))]
    pub(super) fn talk_over(&mut self, socket: std::os::fd::OwnedFd) -> io::Result<()> {
        match &self.by {
            By::Keeper(_) => drop(self.command.arg(keeper::TALKS)),
            By::Host(_) => drop(self.command.stdin(socket.try_clone()?)),
        }
        self.command.stdout(socket);
        Ok(())
    }

    /// Starts it.
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

/// A command under way; dropping it kills it at once.
#[derive(Debug)]
pub(super) enum Running {
    /// By its keeper.
    #[cfg(unix)]
    Kept(keeper::Kept),
    /// By this process.
    Held(Group),
}

impl Running {
    /// Asks every process of its group to end.
    pub(super) fn ask(&self) {
        match self {
            #[cfg(unix)]
            Running::Kept(kept) => kept.ask(),
            Running::Held(group) => group.ask(),
        }
    }

    /// Kills it and all that it started.
    pub(super) fn kill(&self) {
        match self {
            #[cfg(unix)]
            Running::Kept(kept) => kept.kill(),
            Running::Held(group) => group.kill(),
        }
    }

    /// Its process number, as far as it is known.
    pub(super) fn leader(&self) -> Option<u32> {
        match self {
            #[cfg(unix)]
            Running::Kept(kept) => kept.leader(),
            Running::Held(group) => group.leader(),
        }
    }
}
