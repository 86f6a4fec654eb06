//! The store of a group of workers: a folder that all of them share. It has every step of every run,
//! so that the engine's journal holds only the hash of a large one, and so that a run that was killed
//! can still be explained.
//!
//! ```
//! use endstop_restate::{Past, Step, Store};
//! let folder = tempfile::tempdir()?;
//! let store = Store::open(folder.path())?;
//! let kept = store.put("r1", 0, &Step::default())?;
//! assert_eq!(store.get("r1", &kept)?, Step::default());
//! assert_eq!(store.past("r1")?.steps(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ```text
//! FOLDER/store-id                          the name of the store, which workers compare
//! FOLDER/runs/RUN/000007-3fa1….json        step 7 of a run, by the start of its hash
//! ```

use crate::files::private_folder;
use crate::request::check_run_id;
use crate::step::{Past, Step, hash};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// Steps up to this size in bytes are in the engine's journal; larger ones are there by their hash.
pub const MOST_INLINE: usize = 16 << 10;

/// The largest step that is read, in bytes.
const MOST_STEP: u64 = 512 << 20;

/// The digits of a hash in the name of a file.
const NAMED: usize = 16;

/// A step in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The number of the step in its run, from 0.
    pub number: u64,
    /// SHA-256 of its JSON, in hexadecimal.
    pub sha256: String,
    /// The length of its JSON in bytes.
    pub bytes: u64,
}

/// A step of a run, by its place and its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tip {
    /// The number of the step, from 0.
    pub number: u64,
    /// SHA-256 of its JSON, in hexadecimal.
    pub sha256: String,
}

/// A problem of the store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A file cannot be read or written.
    #[error("store {}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A step is missing or has another content.
    #[error(
        "store {}: step {number} of run {run} {problem}; do all workers share this folder?",
        folder.display()
    )]
    Damaged {
        /// The folder of the store.
        folder: PathBuf,
        /// The run.
        run: String,
        /// The number of the step.
        number: u64,
        /// The problem of the step.
        problem: String,
    },
    /// The id of a run is not valid.
    #[error("store: {0}")]
    RunId(String),
}

impl StoreError {
    pub(crate) fn io(path: &Path, source: io::Error) -> StoreError {
        failed(path, source)
    }
}

/// A step that was read from its file.
struct Stored {
    number: u64,
    written: SystemTime,
    sha256: String,
    step: Step,
}

/// A folder with the steps of runs. Cheap to clone. All methods block.
#[derive(Clone, Debug)]
pub struct Store(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    folder: PathBuf,
    id: String,
    /// Distinguishes the temporary files of this process.
    next: AtomicU64,
}

impl Store {
    /// Opens the store in this folder, which is created if it does not exist, and checks that it can
    /// be written.
    ///
    /// # Errors
    /// The folder cannot be created, read or written.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Store, StoreError> {
        let folder = folder.into();
        let runs = folder.join("runs");
        private_folder(&runs).map_err(|source| failed(&runs, source))?;
        let id = store_id(&folder)?;
        Ok(Store(Arc::new(Inner { folder, id, next: AtomicU64::new(0) })))
    }

    /// Returns the name of the store, which is the same for all workers that share the folder.
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.0.folder
    }

    /// Stores a step. A large one is on the disk when this returns, because the engine does not have
    /// it.
    ///
    /// # Errors
    /// The step cannot be written.
    pub fn put(&self, run: &str, number: u64, step: &Step) -> Result<Kept, StoreError> {
        let folder = self.folder_of(run)?;
        let text = serde_json::to_vec(step).map_err(|error| failed(&folder, error.into()))?;
        let sha256 = hash(&text);
        let kept = Kept { number, sha256, bytes: text.len() as u64 };
        private_folder(&folder).map_err(|source| failed(&folder, source))?;
        let path = folder.join(name_of(&kept));
        // The name contains the hash, because workers on two machines may have the same process id.
        let temporary = format!(
            ".{}-{}-{}",
            std::process::id(),
            self.0.next.fetch_add(1, Ordering::Relaxed),
            name_of(&kept)
        );
        let temporary = folder.join(temporary);
        let write = || {
            let mut file = File::create(&temporary)?;
            file.write_all(&text)?;
            if text.len() > MOST_INLINE {
                file.sync_data()?;
            }
            fs::rename(&temporary, &path)?;
            if text.len() > MOST_INLINE {
                // The name of the file is part of the folder.
                File::open(&folder)?.sync_all()?;
            }
            Ok(())
        };
        match write() {
            Ok(()) => Ok(kept),
            Err(source) => {
                let _ = fs::remove_file(&temporary);
                Err(failed(&path, source))
            }
        }
    }

    /// Reads a step back.
    ///
    /// # Errors
    /// The step is missing, or is not the one that was stored.
    pub fn get(&self, run: &str, kept: &Kept) -> Result<Step, StoreError> {
        let path = self.folder_of(run)?.join(name_of(kept));
        let wrong = |problem: String| StoreError::Damaged {
            folder: self.0.folder.clone(),
            run: run.to_owned(),
            number: kept.number,
            problem,
        };
        let text = match read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(wrong("is missing".to_owned()));
            }
            Err(source) => return Err(failed(&path, source)),
        };
        if hash(&text) != kept.sha256 {
            return Err(wrong("has changed".to_owned()));
        }
        serde_json::from_slice(&text).map_err(|error| wrong(format!("cannot be read: {error}")))
    }

    /// Puts a run together from its steps, for a run whose steps the engine no longer has. The newest
    /// last step counts, with those before it. Others are from an earlier run of the same id, or from a
    /// worker that was cut off.
    ///
    /// # Errors
    /// A step cannot be read, or is missing before another one.
    pub fn past(&self, run: &str) -> Result<Past, StoreError> {
        let mut stored = stored(&self.folder_of(run)?)?;
        let mut chain = Vec::new();
        let named: HashSet<String> =
            stored.iter().filter_map(|stored| stored.step.after.clone()).collect();
        let last = stored.iter().enumerate().filter(|(_, stored)| !named.contains(&stored.sha256));
        // The number decides between steps that the clock of the file system does not distinguish.
        let mut next =
            last.max_by_key(|(_, stored)| (stored.written, stored.number)).map(|(at, _)| at);
        while let Some(at) = next {
            let Stored { number, step, .. } = stored.swap_remove(at);
            next = match &step.after {
                None => None,
                Some(before) => {
                    let found = stored.iter().position(|stored| stored.sha256 == *before);
                    Some(found.ok_or_else(|| StoreError::Damaged {
                        folder: self.0.folder.clone(),
                        run: run.to_owned(),
                        number,
                        problem: "follows a step that is missing".to_owned(),
                    })?)
                }
            };
            chain.push(step);
        }
        let mut past = Past::default();
        chain.iter().rev().for_each(|step| past.take(step));
        Ok(past)
    }

    /// Reads one step of a run.
    ///
    /// # Errors
    /// The step is missing, or is not the one that was stored.
    pub fn step(&self, run: &str, tip: &Tip) -> Result<Step, StoreError> {
        let Tip { number, sha256 } = tip.clone();
        self.get(run, &Kept { number, sha256, bytes: 0 })
    }

    /// Returns the steps of a run up to this one, in their order, without those up to the one with the hash
    /// `known`.
    ///
    /// # Errors
    /// A step is missing or has changed, or `known` is not a step before this one.
    pub fn steps_to(
        &self,
        run: &str,
        tip: &Tip,
        known: Option<&str>,
    ) -> Result<Vec<Step>, StoreError> {
        let mut steps = Vec::new();
        let mut next = (known != Some(tip.sha256.as_str())).then(|| tip.clone());
        while let Some(tip) = next {
            let (number, step) = (tip.number, self.step(run, &tip)?);
            next = match (&step.after, number.checked_sub(1)) {
                (Some(before), _) if Some(before.as_str()) == known => None,
                (Some(before), Some(number)) => Some(Tip { number, sha256: before.clone() }),
                (None, _) if known.is_none() => None,
                _ => return Err(self.damaged(run, number)),
            };
            steps.push(step);
        }
        steps.reverse();
        Ok(steps)
    }

    fn damaged(&self, run: &str, number: u64) -> StoreError {
        StoreError::Damaged {
            folder: self.0.folder.clone(),
            run: run.to_owned(),
            number,
            problem: "does not follow the steps before it".to_owned(),
        }
    }

    /// Returns the folder of a run.
    pub(crate) fn folder_of(&self, run: &str) -> Result<PathBuf, StoreError> {
        // The id comes from a client and is a part of a path here.
        check_run_id(run).map_err(StoreError::RunId)?;
        Ok(self.0.folder.join("runs").join(run))
    }
}

/// Reads all steps in a folder.
fn stored(folder: &Path) -> Result<Vec<Stored>, StoreError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(failed(folder, source)),
    };
    let mut all = Vec::new();
    for entry in entries {
        let path = entry.map_err(|source| failed(folder, source))?.path();
        let Some(number) = number_of(&path) else { continue };
        let written = fs::metadata(&path).and_then(|metadata| metadata.modified());
        let written = written.map_err(|source| failed(&path, source))?;
        let text = read(&path).map_err(|source| failed(&path, source))?;
        let step = serde_json::from_slice(&text).map_err(|error| failed(&path, error.into()))?;
        all.push(Stored { number, written, sha256: hash(&text), step });
    }
    Ok(all)
}

/// Reads the name of the store, or gives it one. Of several processes that do this at once, one wins.
fn store_id(folder: &Path) -> Result<String, StoreError> {
    let path = folder.join("store-id");
    let fresh = format!("{}{}", endstop::agent::new_run_id(), endstop::agent::new_run_id());
    let temporary = folder.join(format!(".store-id-{fresh}"));
    let named = || -> io::Result<String> {
        fs::write(&temporary, &fresh)?;
        // A link is created only if there is none, and has its content from the beginning.
        match fs::hard_link(&temporary, &path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        let id = fs::read_to_string(&path)?;
        check_run_id(id.trim())
            .map_err(|problem| io::Error::new(io::ErrorKind::InvalidData, problem))?;
        Ok(id.trim().to_owned())
    };
    let id = named();
    let _ = fs::remove_file(&temporary);
    id.map_err(|source| failed(&path, source))
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path)?.take(MOST_STEP + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MOST_STEP {
        let problem = format!("larger than {} MiB", MOST_STEP >> 20);
        return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
    }
    Ok(text)
}

fn name_of(kept: &Kept) -> String {
    // A hash of the engine's journal may be damaged, and is a part of a path here.
    let digits = kept.sha256.bytes().filter(u8::is_ascii_hexdigit).take(NAMED);
    let digits: String = digits.map(char::from).collect();
    format!("{:06}-{digits}.json", kept.number)
}

/// Returns the number of the step in a file, `None` for other files.
fn number_of(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?.strip_suffix(".json")?;
    let (number, digits) = name.split_once('-')?;
    (digits.len() == NAMED).then(|| number.parse().ok()).flatten()
}

fn failed(path: &Path, source: io::Error) -> StoreError {
    StoreError::Io { path: path.to_owned(), source }
}
