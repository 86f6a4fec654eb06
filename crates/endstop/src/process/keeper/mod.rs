//! The keeper: a supervisor process that runs a command and kills its whole process tree, even if
//! the host process cannot.
//!
//! ```
//! use std::process::ExitCode;
//!
//! fn main() -> ExitCode {
//!     // Before anything else: this process may have been started as a keeper.
//!     if let Some(code) = endstop::process::keeper::serve_if_asked() {
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
mod host;
#[cfg(unix)]
mod report;
#[cfg(unix)]
mod serve;

#[cfg(unix)]
pub(super) use host::{Kept, Order, keeper_for, spawn};

use std::process::ExitCode;

/// The first argument of a keeper. Its number changes with the protocol between host and keeper: if
/// the program cannot be started through `/proc/self/exe`, its file may have been replaced by
/// another version in the meantime.
#[cfg(unix)]
const ARGUMENT: &str = "--endstop-keeper=2";

/// The argument after the mark if the command reads from the socket that it writes to.
#[cfg(unix)]
pub(super) const TALKS: &str = "talks";

/// Path of this program, once its `main` has called [`serve_if_asked`]. A process-wide value,
/// because no agent loop and no command can know which `main` the process has.
#[cfg(unix)]
static PROGRAM: std::sync::OnceLock<std::path::PathBuf> = std::sync::OnceLock::new();

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
        if arguments.next().is_some_and(|first| first == ARGUMENT) && serve::is_asked() {
            let mark = arguments.next();
            let talks = arguments.next().is_some_and(|word| word == TALKS);
            return Some(serve::serve(mark, talks));
        }
        if let Some(program) = own_program() {
            // A second call finds the same program, so its result is ignored.
            let _ = PROGRAM.set(program);
        }
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
/// Once a command was run that [may leave daemons](super::CommandLine::leave_daemons), orphans are
/// only reaped and no longer killed, because they cannot be distinguished from daemons.
pub fn adopt_orphans() -> bool {
    #[cfg(target_os = "linux")]
    return adopted::agree();
    #[cfg(not(target_os = "linux"))]
    false
}

/// Returns `true` if commands of this process run under keepers.
#[cfg(unix)]
pub(super) fn is_there() -> bool {
    PROGRAM.get().is_some()
}

/// Returns the path that starts this program again.
#[cfg(unix)]
fn own_program() -> Option<std::path::PathBuf> {
    if cfg!(target_os = "linux") {
        // The link leads to the running program even if its file was replaced or deleted.
        let link = std::path::PathBuf::from("/proc/self/exe");
        return link.exists().then_some(link);
    }
    std::env::current_exe().ok()
}
