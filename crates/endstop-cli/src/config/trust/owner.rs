//! Checks that a file or a folder belongs to the user alone, so that its content can count as the
//! user's own choice.

use std::fs::Metadata;
use std::path::Path;
#[cfg(unix)]
use std::path::PathBuf;

/// The mode bits that let other users write.
pub(crate) const WRITE: u32 = 0o022;

/// The mode bits that let other users read, write or execute.
pub(crate) const ALL: u32 = 0o077;

/// Returns why others may have written this file or folder (or, with [`ALL`], may read it), and how
/// to fix that. Returns `None` if it is the user's own.
#[cfg(unix)]
pub(crate) fn problem(metadata: &Metadata, forbidden: u32) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let user = rustix::process::geteuid().as_raw();
    // Files of root are accepted, because the system may have created them and root can change
    // every file anyway.
    if metadata.uid() != user && metadata.uid() != 0 {
        return Some(format!(
            "it belongs to user {}, not to you ({user}); change its owner, or set HOME to a folder of your own",
            metadata.uid()
        ));
    }
    let mode = metadata.mode() & 0o7777;
    let open = mode & forbidden;
    (open != 0).then(|| {
        // Write access is the worse problem, so it is the one that is named.
        let what = if open & WRITE == 0 { "read" } else { "change" };
        let fix = if forbidden & !WRITE == 0 { "chmod go-w" } else { "chmod go-rwx" };
        format!("other users can {what} it (mode {mode:04o}); run `{fix}` on it")
    })
}

/// Returns why another user may have chosen what is at this path, and how to fix that: by writing the
/// file, or by putting another one in its place, which needs a folder above it, or a link on the way.
///
/// The file or pipe itself has this metadata. On a file system that is mounted read-only, such as a
/// volume of a container, nothing can be written, so that owners do not matter there.
#[cfg(unix)]
pub(crate) fn problem_of_path(path: &Path, metadata: &Metadata) -> Option<String> {
    use rustix::fs::{StatVfsMountFlags, statvfs};
    if statvfs(path).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY)) {
        return None;
    }
    problem(metadata, WRITE).or_else(|| problem_of_way(path, WRITE))
}

/// Returns why another user may replace what is at this path, through the folders and links that lead to it.
/// These bits of a folder's mode are forbidden.
#[cfg(unix)]
pub(crate) fn problem_of_way(path: &Path, forbidden: u32) -> Option<String> {
    /// More links than a system follows.
    const MOST_LINKS: usize = 40;
    let mut path = PathBuf::from(path);
    for _ in 0..MOST_LINKS {
        let above = path.parent().filter(|above| !above.as_os_str().is_empty());
        // A folder that cannot be resolved contains nothing that could be read.
        let above = above.unwrap_or(Path::new(".")).canonicalize().ok()?;
        if let Some(problem) =
            above.ancestors().find_map(|folder| problem_of_folder(folder, forbidden))
        {
            return Some(problem);
        }
        let found = std::fs::symlink_metadata(&path).ok()?;
        if !found.is_symlink() {
            return None;
        }
        if let Some(problem) = problem(&found, 0) {
            return Some(format!(
                "the link {}: {problem}",
                super::shown(&path.display().to_string())
            ));
        }
        path = above.join(std::fs::read_link(&path).ok()?);
    }
    None
}

/// Returns why other users may replace the entries of a folder.
#[cfg(unix)]
fn problem_of_folder(folder: &Path, forbidden: u32) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    const STICKY: u32 = 0o1000;
    let metadata = std::fs::metadata(folder).ok()?;
    // In a sticky folder such as /tmp, only the owner of an entry can replace it, and each entry on the
    // way is checked as well.
    let forbidden = if metadata.mode() & STICKY == 0 { forbidden } else { 0 };
    let problem = problem(&metadata, forbidden)?;
    Some(format!("the folder {}: {problem}", super::shown(&folder.display().to_string())))
}

/// Always returns `None`, as [`problem`] does.
#[cfg(not(unix))]
pub(crate) fn problem_of_path(_: &Path, _: &Metadata) -> Option<String> {
    None
}

/// Always returns `None`: access lists are not checked, because folders of a profile are closed to
/// other users by default.
#[cfg(not(unix))]
pub(crate) fn problem(_: &Metadata, _: u32) -> Option<String> {
    None
}
