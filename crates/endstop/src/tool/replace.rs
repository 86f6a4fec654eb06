//! Replaces the content of a file: with a temporary file and a rename, or in place if a rename
//! would change the file's identity.
//!
//! ```text
//! replace::write(Path::new("notes/a.txt"), b"new text", &stop)?;
//! ```
//!
//! A rename replaces the old file by a new one. Readers see either the old text or the new, and a
//! crash loses neither. The new file gets the owner and the permissions of the old one, but not its
//! set-user-ID and set-group-ID bits, because they vouch for the old content.
//!
//! A file is written in place, which a crash can leave incomplete, if it has other names (hard
//! links) or extended attributes such as an access control list, if its owner cannot be kept, or if
//! its folder does not accept a new file.

use super::regular;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use tokio_util::sync::CancellationToken;

/// Writes the content and creates missing parent folders.
///
/// # Errors
/// The path names something other than a regular file, the file is read-only, the system refuses,
/// or `stop` was cancelled before the old content was touched.
pub(super) fn write(path: &Path, content: &[u8], stop: &CancellationToken) -> io::Result<()> {
    // Keep a symbolic link and write the file that it points to.
    let place = match path.canonicalize() {
        Ok(place) => place,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if path.symlink_metadata().is_ok() {
                return Err(io::Error::new(error.kind(), "is a broken symbolic link"));
            }
            return create(path, content, stop);
        }
        Err(error) => return Err(error),
    };
    let old = regular::open_to_write(&place)?;
    match rename_over(&place, &old, content, stop) {
        Ok(()) => Ok(()),
        Err(Problem::InPlace) => in_place(&old, content, stop),
        Err(Problem::Io(error)) => Err(error),
    }
}

/// The reason why there was no rename.
enum Problem {
    /// The file can only be written in place.
    InPlace,
    Io(io::Error),
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Problem {
        Problem::Io(error)
    }
}

fn create(place: &Path, content: &[u8], stop: &CancellationToken) -> io::Result<()> {
    let folder = folder_of(place);
    fs::create_dir_all(folder)?;
    // Not private: a new file gets the default permissions, so there is nothing to change later.
    let (file, temporary) = create_temporary(folder, false)?;
    fill(&file, content, stop)?;
    fs::rename(&temporary.0, place)
}

fn rename_over(
    place: &Path,
    old: &File,
    content: &[u8],
    stop: &CancellationToken,
) -> Result<(), Problem> {
    if !regular::may_be_replaced(old)? {
        return Err(Problem::InPlace);
    }
    let refused = |error: io::Error| match error.kind() {
        // The folder belongs to another user, or the file is a mount point.
        io::ErrorKind::PermissionDenied
        | io::ErrorKind::ReadOnlyFilesystem
        | io::ErrorKind::ResourceBusy
        | io::ErrorKind::CrossesDevices => Problem::InPlace,
        _ => Problem::Io(error),
    };
    let (file, temporary) = create_temporary(folder_of(place), true).map_err(refused)?;
    // Set the permissions before the content, which must never be in a file that is more open than
    // the old one.
    if !regular::take_after(&file, old)? {
        return Err(Problem::InPlace);
    }
    fill(&file, content, stop)?;
    // Otherwise the rename would silently discard what the other process wrote.
    if !regular::is_still(place, old) {
        let problem = "was replaced by another process while it was written";
        return Err(io::Error::other(problem).into());
    }
    fs::rename(&temporary.0, place).map_err(refused)
}

fn fill(mut file: &File, content: &[u8], stop: &CancellationToken) -> io::Result<()> {
    file.write_all(content)?;
    // Before the rename: otherwise a crash could leave an empty file under the final name.
    file.sync_all()?;
    // The last chance to stop before the new content becomes visible.
    stopped(stop)
}

fn in_place(mut file: &File, content: &[u8], stop: &CancellationToken) -> io::Result<()> {
    regular::drop_privileges(file)?;
    stopped(stop)?;
    let length = content.len() as u64;
    // Detect a full disk or a file size limit before the old content is touched.
    if length > file.metadata()?.len() {
        regular::make_room(file, length)?;
    }
    file.write_all(content)?;
    // After the write: shrinking first would lose the old content if the write failed.
    file.set_len(length)?;
    file.sync_all()
}

fn stopped(stop: &CancellationToken) -> io::Result<()> {
    if stop.is_cancelled() {
        return Err(io::Error::new(io::ErrorKind::Interrupted, "stopped before it was written"));
    }
    Ok(())
}

fn folder_of(place: &Path) -> &Path {
    match place.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// A file that is removed when dropped, unless it was renamed.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // After the rename the temporary name no longer exists, so an error here is expected.
        let _ = fs::remove_file(&self.0);
    }
}

/// Creates an empty file in the folder. If `private`, only its owner can open it.
fn create_temporary(folder: &Path, private: bool) -> io::Result<(File, Temporary)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    if private {
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    }
    #[cfg(not(unix))]
    let _ = private;
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!(".endstop-{}-{number}.part", std::process::id()));
        match options.open(&path) {
            Ok(file) => return Ok((file, Temporary(path))),
            // Left over by a killed process with the same process id.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}
