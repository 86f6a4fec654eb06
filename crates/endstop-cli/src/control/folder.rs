//! The folder of the control sockets, which only this user can enter.

use crate::config::state::state_folder;
use crate::config::trust::owner;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::PathBuf;

/// Returns the path of the folder, if the environment names a place for it.
pub(super) fn path() -> Option<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    // The XDG specification requires programs to ignore a relative path.
    let runtime = runtime.filter(|path| path.is_absolute()).map(|path| path.join("endstop"));
    runtime.or_else(state_folder).map(|folder| folder.join("control"))
}

/// Creates the folder. Fails if another user owns it or may enter it, because that user could then
/// replace a socket.
pub(super) fn create() -> io::Result<PathBuf> {
    let path = path().ok_or(io::ErrorKind::NotFound)?;
    DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
    check(&path)?;
    Ok(path)
}

/// Checks that the folder belongs to this user alone, and that no other user can put another one in its
/// place.
pub(super) fn check(path: &std::path::Path) -> io::Result<()> {
    // Not followed: a link could lead into another user's folder.
    let found = std::fs::symlink_metadata(path)?;
    let own = rustix::process::geteuid().as_raw();
    let of_others = found.mode() & 0o077;
    let refused = |problem: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, problem));
    if !found.is_dir() || found.uid() != own || of_others != 0 {
        let path = path.display();
        return refused(format!("{path} must be a folder that only you can enter (mode 0700)"));
    }
    // Write access of the group is accepted, because many systems have a private group for each user.
    match owner::problem_of_way(path, 0o002) {
        None => Ok(()),
        Some(problem) => refused(format!("the control socket is in {}: {problem}", path.display())),
    }
}
