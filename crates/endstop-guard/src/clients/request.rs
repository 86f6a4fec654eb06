//! The facts from which a wiring is made.
//!
//! ```
//! use endstop_guard::clients::{DiskFiles, Files};
//! assert!(DiskFiles.read(std::path::Path::new("no-settings.json"))?.is_none());
//! # Ok::<(), String>(())
//! ```

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Maximum size of a configuration file, in bytes. A larger one is reported and not read.
const MOST: u64 = 4 * 1024 * 1024;

/// A command that is to be pointed at a proxy.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The program and its arguments.
    pub command: &'a [OsString],
    /// The environment that the command would have.
    pub environment: &'a BTreeMap<String, String>,
    /// The working folder. Its configuration files count as those of a repository.
    pub folder: &'a Path,
    /// Address of the proxy, with the path prefix of the run, if it has one.
    pub proxy: &'a str,
    /// A private folder for temporary files, which the caller creates and removes.
    pub private: &'a Path,
    /// `true` if a strict ceiling holds, so that tools which the provider runs are refused. A client that offers one by
    /// itself gets an option against that.
    pub is_strict: bool,
    /// Reads configuration files.
    pub files: &'a dyn Files,
}

/// A reader of configuration files.
pub trait Files {
    /// Returns the text of a file, and `None` if it does not exist.
    ///
    /// # Errors
    /// The file exists and cannot be read; the message states the reason.
    fn read(&self, path: &Path) -> Result<Option<String>, String>;
}

/// The files of this machine.
#[derive(Clone, Copy, Debug)]
pub struct DiskFiles;

impl Files for DiskFiles {
    fn read(&self, path: &Path) -> Result<Option<String>, String> {
        // A pipe or a device of a hostile repository would block the reader for ever.
        match std::fs::metadata(path) {
            Ok(data) if data.is_file() => {}
            Ok(_) => return Err("not a regular file".to_owned()),
            Err(error) if is_missing(&error) => return Ok(None),
            Err(error) => return Err(error.to_string()),
        }
        let mut text = String::new();
        let read = File::open(path).and_then(|file| file.take(MOST + 1).read_to_string(&mut text));
        match read {
            Ok(_) if text.len() as u64 > MOST => Err(format!("larger than {MOST} bytes")),
            Ok(_) => Ok(Some(text)),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// No files at all.
#[derive(Clone, Copy, Debug)]
pub struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _path: &Path) -> Result<Option<String>, String> {
        Ok(None)
    }
}
