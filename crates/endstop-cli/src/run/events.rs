//! Writes the file of `--events`: one event for each line, with the time since the start.

use crate::failure::Result;
use crate::new_file::NewFile;
use crate::output;
use crate::run_args::OutputArgs;
use serde::Serialize;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::time::Instant;

/// An open file of events.
pub(crate) struct EventFile {
    file: BufWriter<File>,
    path: PathBuf,
    began: Instant,
    failed: bool,
}

/// The time by which a line must be on disk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Immediately.
    Now,
    /// With the next line that must be; a crash may lose it.
    Soon,
}

impl EventFile {
    /// Checks the file that the flags name.
    pub(crate) fn of(args: &OutputArgs) -> Result<Option<NewFile>> {
        let file = args.events.as_deref();
        let file = file.map(|path| NewFile::of("--events", path, args.overwrite)).transpose()?;
        Ok(file)
    }

    /// Creates the file. The secrets of the process are redacted from its lines.
    pub(crate) fn create(file: &NewFile) -> Result<EventFile> {
        Ok(EventFile {
            file: BufWriter::new(file.create()?),
            path: file.path().to_owned(),
            began: Instant::now(),
            failed: false,
        })
    }

    pub(crate) fn write(&mut self, event: &impl Serialize, keep: Keep) {
        let at = self.began.elapsed().as_micros() as f64 / 1e3;
        let line = serde_json::to_value(event).and_then(|mut event| {
            if let Some(fields) = event.as_object_mut() {
                fields.insert("at_ms".to_owned(), at.into());
            }
            output::keys().redact_json(&event)
        });
        let written = line.map_err(io::Error::from).and_then(|line| {
            writeln!(self.file, "{line}")?;
            if keep == Keep::Soon { Ok(()) } else { self.file.flush() }
        });
        self.check(written);
    }

    pub(crate) fn finish(&mut self) {
        let flushed = self.file.flush();
        self.check(flushed);
    }

    /// Reports the first error only, because a full disk fails every line.
    fn check(&mut self, written: io::Result<()>) {
        if let Err(error) = written
            && !std::mem::replace(&mut self.failed, true)
        {
            let file = format!("--events {}", self.path.display());
            output::write_failed(&file, &error, "; the run continues, and this file is incomplete");
        }
    }
}
