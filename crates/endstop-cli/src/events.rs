//! The file of `--events`: events on disk, a line each, with the time since the start.
//!
//! ```ignore
//! let mut events = EventFile::create(Path::new("events.jsonl"), secrets)?;
//! events.write(&event, Keep::Now);
//! events.finish();
//! ```

use crate::{Failure, Result, output};
use endstop::wire::redact::KnownKeys;
use serde::Serialize;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

pub(crate) struct EventFile {
    file: BufWriter<File>,
    path: PathBuf,
    secrets: KnownKeys,
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

impl EventFile {
    /// A new file; these keys do not come to it.
    pub(crate) fn create(path: &Path, secrets: KnownKeys) -> Result<EventFile> {
        let file = File::create(path)
            .map_err(|error| Failure::usage(format!("--events {}: {error}", path.display())))?;
        Ok(EventFile {
            file: BufWriter::new(file),
            path: path.to_owned(),
            secrets,
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
            writeln!(self.file, "{}", self.secrets.out_of_text(&line))?;
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
