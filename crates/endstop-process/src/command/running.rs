//! A running command, which is supervised either by a keeper or by this process itself.
//!
//! ```text
//! let mut starting = Starting::new("make", true)?;
//! starting.command().current_dir("/src"); // set on the keeper, or on the shell itself
//! let (running, exit) = starting.start()?;
//! ```

use crate::ended::Exit;
#[cfg(unix)]
use crate::keeper;
use crate::shell::shell;
use crate::tree::group::{self, Group};
#[cfg(unix)]
use crate::tree::orphans::Mark;
use std::io;
use std::process::{Command, Stdio};

/// A command that is prepared but not started.
pub(crate) struct Starting {
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
    /// gives it one. With `hunt_orphans`, processes that leave its group are killed too.
    pub(crate) fn new(line: &str, hunt_orphans: bool) -> io::Result<Starting> {
        #[cfg(unix)]
        {
            let mark = hunt_orphans.then(Mark::new);
            if keeper::is_there() {
                let (command, order) = keeper::keeper_for(line, mark)?;
                return Ok(Starting { command, by: By::Keeper(order) });
            }
            let mut command = shell(line);
            command.stdin(Stdio::null());
            Ok(Starting { command, by: By::Host(mark) })
        }
        #[cfg(windows)]
        {
            // A process cannot leave a job, so no process is left to find.
            let _ = hunt_orphans;
            let mut command = shell(line);
            command.stdin(Stdio::null());
            Ok(Starting { command })
        }
    }

    /// Returns the process that is started first, the keeper or the shell. Its folder, environment
    /// and outputs are inherited by the command.
    pub(crate) fn command(&mut self) -> &mut Command {
        &mut self.command
    }

    /// Gives the command this socket as both input and output. It is one socket because a keeper
    /// has only one free descriptor to pass on: its input is the connection to the host.
    #[cfg(unix)]
    pub(crate) fn talk_over(&mut self, socket: std::os::fd::OwnedFd) -> io::Result<()> {
        match &self.by {
            By::Keeper(_) => drop(self.command.arg(keeper::TALKS)),
            By::Host(_) => drop(self.command.stdin(socket.try_clone()?)),
        }
        self.command.stdout(socket);
        Ok(())
    }

    /// Starts the command.
    pub(crate) fn start(self) -> io::Result<(Running, Exit)> {
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
pub(crate) enum Running {
    /// Supervised by a keeper.
    #[cfg(unix)]
    Kept(keeper::Kept),
    /// Supervised by this process.
    Held(Group),
}

impl Running {
    /// Asks every process of the command's group to end.
    pub(crate) fn ask(&self) {
        match self {
            #[cfg(unix)]
            Running::Kept(kept) => kept.ask(),
            Running::Held(group) => group.ask(),
        }
    }

    /// Interrupts an agent program and everything that it has started. A command without a keeper
    /// has no such request, and is asked to end.
    pub(crate) fn interrupt(&self) {
        match self {
            #[cfg(unix)]
            Running::Kept(kept) => kept.interrupt(),
            Running::Held(group) => group.ask(),
        }
    }

    /// Kills the command and everything that it started.
    pub(crate) fn kill(&self) {
        match self {
            #[cfg(unix)]
            Running::Kept(kept) => kept.kill(),
            Running::Held(group) => group.kill(),
        }
    }

    /// Returns the process id of the command, if it is known.
    pub(crate) fn leader(&self) -> Option<u32> {
        match self {
            #[cfg(unix)]
            Running::Kept(kept) => kept.leader(),
            Running::Held(group) => group.leader(),
        }
    }
}
