//! The keeper: a supervisor process that runs a command and kills its whole process tree, even if
//! the host process cannot.
//!
//! ```
//! use std::process::ExitCode;
//!
//! fn main() -> ExitCode {
//!     // Before anything else: this process may have been started as a keeper.
//!     if let Some(code) = endstop_process::keeper::serve_if_asked() {
//!         return code;
//!     }
//!     // … the program: its arguments, its runtime, its loops …
//!     ExitCode::SUCCESS
//! }
//! ```
//!
//! For each command the host starts its own program again with a private argument. That process,
//! the keeper, starts the command. A socket connects the two, and only the host holds its end of
//! it. If the host is killed, even with SIGKILL, the system closes that end, and the keeper kills
//! the command and everything that it started. The keeper does the same when the command ends.
//!
//! | | with a keeper | without |
//! |---|---|---|
//! | the host is killed with SIGKILL, or crashes | the command and all its processes die | they keep running |
//! | a process leaves its group (`setsid`, a daemon) | Linux: it dies, whatever its environment | Linux: it dies if the mark is still in its environment |
//! | the terminal | the command has none, because it is in its own session | the command is in the background of the host's terminal |
//!
//! Other Unix systems have neither `/proc` nor a way to adopt grandchildren, so there a keeper
//! kills only the process group of its command. Windows needs no keeper, because a job dies with
//! its host.
//!
//! A keeper is not a sandbox. If a command kills or stops its keeper, the host kills the command.
//! On Linux the host finds all of its processes if it has called [`adopt_orphans`], and otherwise
//! those that stayed in the session or kept the mark. A command that kills both its keeper *and*
//! its host escapes. So does a process that an unrelated server starts on its behalf (`tmux
//! new-window` in a server that already ran, `systemd-run`, `docker run`).

#[cfg(target_os = "linux")]
mod adopted;
#[cfg(unix)]
mod agent;
#[cfg(unix)]
mod host;
#[cfg(unix)]
mod program;
#[cfg(unix)]
mod report;
#[cfg(unix)]
mod serve;
#[cfg(unix)]
mod suspend;

#[cfg(unix)]
pub(crate) use host::{Kept, Order, keeper_for, keeper_of_agent, spawn};
#[cfg(unix)]
pub(crate) use program::{TALKS, is_there};

use std::process::ExitCode;

/// Runs the keeper if this process was started as one. Call it first in `main`, before threads,
/// arguments and a runtime.
///
/// Returns `Some` if this process was started as a keeper and has finished its work; `main` must
/// then return the code. Returns `None` if the process was started for something else; from now on
/// its commands have keepers. Commands also run without this call; the [module documentation](self)
/// describes the differences.
///
/// An `async fn main` with an attribute already has a runtime when its first line runs. Write a
/// plain `main` that calls this function and then starts the runtime.
#[must_use = "a keeper that has done its work must return from main"]
pub fn serve_if_asked() -> Option<ExitCode> {
    #[cfg(unix)]
    {
        let mut arguments = std::env::args_os().skip(1);
        // The socket is checked too, so that a user who passes the argument does not start a
        // keeper.
        if arguments.next().is_some_and(|first| first == program::ARGUMENT) && serve::is_asked() {
            let mark = arguments.next();
            return Some(match arguments.next() {
                Some(word) if word == program::AGENT => agent::serve(mark),
                word => serve::serve(mark, word.is_some_and(|word| word == TALKS)),
            });
        }
        program::remember();
    }
    None
}

/// Makes this process a *child subreaper*: the parent of descendants whose own parents have died. A
/// command that kills its keeper then leaves no process behind. Returns `true` if the system did
/// so, and always `false` on systems other than Linux.
///
/// Call it in `main`, after [`serve_if_asked`]. It affects the whole process. From then on, a child
/// of this process that is in another session and is not a keeper counts as the orphan of a killed
/// keeper: it is killed if a keeper was killed, and reaped when it has ended. Therefore do not call
/// this in a program that starts its own sessions (`setsid`).
///
/// Once a command was run that [may leave daemons](crate::CommandLine::leave_daemons), orphans are
/// only reaped and no longer killed, because they cannot be distinguished from daemons.
pub fn adopt_orphans() -> bool {
    #[cfg(target_os = "linux")]
    return adopted::agree();
    #[cfg(not(target_os = "linux"))]
    false
}
