//! A keeper: the process that holds a command, and kills it whole also where its host cannot.
//!
//! ```
//! use std::process::ExitCode;
//!
//! fn main() -> ExitCode {
//!     // Before anything else: this process may have been started to keep a command.
//!     if let Some(code) = endstop::process::keeper::serve_if_asked() {
//!         return code;
//!     }
//!     // … the program: its arguments, its runtime, its loops …
//!     ExitCode::SUCCESS
//! }
//! ```
//!
//! For each command the host starts its own program once more, with a private argument, and that
//! process, the keeper, starts the command. The two are joined by a socket whose one end the host
//! alone holds. Where the host is killed, be it with SIGKILL, the system closes that end, and the
//! keeper kills the command and all that it started. So it does where the command has ended.
//!
//! | | with a keeper | without |
//! |---|---|---|
//! | the host is killed with SIGKILL, or crashes | the command and all its processes die | they go on |
//! | a process leaves its group (`setsid`, a daemon) | Linux: it dies, whatever its environment | Linux: it dies if it has kept the mark in its environment |
//! | the terminal | the command has none: a session of its own | the command is in the background of the host's |
//!
//! Other Unix systems have neither `/proc` nor a way to adopt the children of children: there a
//! keeper kills the group of its command. Windows needs no keeper: a job dies with its host.
//!
//! It is not a sandbox. A command that kills or stops its keeper is killed by the host. On Linux the
//! host finds all of its processes if it has called [`adopt_orphans`], and otherwise those that kept
//! the session or the mark. A command that kills its keeper *and* its host is free, and so is a
//! process that a server of somebody else starts for it (`tmux new-window` in a server that was
//! there before, `systemd-run`, `docker run`).

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

/// The first argument of a keeper. Its number changes with what the two tell each other: the
/// program may be another by then, where it cannot be started by its descriptor.
#[cfg(unix)]
const ARGUMENT: &str = "--endstop-keeper=2";

/// The argument after the mark, of a keeper whose command reads from what it writes to.
#[cfg(unix)]
pub(super) const TALKS: &str = "talks";

/// Where the program is that can keep, once its `main` has said so. A fact of the process, and so a
/// value of the process: which `main` it has, no loop and no command can know.
#[cfg(unix)]
static PROGRAM: std::sync::OnceLock<std::path::PathBuf> = std::sync::OnceLock::new();

/// Call this first in `main`, before threads, arguments and a runtime.
///
/// `Some`: this process was started to keep a command, has done so, and `main` must return the
/// code. `None`: it was started for something else, and goes on; from now on commands of this
/// process are kept. Without this call commands run all the same, and [what is lost](self) is said
/// above.
///
/// An `async fn main` with an attribute has a runtime already when its first line runs: give it a
/// `main` of its own that calls this and then starts the runtime.
#[must_use = "a keeper that has done its work must return from main"]
pub fn serve_if_asked() -> Option<ExitCode> {
    #[cfg(unix)]
    {
        let mut arguments = std::env::args_os().skip(1);
        if arguments.next().is_some_and(|first| first == ARGUMENT) && serve::is_asked() {
            let mark = arguments.next();
            let talks = arguments.next().is_some_and(|word| word == TALKS);
            return Some(serve::serve(mark, talks));
        }
        if let Some(program) = own_program() {
            // A second call says the same.
            let _ = PROGRAM.set(program);
        }
    }
    None
}

/// Makes this process the parent of processes whose own parents have died (a *child subreaper*), so
/// that a command which kills its keeper leaves none behind. Returns whether that is so; `false`
/// everywhere but on Linux.
///
/// Call it in `main`, after [`serve_if_asked`]. It is a property of the whole process. From then on
/// a child of this process that lies in another session, and that is not a keeper, is taken for the
/// orphan of a killed keeper: it is killed when a keeper was killed, and reaped when it has ended.
/// Do not call it in a program that starts sessions of its own (`setsid`).
///
/// Once a command was run that [may leave daemons](super::CommandLine::leave_daemons), orphans are
/// reaped, and no longer killed: nothing tells the one from the other.
pub fn adopt_orphans() -> bool {
    #[cfg(target_os = "linux")]
    return adopted::agree();
    #[cfg(not(target_os = "linux"))]
    false
}

/// Whether commands of this process are kept.
#[cfg(unix)]
pub(super) fn is_there() -> bool {
    PROGRAM.get().is_some()
}

/// What starts this program again.
#[cfg(unix)]
fn own_program() -> Option<std::path::PathBuf> {
    if cfg!(target_os = "linux") {
        // This leads to the program that runs, also where its file was replaced or deleted.
        let link = std::path::PathBuf::from("/proc/self/exe");
        return link.exists().then_some(link);
    }
    std::env::current_exe().ok()
}
