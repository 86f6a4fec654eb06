//! The user's state folder, and the journal in it.

use std::path::{Path, PathBuf};

/// Returns the folder for state that persists between runs. Relative paths in the environment are
/// ignored, as the XDG specification requires.
pub(crate) fn state_folder() -> Option<PathBuf> {
    let folder =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || folder("HOME");
    let state = if cfg!(windows) {
        folder("LOCALAPPDATA")
    } else if cfg!(target_os = "macos") {
        home().map(|home| home.join("Library/Application Support"))
    } else {
        folder("XDG_STATE_HOME").or_else(|| home().map(|home| home.join(".local/state")))
    };
    state.map(|state| state.join("endstop"))
}

/// Returns the default journal file.
pub(crate) fn default_journal() -> Option<PathBuf> {
    state_folder().map(|folder| folder.join("journal.db"))
}

/// The variable with which guard tells a run of Endstop that it guards into which journal its calls are booked.
pub(crate) const OF_GUARD: &str = "ENDSTOP_GUARD_JOURNAL";

/// `true` if this process runs under guard, which books its calls into this journal.
pub(crate) fn is_of_guard(journal: &Path) -> bool {
    let same = |of_guard| {
        let whole = |path: &Path| path.canonicalize().ok();
        whole(Path::new(&of_guard)).is_some_and(|path| whole(journal) == Some(path))
    };
    std::env::var_os(OF_GUARD).is_some_and(same)
}
