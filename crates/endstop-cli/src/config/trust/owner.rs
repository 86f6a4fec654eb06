//! Checks that a file or a folder belongs to the user alone, so that its content can count as the
//! user's own choice.

use std::fs::Metadata;

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

/// Always returns `None`: access lists are not checked, because folders of a profile are closed to
/// other users by default.
#[cfg(not(unix))]
pub(crate) fn problem(_: &Metadata, _: u32) -> Option<String> {
    None
}
