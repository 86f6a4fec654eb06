//! Detects whether the process that drives a run is still alive. Each process locks a file of its
//! own as long as it lives, and its runs store the name of that file. The operating system releases
//! the lock however the process dies, and unlike a process id the lock cannot pass to an unrelated
//! process.
//!
//! ```text
//! let driver = Driver::new(&journal)?;           // locks a file for this process
//! let lives = is_alive(&journal, "4711-18c2…");  // of the name that a run stores
//! ```

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// The lock file of this process. Runs that the process drives store its name.
#[derive(Debug)]
pub(super) struct Driver {
    pub(super) name: String,
    path: PathBuf,
    _lock: File,
}

impl Driver {
    pub(super) fn new(journal: &Path) -> io::Result<Driver> {
        let folder = folder(journal);
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.recursive(true).create(&folder)?;
        loop {
            // The random part is needed because process ids are reused and several containers may
            // share the folder.
            let name = format!("{}-{:x}", std::process::id(), crate::clock::seed(0));
            let path = folder.join(&name);
            match File::create_new(&path) {
                Ok(file) => {
                    // The file is new, but another process may test it with `try_lock` at this
                    // moment, so wait.
                    file.lock()?;
                    return Ok(Driver { name, path, _lock: file });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Returns `true` if the process with this name is still alive. A process that cannot be checked
/// counts as alive, so that its runs are not taken from it.
pub(super) fn is_alive(journal: &Path, name: &str) -> bool {
    // The name comes from the journal, which a third party may have written. It must not lead out
    // of the folder, and it must name a file that Endstop made, because the file of a dead process
    // is removed below.
    if !is_name(name) {
        return false;
    }
    let folder = folder(journal);
    let path = folder.join(name);
    match (fs::symlink_metadata(&folder), fs::symlink_metadata(&path)) {
        (Ok(folder), Ok(file)) if folder.is_dir() && file.is_file() => {}
        (Ok(_), Ok(_)) => return false,
        (Err(error), _) | (_, Err(error)) => return error.kind() != io::ErrorKind::NotFound,
    }
    match File::open(&path) {
        Err(error) => error.kind() != io::ErrorKind::NotFound,
        Ok(file) => match file.try_lock() {
            Ok(()) => {
                let _ = fs::remove_file(&path);
                false
            }
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => true,
        },
    }
}

/// Returns `true` if the name has the form that [`Driver::new`] makes: a process id, a hyphen and a
/// number in hexadecimal digits.
fn is_name(name: &str) -> bool {
    let Some((process, seed)) = name.split_once('-') else { return false };
    let all = |text: &str, is: fn(&u8) -> bool| {
        !text.is_empty() && text.len() <= 16 && text.bytes().all(|byte| is(&byte))
    };
    all(process, u8::is_ascii_digit) && all(seed, u8::is_ascii_hexdigit)
}

fn folder(journal: &Path) -> PathBuf {
    let mut name = journal.as_os_str().to_owned();
    name.push("-drivers");
    PathBuf::from(name)
}
