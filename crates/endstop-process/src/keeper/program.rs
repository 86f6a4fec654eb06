//! The program that is started as a keeper, and its arguments.
//!
//! ```text
//! program::remember(); // in `main`, if the process is not a keeper itself
//! program::path()      // Some: commands of this process run under keepers
//! ```

use std::path::PathBuf;
use std::sync::OnceLock;

/// The first argument of a keeper. Its number changes with the protocol between host and keeper: if
/// the program cannot be started through `/proc/self/exe`, its file may have been replaced by
/// another version in the meantime.
pub(super) const ARGUMENT: &str = "--endstop-keeper=2";

/// The argument after the mark if the command reads from the socket that it writes to.
pub(crate) const TALKS: &str = "talks";

/// The argument after the mark if the keeper starts an agent program, which shares the terminal of
/// its host.
pub(crate) const AGENT: &str = "agent";

/// Path of this program, once its `main` has called [`serve_if_asked`](super::serve_if_asked). A
/// process-wide value, because no agent loop and no command can know which `main` the process has.
static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Records the path of this program, so that its commands run under keepers from now on.
pub(super) fn remember() {
    if let Some(program) = own_program() {
        // A second call finds the same program, so its result is ignored.
        let _ = PROGRAM.set(program);
    }
}

/// Returns the program to start as a keeper, if there is one.
pub(super) fn path() -> Option<&'static PathBuf> {
    PROGRAM.get()
}

/// Returns `true` if commands of this process run under keepers.
pub(crate) fn is_there() -> bool {
    PROGRAM.get().is_some()
}

/// Returns the path that starts this program again.
fn own_program() -> Option<PathBuf> {
    if cfg!(target_os = "linux") {
        // The link leads to the running program even if its file was replaced or deleted.
        let link = PathBuf::from("/proc/self/exe");
        return link.exists().then_some(link);
    }
    std::env::current_exe().ok()
}
