//! The user's state folder, and the journal in it.

use std::path::PathBuf;

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
