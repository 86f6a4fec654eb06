//! The files of `--attach`: images and PDF documents that the model receives with the task.
//!
//! ```text
//! let attached = Attached::read(&args.attachments)?; // a file that is not an image is an error
//! attached.check(&provider)?;                        // so is one that the model does not take
//! let input = attached.with(task);
//! ```

use crate::failure::{Failure, Result};
use crate::input::Source;
use endstop::provider::{Provider, UnsupportedMedia};
use endstop::{Attachment, MediaError, RunInput};
use std::fmt;
use std::path::{Path, PathBuf};

/// The attachments of a task, with the files that they come from.
#[derive(Debug, Default)]
pub(crate) struct Attached(Vec<(PathBuf, Attachment)>);

/// The reason why a file cannot be attached.
#[derive(Debug)]
enum AttachError {
    /// The file cannot be read, or is too large for any provider.
    Unreadable(Failure),
    /// The file is not an image or a document.
    Media(PathBuf, MediaError),
    /// The model or its API does not take the image or document.
    Unsupported(PathBuf, UnsupportedMedia),
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("--attach ")?;
        match self {
            // The message begins with the file's name.
            AttachError::Unreadable(failure) => f.write_str(&failure.message),
            AttachError::Media(path, error) => write!(f, "{}: {error}", path.display()),
            AttachError::Unsupported(path, error) => {
                write!(f, "{}: cannot be sent: {error}", path.display())
            }
        }
    }
}

impl From<AttachError> for Failure {
    fn from(error: AttachError) -> Failure {
        Failure::usage(error.to_string())
    }
}

impl Attached {
    /// Reads the files. Their content determines the media type, not their name.
    pub(crate) fn read(paths: &[PathBuf]) -> Result<Attached> {
        let read: std::result::Result<_, _> = paths.iter().map(|path| one(path)).collect();
        Ok(Attached(read?))
    }

    /// Refuses attachments that the model or its API does not take.
    pub(crate) fn check(&self, provider: &dyn Provider) -> Result<()> {
        for (path, attachment) in &self.0 {
            let checked = provider.check_attachment(attachment);
            checked.map_err(|error| AttachError::Unsupported(path.clone(), error))?;
        }
        Ok(())
    }

    /// Returns the input of a run: the task, and after it the attachments in the order of the flags.
    pub(crate) fn with(self, task: String) -> RunInput {
        let attachments = self.0.into_iter().map(|(_, attachment)| attachment);
        attachments.fold(RunInput::new(task), RunInput::with)
    }
}

fn one(path: &Path) -> std::result::Result<(PathBuf, Attachment), AttachError> {
    // Not `Source::of`: standard input is the task's, so `-` is the name of a file here.
    let bytes = Source::File(path.to_owned()).bytes().map_err(AttachError::Unreadable)?;
    let wrong = |error| AttachError::Media(path.to_owned(), error);
    let attachment = match Attachment::detect(&bytes).map_err(wrong)? {
        // Some APIs require a name, and the model may be asked about the file by it.
        Attachment::Document(document) => {
            let name = path.file_name().unwrap_or(path.as_os_str());
            document.named(name.to_string_lossy()).into()
        }
        other => other,
    };
    Ok((path.to_owned(), attachment))
}
