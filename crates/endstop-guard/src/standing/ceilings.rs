//! Ceilings of each profile and day, which outlive the process.
//!
//! ```text
//! {"day":20780,"profiles":{"nightly":{"nano_usd":1200000000,"tokens":91000}}}
//! ```
//!
//! A day is a day of UTC. A run counts on the day on which it started.

use endstop::budget::{Amount, SharedBudget};
use endstop_core::NanoUsd;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use thiserror::Error;

/// The largest state file, in bytes.
const MOST: u64 = 1 << 20;

/// A day of UTC, counted since 1970-01-01.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Day(pub u64);

impl Day {
    /// The day of a time since 1970-01-01 UTC.
    pub fn of(time: Duration) -> Day {
        Day(time.as_secs() / 86_400)
    }

    /// The day now.
    #[expect(clippy::disallowed_methods, reason = "the day is a matter of the wall clock")]
    pub fn now() -> Day {
        Day::of(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
    }
}

/// The spending of the profiles on a day.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaySpending {
    /// Days since 1970-01-01 UTC.
    day: u64,
    profiles: BTreeMap<String, Spent>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Spent {
    nano_usd: u64,
    tokens: u64,
}

/// The file with the spending of the day. One process owns it.
#[derive(Debug)]
pub struct StateFile {
    path: PathBuf,
    /// Held for its lock.
    _lock: File,
    written: DaySpending,
}

/// The error for a state file that cannot be opened.
#[derive(Debug, Error)]
#[error("{}: {cause}", path.display())]
pub struct StateFileError {
    /// The state file.
    pub path: PathBuf,
    /// The cause.
    pub cause: StateFileCause,
}

/// The cause of a [`StateFileError`].
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StateFileCause {
    /// The file, its folder or its lock cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Another process has locked the file.
    #[error("another guard uses this file; set `state` to another file for this one")]
    InUse,
    /// The file has other content.
    #[error("not the state of a guard ({0}); remove it to start the day at zero")]
    Damaged(#[source] serde_json::Error),
}

impl StateFile {
    /// Opens the file and locks it for this process. A missing file is an empty one.
    ///
    /// # Errors
    /// The file cannot be read or written, is damaged, or another process uses it.
    pub fn open(path: &Path) -> Result<StateFile, StateFileError> {
        Self::locked(path).map_err(|cause| StateFileError { path: path.to_owned(), cause })
    }

    fn locked(path: &Path) -> Result<StateFile, StateFileCause> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder)?;
        }
        // The file itself is replaced at each write, so a neighbour holds the lock.
        let lock = private().open(path.with_extension("lock"))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => StateFileCause::InUse,
            TryLockError::Error(error) => StateFileCause::Io(error),
        })?;
        let mut text = String::new();
        match File::open(path).and_then(|file| file.take(MOST).read_to_string(&mut text)) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        let written = if text.is_empty() {
            DaySpending::default()
        } else {
            // An error, because starting from zero would spend the ceiling twice.
            serde_json::from_str(&text).map_err(StateFileCause::Damaged)?
        };
        Ok(StateFile { path: path.to_owned(), _lock: lock, written })
    }

    /// Books what this profile has spent on this day before this process.
    pub fn restore(&self, day: Day, profile: &str, budget: &SharedBudget) {
        if self.written.day == day.0
            && let Some(spent) = self.written.profiles.get(profile)
        {
            budget.book_earlier(Amount { usd: NanoUsd(spent.nano_usd), tokens: spent.tokens });
        }
    }

    /// Writes what the profiles have spent and reserved, if it has changed.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write<'a>(
        &mut self,
        day: Day,
        budgets: impl IntoIterator<Item = (&'a str, &'a SharedBudget)>,
    ) -> Result<(), String> {
        // Reservations too: if the process is killed, their calls may have been billed.
        let spent = |budget: &SharedBudget| Spent {
            nano_usd: budget.committed().0,
            tokens: budget.committed_tokens(),
        };
        let budgets = budgets.into_iter();
        let profiles = budgets.map(|(name, budget)| (name.to_owned(), spent(budget))).collect();
        let new = DaySpending { day: day.0, profiles };
        if new == self.written {
            return Ok(());
        }
        let text = serde_json::to_string(&new).unwrap_or_default();
        let next = self.path.with_extension("new");
        let write = || -> io::Result<()> {
            let mut file = private().truncate(true).open(&next)?;
            file.write_all(text.as_bytes())?;
            file.sync_data()?;
            std::fs::rename(&next, &self.path)
        };
        write().map_err(|error| format!("{}: {error}", self.path.display()))?;
        self.written = new;
        Ok(())
    }
}

/// Options for files that only this user may read.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    options
}
