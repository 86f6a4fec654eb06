//! Files of the folder that workers share: each is written completely before another process sees it.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// The largest file that is read, in bytes.
const MOST: u64 = 16 << 20;

/// Creates a folder that only this user can read: its files contain conversations.
pub(crate) fn private_folder(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(folder)
}

/// Creates a file, unless there is one. Of several processes that do this at once, one wins. Returns
/// `true` if this one did.
pub(crate) fn create_once(path: &Path, content: &[u8]) -> io::Result<bool> {
    let temporary = temporary(path);
    let created = (|| {
        fs::write(&temporary, content)?;
        // A link is created only if there is none, and has its content from the beginning.
        match fs::hard_link(&temporary, path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    })();
    let _ = fs::remove_file(&temporary);
    created
}

/// Writes a file in the place of an earlier one. A reader sees either the one or the other.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let temporary = temporary(path);
    let written = fs::write(&temporary, content).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Reads a small file; `None` if it does not exist.
pub(crate) fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut content = Vec::new();
    file.take(MOST + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MOST {
        let problem = format!("larger than {} MiB", MOST >> 20);
        return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
    }
    Ok(Some(content))
}

/// Returns the path of a temporary file in the same folder, which no other process uses.
fn temporary(path: &Path) -> PathBuf {
    // The names differ between machines too, whose processes may have the same id.
    let name = format!(".{}-{}", std::process::id(), endstop::agent::new_run_id());
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_writer_wins() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("once");
        assert_eq!(read(&path).unwrap(), None);
        let wins: Vec<bool> = std::thread::scope(|scope| {
            let write = |text: &'static str| {
                let path = &path;
                scope.spawn(move || create_once(path, text.as_bytes()).unwrap())
            };
            let all: Vec<_> = ["a", "b", "c", "d"].map(write).into_iter().collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert_eq!(wins.iter().filter(|won| **won).count(), 1);
        assert_eq!(read(&path).unwrap().unwrap().len(), 1);
        replace(&path, b"new").unwrap();
        assert_eq!(read(&path).unwrap().unwrap(), b"new");
        // Nothing but the file is left.
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
