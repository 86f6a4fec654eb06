//! The store of trusted settings files, by path and hash, in the user's state folder.
//!
//! A store that other users can write, or that cannot be parsed, is an error and never counts as
//! consent.

use super::{file, owner, shown};
use crate::config::state::state_folder;
use crate::failure::{Failure, Result};
use serde::{Deserialize, Serialize};
use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Maximum size of the store in bytes, enough for about 40,000 folders.
const MOST: u64 = 16 << 20;

/// The version of the file format.
const VERSION: u32 = 1;

/// Maximum number of reads of a store that was created between two looks at it.
const READS: usize = 4;

/// A trusted settings file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Trusted {
    /// The canonical path of the folder, joined with the file's name.
    pub(crate) path: String,
    /// The SHA-256 hash of the trusted bytes.
    pub(crate) sha256: String,
    /// The time of consent, in RFC 3339.
    pub(crate) at: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    version: u32,
    trusted: Vec<Trusted>,
}

/// The file that stores the decisions.
#[derive(Debug)]
pub(crate) struct Store {
    folder: PathBuf,
}

impl Store {
    /// Returns the store of this user, or `None` without a home folder, in which case nothing is
    /// trusted.
    pub(crate) fn find() -> Option<Store> {
        state_folder().map(|folder| Store { folder })
    }

    /// Returns the store of this user, to change it.
    ///
    /// # Errors
    /// There is no home folder.
    pub(crate) fn of_user() -> Result<Store> {
        Store::find().ok_or_else(|| {
            Failure::usage(
                "no home folder for the list of trusted files; set HOME, or pass the file with --config FILE",
            )
        })
    }

    fn path(&self) -> PathBuf {
        self.folder.join("trust.json")
    }

    fn wrong(&self, problem: &str) -> Failure {
        Failure::usage(format!("{}: {problem}", shown(&self.path().display().to_string())))
    }

    /// Returns all trusted files.
    ///
    /// # Errors
    /// The store cannot be read, or other users may have written it.
    pub(crate) fn all(&self) -> Result<Vec<Trusted>> {
        let Some((bytes, metadata)) =
            self.read().map_err(|error| self.wrong(&error.to_string()))?
        else {
            return Ok(Vec::new());
        };
        self.folder_is_own()?;
        if let Some(problem) = owner::problem(&metadata, owner::ALL) {
            return Err(
                self.wrong(&format!("the list of trusted files is not safe to use: {problem}"))
            );
        }
        let content: Content = serde_json::from_slice(&bytes).map_err(|error| {
            self.wrong(&format!(
                "damaged (line {}, column {}); remove it and run `endstop trust` again",
                error.line(),
                error.column()
            ))
        })?;
        if content.version != VERSION {
            return Err(self.wrong(&format!(
                "unknown version {}: a later version of Endstop wrote this file; update Endstop",
                content.version
            )));
        }
        Ok(content.trusted)
    }

    /// Reads the store, or returns `None` if there is none.
    fn read(&self) -> io::Result<Option<(Vec<u8>, Metadata)>> {
        // Only a missing entry means "nothing trusted". A dangling link is an entry, and its
        // error stands. A regular file that was missing a moment ago has just been put there by
        // another process, so it is read again: the store is replaced, never removed.
        for _ in 0..READS {
            match file::regular(&self.path(), MOST) {
                Err(error) if missing(&error) => match std::fs::symlink_metadata(self.path()) {
                    Ok(entry) if entry.is_file() => {}
                    Ok(_) => return Err(error),
                    Err(entry) if missing(&entry) => return Ok(None),
                    Err(entry) => return Err(entry),
                },
                read => return read.map(Some),
            }
        }
        Err(io::Error::other("the file appears and disappears; another program changes it"))
    }

    /// `true` if a file with these bytes at this path is trusted.
    ///
    /// # Errors
    /// As [`all`](Self::all).
    pub(crate) fn trusts(&self, path: &Path, sha256: &str) -> Result<bool> {
        // `add` refuses paths that are not Unicode, so they have no entry.
        let Some(path) = path.to_str() else { return Ok(false) };
        Ok(self.all()?.iter().any(|one| one.path == path && one.sha256 == sha256))
    }

    /// Trusts a file with these bytes at this path, and revokes other bytes at the same path.
    ///
    /// # Errors
    /// As [`all`](Self::all), or it cannot be written.
    pub(crate) fn add(&self, path: &Path, sha256: &str) -> Result<()> {
        let Some(path) = path.to_str() else {
            return Err(Failure::usage(format!(
                "{}: the path is not Unicode; pass the file with --config FILE",
                shown(&path.display().to_string())
            )));
        };
        let at = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let one = Trusted { path: path.to_owned(), sha256: sha256.to_owned(), at };
        self.change(|all| {
            // One entry for each path: new consent replaces the old hash.
            all.retain(|other| other.path != one.path);
            all.push(one);
        })
    }

    /// Revokes the trust in the file at this path. Returns `true` if it was trusted.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub(crate) fn remove(&self, path: &Path) -> Result<bool> {
        // Checked first, so that revoking does not create the folder and the store.
        let mut was = false;
        if self.all()?.is_empty() {
            return Ok(false);
        }
        self.change(|all| {
            let before = all.len();
            all.retain(|other| Path::new(&other.path) != path);
            was = all.len() < before;
        })?;
        Ok(was)
    }

    /// Rewrites the file under a lock.
    fn change(&self, change: impl FnOnce(&mut Vec<Trusted>)) -> Result<()> {
        let io = |error: io::Error| self.wrong(&error.to_string());
        let mut builder = DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.recursive(true).create(&self.folder).map_err(io)?;
        // The creation does not change the mode of a folder that exists.
        self.folder_is_own()?;
        let _lock = self.lock().map_err(io)?;
        // Read again under the lock, so that a concurrent change is not lost.
        let mut trusted = self.all()?;
        change(&mut trusted);
        let content = Content { version: VERSION, trusted };
        let mut text = serde_json::to_vec_pretty(&content)
            .map_err(|error| Failure::fault(error.to_string()))?;
        text.push(b'\n');
        // The temporary file has mode 0600, and the rename replaces the store atomically.
        let mut new = tempfile::NamedTempFile::new_in(&self.folder).map_err(io)?;
        new.write_all(&text).map_err(io)?;
        // Before the rename, because after a power failure the name could belong to an empty file.
        new.as_file().sync_all().map_err(io)?;
        new.persist(self.path()).map_err(|error| io(error.error))?;
        Ok(())
    }

    /// Locks the store until the returned file is dropped.
    fn lock(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        // A separate lock file, because the rename replaces the store itself and with it any lock
        // on it.
        let file = options.open(self.folder.join("trust.lock"))?;
        file.lock()?;
        Ok(file)
    }

    fn folder_is_own(&self) -> Result<()> {
        let metadata =
            std::fs::metadata(&self.folder).map_err(|error| self.wrong(&error.to_string()))?;
        match owner::problem(&metadata, owner::WRITE) {
            None => Ok(()),
            Some(problem) => Err(Failure::usage(format!(
                "{}: the list of trusted files is not safe to use: {problem}",
                shown(&self.folder.display().to_string())
            ))),
        }
    }
}

/// `true` if an error says that there is no entry at a path.
fn missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    /// A store that appears between the failed open and the look at the entry is not an error.
    #[test]
    fn reader_sees_none_or_all_of_a_new_store() {
        for _ in 0..200 {
            let folder = tempfile::tempdir().unwrap();
            let store = || Store { folder: folder.path().to_owned() };
            let start = Barrier::new(4);
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        start.wait();
                        while store().all().unwrap().is_empty() {}
                    });
                }
                start.wait();
                store().add(Path::new("/folder/endstop.toml"), "00").unwrap();
            });
        }
    }
}
