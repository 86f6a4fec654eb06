//! Creates the file of a journal, and removes the access that other users have to it. Opens a file
//! without locks.
//!
//! ```text
//! let exposed = create(path)?; // the access that other users had
//! let connection = open_immutable(path)?;
//! ```

pub(super) mod failure;
pub(super) mod hardening;
pub(super) mod schema;
pub(super) mod tables;

use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use rusqlite::{Connection, OpenFlags};
use std::path::Path;

/// The bytes that have a meaning in the path of a URI.
const IN_URI: &AsciiSet = &CONTROLS.add(b'?').add(b'#').add(b'%');

/// Opens a file so that SQLite neither locks it, nor reads its log, nor creates a file next to it.
pub(super) fn open_immutable(path: &Path) -> rusqlite::Result<Connection> {
    // `immutable` can only be set in a URI, so the path must be percent-encoded.
    let address = percent_encode(path.as_os_str().as_encoded_bytes(), IN_URI);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    Connection::open_with_flags(format!("file:{address}?immutable=1"), flags)
}

/// Creates the file if it does not exist, readable only by its owner. Removes the access of other
/// users to an existing file, and returns a description of the access that they had.
pub(super) fn create(path: &Path) -> std::io::Result<Option<String>> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        let mut builder = std::fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.recursive(true).create(folder)?;
    }
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path)?;
    Ok(tighten(path, &file))
}

/// Removes access to the file and to SQLite's companion files for everyone but the owner.
#[cfg(unix)]
fn tighten(path: &Path, file: &std::fs::File) -> Option<String> {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;
    let mode = |metadata: &std::fs::Metadata| metadata.permissions().mode() & 0o7777;
    let metadata = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let was = mode(&metadata);
    let others = was & 0o077;
    if others == 0 {
        return None;
    }
    if let Err(error) = file.set_permissions(Permissions::from_mode(was & 0o700)) {
        return Some(format!(
            "other users can access it (mode {was:04o}), and its permissions could not be changed: {error}"
        ));
    }
    for end in ["-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        if let Ok(metadata) = std::fs::symlink_metadata(&name).as_ref()
            && metadata.is_file()
        {
            let _ = std::fs::set_permissions(&name, Permissions::from_mode(mode(metadata) & 0o700));
        }
    }
    Some(format!("other users could access it (mode {was:04o}); from now on only its owner can"))
}

/// Does nothing: other systems have no such modes.
#[cfg(not(unix))]
fn tighten(_: &Path, _: &std::fs::File) -> Option<String> {
    None
}
