//! Whether a file or a folder belongs to the user alone, so that what it holds is the user's word.
//!
//! ```ignore
//! if let Some(problem) = owner::problem(&metadata, 0o022) { refuse(problem) }
//! ```

use std::fs::Metadata;

/// Bits of a mode that let others write.
pub(crate) const WRITE: u32 = 0o022;

/// Bits of a mode that let others read, write or run.
pub(crate) const ALL: u32 = 0o077;

/// Returns why others may have written this file or folder (or with [`ALL`], may read it), and what
/// to do. `None` if it is the user's own.
#[cfg(unix)]
pub(crate) fn problem(metadata: &Metadata, forbidden: u32) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let user = rustix::process::geteuid().as_raw();
    // What root owns may be the system's doing, and root can change everything anyway.
    if metadata.uid() != user && metadata.uid() != 0 {
        return Some(format!(
            "it belongs to the user {}, not to you ({user}): change its owner, or set HOME to a folder of your own",
            metadata.uid()
        ));
    }
    let mode = metadata.mode() & 0o7777;
    let open = mode & forbidden;
    (open != 0).then(|| {
        let what = if open & WRITE == 0 { "read" } else { "change" };
        let fix = if forbidden & !WRITE == 0 { "chmod go-w" } else { "chmod go-rwx" };
        format!("other users may {what} it (mode {mode:04o}): `{fix}` closes it")
    })
}

/// Access lists are not looked at: folders of a profile are closed to other users by default.
#[cfg(not(unix))]
pub(crate) fn problem(_: &Metadata, _: u32) -> Option<String> {
    None
}
