//! What the user has trusted: folders' settings files by path and hash, in the user's state folder.
//!
//! ```ignore
//! let store = Store::of_user()?;
//! store.add(&path, &sha256)?;
//! assert!(store.trusts(&path, &sha256)?);
//! ```
//!
//! A store that other users may have written, or that does not read, is an error and never consent.

use super::{file, owner, shown};
use crate::{Failure, Result, kept};
use serde::{Deserialize, Serialize};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// More than this the store never has: some 40,000 folders.
const MOST: u64 = 16 << 20;

/// The version of the file's form.
const VERSION: u32 = 1;

/// A settings file that is trusted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Trusted {
    /// The folder by its whole name, and the file's name in it.
    pub(crate) path: String,
    /// The hash of its bytes.
    pub(crate) sha256: String,
    /// When, as RFC 3339 has it.
    pub(crate) at: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    version: u32,
    trusted: Vec<Trusted>,
}

/// The file of decisions.
#[derive(Debug)]
pub(crate) struct Store {
    folder: PathBuf,
}

impl Store {
    /// The store of this user; without a home folder there is none, and nothing is trusted.
    pub(crate) fn find() -> Option<Store> {
        kept::state_folder().map(|folder| Store { folder })
    }

    /// The store of this user, to change it.
    ///
    /// # Errors
    /// There is no home folder.
    pub(crate) fn of_user() -> Result<Store> {
        Store::find().ok_or_else(|| {
            Failure::usage(
                "there is no home folder to store what you trust in: set HOME, or name the file with --config FILE",
            )
        })
    }

    fn path(&self) -> PathBuf {
        self.folder.join("trust.json")
    }

    fn wrong(&self, problem: &str) -> Failure {
        Failure::usage(format!("{}: {problem}", shown(&self.path().display().to_string())))
    }

    /// All that is trusted.
    ///
    /// # Errors
    /// The file does not read, or other users may have written it.
    pub(crate) fn all(&self) -> Result<Vec<Trusted>> {
        let (bytes, metadata) = match file::regular(&self.path(), MOST) {
            Ok(read) => read,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) && std::fs::symlink_metadata(self.path()).is_err() =>
            {
                return Ok(Vec::new());
            }
            Err(error) => return Err(self.wrong(&error.to_string())),
        };
        self.folder_is_own()?;
        if let Some(problem) = owner::problem(&metadata, owner::ALL) {
            return Err(self.wrong(&format!("what is trusted cannot be relied on: {problem}")));
        }
        let content: Content = serde_json::from_slice(&bytes).map_err(|error| {
            self.wrong(&format!(
                "damaged (line {}, column {}): nothing in it counts; remove it and run `endstop trust` again",
                error.line(),
                error.column()
            ))
        })?;
        if content.version != VERSION {
            return Err(self.wrong(&format!(
                "version {} is not known: a later version of Endstop wrote it",
                content.version
            )));
        }
        Ok(content.trusted)
    }

    /// Reports whether a file with these bytes at this path is trusted.
    ///
    /// # Errors
    /// As [`all`](Self::all).
    pub(crate) fn trusts(&self, path: &Path, sha256: &str) -> Result<bool> {
        // A path that is not Unicode has no entry of its own; see `add`.
        let Some(path) = path.to_str() else { return Ok(false) };
        Ok(self.all()?.iter().any(|one| one.path == path && one.sha256 == sha256))
    }

    /// Trusts a file with these bytes at this path, and no other bytes there.
    ///
    /// # Errors
    /// As [`all`](Self::all), or it cannot be written.
    pub(crate) fn add(&self, path: &Path, sha256: &str) -> Result<()> {
        let Some(path) = path.to_str() else {
            return Err(Failure::usage(format!(
                "{}: the path is not Unicode: name the file with --config FILE",
                shown(&path.display().to_string())
            )));
        };
        let at = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let one = Trusted { path: path.to_owned(), sha256: sha256.to_owned(), at };
        self.change(|all| {
            all.retain(|other| other.path != one.path);
            all.push(one);
        })
    }

    /// Trusts no bytes at this path any more; returns whether any were.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub(crate) fn remove(&self, path: &Path) -> Result<bool> {
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

    /// Rewrites the file while no other process does.
    fn change(&self, change: impl FnOnce(&mut Vec<Trusted>)) -> Result<()> {
        let io = |error: io::Error| self.wrong(&error.to_string());
        let mut builder = DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.recursive(true).create(&self.folder).map_err(io)?;
        self.folder_is_own()?;
        let _lock = self.lock().map_err(io)?;
        let mut trusted = self.all()?;
        change(&mut trusted);
        let content = Content { version: VERSION, trusted };
        let mut text = serde_json::to_vec_pretty(&content)
            .map_err(|error| Failure::fault(error.to_string()))?;
        text.push(b'\n');
        // Made with mode 0600, and put in place whole.
        let mut new = tempfile::NamedTempFile::new_in(&self.folder).map_err(io)?;
        new.write_all(&text).map_err(io)?;
        new.as_file().sync_all().map_err(io)?;
        new.persist(self.path()).map_err(|error| io(error.error))?;
        Ok(())
    }

    /// Holds other processes off until it is dropped.
    fn lock(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
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
                "{}: what is trusted cannot be relied on: {problem}",
                shown(&self.folder.display().to_string())
            ))),
        }
    }
}
