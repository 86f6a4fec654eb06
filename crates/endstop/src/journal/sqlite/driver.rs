//! Who drives a run: a process holds a lock on a file as long as it lives, and its runs name the
//! file. However it dies, the lock goes with it.
//!
//! ```text
//! let driver = Driver::new(&journal)?;           // this process
//! let lives = is_alive(&journal, "4711-18c2…");  // the one that a run names
//! ```

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// This process, as the runs that it drives name it.
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
            let name = format!("{}-{:x}", std::process::id(), crate::clock::seed(0));
            let path = folder.join(&name);
            match File::create_new(&path) {
                Ok(file) => {
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

/// Whether the process of this name still lives. One that cannot be looked at does: its runs are
/// not taken from it.
pub(super) fn is_alive(journal: &Path, name: &str) -> bool {
    // The name stands in the journal, which may be another's: it must not lead out of the folder, and
    // what is there must be a file of ours, because the file of a dead process is removed.
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

/// Whether a name is one that [`Driver::new`] makes: a process, and a number that tells it from others.
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
