//! Creates the files that a command writes: `--events`, `--record`, `--html`, `--report`,
//! `--parquet`, `--write`. All follow one rule: a file that is not empty is replaced only with
//! `--overwrite`, and only its owner can read it, because it contains the data of a run.

use crate::failure::{Failure, Result};
use crate::output;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

/// A file that will be written.
#[derive(Debug)]
pub(crate) struct NewFile {
    flag: &'static str,
    path: PathBuf,
    overwrite: bool,
}

impl NewFile {
    /// Checks the file that a flag names. Called before the work, so that a run is not wasted on a
    /// file that cannot be written.
    ///
    /// # Errors
    /// The file is a directory, or is not empty and may not be replaced.
    pub(crate) fn of(flag: &'static str, path: &Path, overwrite: bool) -> Result<NewFile> {
        let file = NewFile { flag, path: path.to_owned(), overwrite };
        match std::fs::metadata(path) {
            Ok(found) if found.is_dir() => {
                Err(file.failure("it is a directory; set the path of a file"))
            }
            Ok(found) if found.is_file() && found.len() > 0 && !overwrite => {
                Err(file.failure(NOT_EMPTY))
            }
            // Pipes and devices have no content that could be lost, so they are always accepted.
            _ => Ok(file),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file, emptied. Pipes and devices are opened as they are.
    pub(crate) fn create(&self) -> Result<File> {
        self.open().map_err(|error| self.failure(&error.to_string()))
    }

    /// Writes the whole text, without the secrets of the process. A page was redacted while it was made,
    /// text by text; here nothing else can pass either.
    pub(crate) fn write(&self, text: &str) -> Result<()> {
        let wrong = |error: io::Error| Failure { status: 74, ..self.failure(&error.to_string()) };
        self.create()?.write_all(output::hidden(text).as_bytes()).map_err(wrong)
    }

    fn open(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true);
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt as _;
            // Set at creation, because a later `chmod` would leave a moment in which others can
            // open it.
            options.mode(0o600);
        }
        // `create_new` first: it neither follows a link nor opens a file that another process just
        // made.
        let file = match options.clone().create_new(true).open(&self.path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => options.open(&self.path)?,
            opened => return opened,
        };
        let found = file.metadata()?;
        if found.is_file() && found.len() > 0 {
            if !self.overwrite {
                return Err(io::Error::new(ErrorKind::AlreadyExists, NOT_EMPTY));
            }
            // Truncated only after the check above, because the file may have appeared since `of`.
            file.set_len(0)?;
        }
        tighten(&file, &self.path);
        Ok(file)
    }

    fn failure(&self, problem: &str) -> Failure {
        Failure::usage(format!("{} {}: {problem}", self.flag, self.path.display()))
    }
}

/// Removes the access of other users from an existing file before content is written. A pipe or a
/// terminal stays as it is.
#[cfg(unix)]
fn tighten(file: &File, path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    let Ok(metadata) = file.metadata() else { return };
    let mode = metadata.permissions().mode() & 0o7777;
    let others = mode & 0o077;
    if !metadata.is_file() || others == 0 {
        return;
    }
    let tight = std::fs::Permissions::from_mode(mode & 0o700);
    if file.set_permissions(tight).is_err() {
        output::note(&format!(
            "endstop: {}: other users can read it (mode {mode:04o}), and its mode could not be changed",
            path.display()
        ));
    }
}

/// Does nothing, because other systems have no such modes.
#[cfg(not(unix))]
fn tighten(_: &File, _: &Path) {}

const NOT_EMPTY: &str =
    "the file exists and is not empty; set another path, or pass --overwrite to replace it";
