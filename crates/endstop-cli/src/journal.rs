//! The file of `--events`: events on disk, a line each, with the time since the start.
//!
//! ```ignore
//! let mut journal = Journal::create(Path::new("events.jsonl"))?;
//! journal.write(&event, Keep::Now);
//! journal.finish();
//! ```

use crate::{Failure, Result, output};
use serde::Serialize;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

pub(crate) struct Journal {
    file: BufWriter<File>,
    path: PathBuf,
    began: Instant,
    failed: bool,
}

/// When a line must be on disk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    Now,
    /// With what comes next: a crash may lose it.
    Soon,
}

impl Journal {
    pub(crate) fn create(path: &Path) -> Result<Journal> {
        let file = File::create(path)
            .map_err(|error| Failure::usage(format!("--events {}: {error}", path.display())))?;
        Ok(Journal {
            file: BufWriter::new(file),
            path: path.to_owned(),
            began: Instant::now(),
            failed: false,
        })
    }

    pub(crate) fn write(&mut self, event: &impl Serialize, keep: Keep) {
        let at = self.began.elapsed().as_micros() as f64 / 1e3;
        let line = serde_json::to_value(event).map(|mut event| {
            if let Some(fields) = event.as_object_mut() {
                fields.insert("at_ms".to_owned(), at.into());
            }
            event.to_string()
        });
        let written = line.map_err(io::Error::from).and_then(|line| {
            writeln!(self.file, "{line}")?;
            if keep == Keep::Soon { Ok(()) } else { self.file.flush() }
        });
        if let Err(error) = written
            && !std::mem::replace(&mut self.failed, true)
        {
            output::note(&format!(
                "endstop: --events {}: {error}; the run goes on without it",
                self.path.display()
            ));
        }
    }

    pub(crate) fn finish(&mut self) {
        let _ = self.file.flush();
    }
}
