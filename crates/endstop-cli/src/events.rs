//! The file of `--events`: events on disk, a line each, with the time since the start.
//!
//! ```ignore
//! let Some(file) = EventFile::of(&args)? else { return };
//! let mut events = EventFile::create(&file, secrets)?;
//! events.write(&event, Keep::Now);
//! events.finish();
//! ```

use crate::args::RunArgs;
use crate::new_file::NewFile;
use crate::{Result, output};
use endstop::wire::redact::KnownKeys;
use serde::Serialize;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
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
    /// The file that the flags name.
    pub(crate) fn of(args: &RunArgs) -> Result<Option<NewFile>> {
        let file = args.events.as_deref();
        let file = file.map(|path| NewFile::of("--events", path, args.overwrite)).transpose()?;
        Ok(file)
    }

    /// A new file; these keys do not come to it.
    pub(crate) fn create(file: &NewFile, secrets: KnownKeys) -> Result<EventFile> {
        Ok(EventFile {
            file: BufWriter::new(file.create()?),
            path: file.path().to_owned(),
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
            writeln!(self.file, "{}", self.secrets.out_of_json_text(line))?;
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
