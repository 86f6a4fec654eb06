//! Starts a program with its wiring.
//!
//! ```
//! let private = endstop_guard::process::PrivateFolder::create()?;
//! let path = private.path().to_owned();
//! assert!(path.is_dir());
//! drop(private);
//! assert!(!path.exists());
//! # Ok::<(), std::io::Error>(())
//! ```

use crate::clients::{Mirror, Wiring};
use endstop_process::{AgentProcess, AgentProgram};
use std::fs::{self, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A folder for temporary files that only this user may read. Dropping it removes it with its files.
#[derive(Debug)]
pub struct PrivateFolder(PathBuf);

impl PrivateFolder {
    /// Creates a folder with a new name in the system's folder for temporary files.
    ///
    /// # Errors
    /// The system's folder does not exist or is not writable.
    pub fn create() -> io::Result<PrivateFolder> {
        // A random name, because other users may write to the folder too.
        let random = RandomState::new().build_hasher().finish();
        let name = format!("endstop-guard-{}-{random:016x}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        // Fails if it exists, so a folder or a link of another user is never used.
        builder.create(&path)?;
        Ok(PrivateFolder(path))
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    fn write(&self, name: &Path, text: &str) -> io::Result<()> {
        let mut options = OpenOptions::new();
        // Never through a link, although no other user may write here.
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let path = self.0.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        options.open(path)?.write_all(text.as_bytes())
    }

    /// Creates a folder with links to the entries of the user's folder.
    fn mirror(&self, mirror: &Mirror) -> io::Result<()> {
        // A user who starts the client for the first time has no folder yet.
        let entries = match fs::read_dir(&mirror.of) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let folder = self.0.join(&mirror.path);
        fs::create_dir_all(&folder)?;
        for entry in entries {
            let entry = entry?;
            if entry.file_name() != *mirror.except {
                link(&entry.path(), &folder.join(entry.file_name()))?;
            }
        }
        Ok(())
    }
}

#[cfg(unix)]
fn link(target: &Path, at: &Path) -> io::Result<()> {
    // A relative path would lead from the private folder.
    std::os::unix::fs::symlink(std::path::absolute(target)?, at)
}

#[cfg(windows)]
fn link(target: &Path, at: &Path) -> io::Result<()> {
    use std::os::windows::fs::{symlink_dir, symlink_file};
    if target.is_dir() { symlink_dir(target, at) } else { symlink_file(target, at) }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        // The system removes it one day if this fails; a destructor cannot report it.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Writes the temporary files of a wiring and starts its program. `run` is the id of the run, which
/// marks the program's processes.
///
/// # Errors
/// The command is empty, a file could not be written, or the program's keeper could not be started.
pub fn launch(wiring: &Wiring, private: &PrivateFolder, run: &str) -> io::Result<AgentProcess> {
    let Some((program, arguments)) = wiring.command.split_first() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no program to start"));
    };
    for mirror in &wiring.mirrors {
        private.mirror(mirror)?;
    }
    for file in &wiring.files {
        private.write(&file.path, &file.text)?;
    }
    // Files with keys must not stay if this process is killed.
    let mut agent = AgentProgram::new(program, run).args(arguments).removes(private.path());
    for name in &wiring.cleared {
        agent = agent.env_remove(name);
    }
    for (name, value) in &wiring.env {
        agent = agent.env(name, value);
    }
    agent.start()
}
